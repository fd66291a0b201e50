#include "reference/data/mnist_files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "reference/data/source.h"
#include "reference/idx.h"

enum { SIDE = 28, CLASSES = 10 };

/* Finds the file among its accepted spellings; a broken one is found too, so that reading it says what is wrong. */
static ls_rc find_file(const char *folder, ls_split split, const char *content, size_t dims, char *path, size_t size) {
    static const char separators[] = {'-', '.'};
    static const char *const endings[] = {".gz", ""};
    const char *part = split == LS_SPLIT_TRAIN ? "train" : "t10k";
    for (size_t s = 0; s < sizeof separators; s++) {
        for (size_t e = 0; e < sizeof endings / sizeof endings[0]; e++) {
            int used = snprintf(path, size, "%s/%s-%s%cidx%zu-ubyte%s", folder, part, content, separators[s], dims,
                                endings[e]);
            if (used < 0 || (size_t)used >= size) {
                return ls_fail(LS_BAD_INPUT, "data folder: its path is too long: %s", folder);
            }
            struct stat info;
            if (stat(path, &info) == 0) {
                return LS_OK;
            }
            if (errno != ENOENT) {
                return ls_fail(LS_BAD_INPUT, "%s: cannot be reached: %s", path, strerror(errno));
            }
        }
    }
    return ls_fail(LS_BAD_INPUT, "%s: expected the file %s-%s-idx%zu-ubyte or %s-%s-idx%zu-ubyte.gz, found neither",
                   folder, part, content, dims, part, content, dims);
}

static ls_rc check_images(const char *path, const ls_idx *images) {
    if (images->shape[1] != SIDE || images->shape[2] != SIDE) {
        return ls_fail(LS_BAD_INPUT, "%s: byte 8: expected images of %dx%d, found %zux%zu", path, SIDE, SIDE,
                       images->shape[1], images->shape[2]);
    }
    return LS_OK;
}

static ls_rc check_counts(const char *image_path, const ls_idx *images, const char *label_path, const ls_idx *labels) {
    if (images->shape[0] != labels->count) {
        return ls_fail(LS_BAD_INPUT, "%s: byte 4: expected as many images as %s has labels, %zu, found %zu", image_path,
                       label_path, labels->count, images->shape[0]);
    }
    return LS_OK;
}

static ls_rc take_labels(const char *path, const ls_idx *labels, ls_dataset *out) {
    out->labels = ls_calloc(labels->count, sizeof *out->labels, path);
    if (out->labels == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < labels->count; i++) {
        if (labels->content.data[i] >= CLASSES) {
            return ls_fail(LS_BAD_INPUT, "%s: byte %zu (record %zu): expected a label of 0 to %d, found %u", path,
                           8 + i, i, CLASSES - 1, (unsigned)labels->content.data[i]);
        }
        out->labels[i] = labels->content.data[i];
    }
    return LS_OK;
}

ls_rc ls_mnist_files_shape(const char *folder, ls_split split, ls_dataset *out) {
    char image_path[PATH_MAX];
    char label_path[PATH_MAX];
    ls_idx images = {0}, labels = {0};
    LS_TRY(find_file(folder, split, "images", 3, image_path, sizeof image_path));
    LS_TRY(find_file(folder, split, "labels", 1, label_path, sizeof label_path));
    LS_TRY(ls_idx_read_header(label_path, 1, 1, &labels));
    LS_TRY(ls_idx_read_header(image_path, 3, 3, &images));
    LS_TRY(check_images(image_path, &images));
    LS_TRY(check_counts(image_path, &images, label_path, &labels));
    *out = (ls_dataset){.count = images.shape[0], .channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES};
    return LS_OK;
}

ls_rc ls_mnist_files_open(const char *folder, ls_split split, ls_dataset *out) {
    char image_path[PATH_MAX];
    char label_path[PATH_MAX];
    *out = (ls_dataset){0};
    LS_TRY(find_file(folder, split, "images", 3, image_path, sizeof image_path));
    LS_TRY(find_file(folder, split, "labels", 1, label_path, sizeof label_path));
    ls_idx labels = {0};
    ls_idx images = {0};
    ls_rc rc = ls_idx_read(label_path, 1, &labels);
    if (rc == LS_OK) {
        rc = take_labels(label_path, &labels, out);
    }
    if (rc == LS_OK) {
        rc = ls_idx_read(image_path, 3, &images);
    }
    if (rc == LS_OK) {
        ls_dataset_take_pixels(out, &images.content);
        rc = check_images(image_path, &images);
    }
    if (rc == LS_OK) {
        rc = check_counts(image_path, &images, label_path, &labels);
    }
    ls_content_release(&labels.content);
    if (rc != LS_OK) {
        ls_dataset_close(out);
        return rc;
    }
    out->count = images.shape[0];
    out->channels = 1;
    out->height = SIDE;
    out->width = SIDE;
    out->classes = CLASSES;
    return LS_OK;
}
