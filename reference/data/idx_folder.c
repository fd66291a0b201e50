/* A folder of IDX files of any shape: for each split one of images, [N][H][W] or [N][C][H][W] bytes, and one of labels. Their
 * names say what they are: "train", or "test" or "t10k"; "image" and "label". */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/data/source.h"
#include "reference/idx.h"

static ls_rc check(const char *argument) {
    if (argument == NULL || argument[0] == '\0') {
        return ls_fail(LS_BAD_INPUT, "--data idx: expected idx:DIR with the folder of the IDX files");
    }
    return LS_OK;
}

static bool is_wanted(const char *name, ls_split split, const char *content) {
    bool train = strstr(name, "train") != NULL;
    bool test = strstr(name, "test") != NULL || strstr(name, "t10k") != NULL;
    return name[0] != '.' && strstr(name, content) != NULL && train != test && test == (split == LS_SPLIT_TEST);
}

/* The one file of the split whose name has content ("image", "label") in it. */
static ls_rc find_file(const char *folder, ls_split split, const char *content, char *path, size_t size) {
    DIR *entries = opendir(folder);
    if (entries == NULL) {
        return ls_fail(LS_BAD_INPUT, "%s: expected a folder of IDX files: %s", folder, strerror(errno));
    }
    char found[NAME_MAX + 1] = "";
    ls_rc rc = LS_OK;
    for (struct dirent *entry = readdir(entries); entry != NULL && rc == LS_OK; entry = readdir(entries)) {
        if (!is_wanted(entry->d_name, split, content)) {
            continue;
        }
        if (found[0] != '\0') {
            bool later = strcmp(entry->d_name, found) > 0; /* in one order, whatever the folder's */
            rc = ls_fail(LS_BAD_INPUT, "%s: expected one file of %s %ss, found %s and %s; leave one of them", folder,
                         split == LS_SPLIT_TEST ? "test" : "training", content, later ? found : entry->d_name,
                         later ? entry->d_name : found);
        }
        (void)snprintf(found, sizeof found, "%s", entry->d_name);
    }
    closedir(entries);
    LS_TRY(rc);
    if (found[0] == '\0') {
        return ls_fail(LS_BAD_INPUT, "%s: expected a file with \"%s\" and \"%s\" in its name, found none", folder,
                       split == LS_SPLIT_TEST ? "test\" or \"t10k" : "train", content);
    }
    if (snprintf(path, size, "%s/%s", folder, found) >= (int)size) {
        return ls_fail(LS_BAD_INPUT, "data folder: its path is too long: %s", folder);
    }
    return LS_OK;
}

/* Classes: the largest label of the training set and one. */
static ls_rc read_labels(const char *folder, ls_split split, char *path, size_t size, ls_idx *labels) {
    LS_TRY(find_file(folder, split, "label", path, size));
    return ls_idx_read(path, 1, labels);
}

static ls_rc count_classes(const char *folder, size_t *classes) {
    char path[PATH_MAX];
    ls_idx labels = {0};
    LS_TRY(read_labels(folder, LS_SPLIT_TRAIN, path, sizeof path, &labels));
    *classes = 1;
    for (size_t i = 0; i < labels.count; i++) {
        *classes = labels.content.data[i] + (size_t)1 > *classes ? labels.content.data[i] + (size_t)1 : *classes;
    }
    ls_content_release(&labels.content);
    return LS_OK;
}

static void take_shape(const ls_idx *images, size_t classes, ls_dataset *out) {
    bool channels = images->dims == 4;
    out->count = images->shape[0];
    out->channels = channels ? images->shape[1] : 1;
    out->height = images->shape[channels ? 2 : 1];
    out->width = images->shape[channels ? 3 : 2];
    out->classes = classes;
}

static ls_rc check_counts(const char *image_path, const ls_idx *images, const char *label_path, const ls_idx *labels) {
    if (images->shape[0] != labels->count) {
        return ls_fail(LS_BAD_INPUT, "%s: byte 4: expected as many images as %s has labels, %zu, found %zu", image_path,
                       label_path, labels->count, images->shape[0]);
    }
    return LS_OK;
}

static ls_rc shape_of(const char *argument, ls_split split, ls_dataset *out) {
    char image_path[PATH_MAX], label_path[PATH_MAX];
    ls_idx images = {0}, labels = {0};
    size_t classes = 0;
    LS_TRY(find_file(argument, split, "image", image_path, sizeof image_path));
    LS_TRY(find_file(argument, split, "label", label_path, sizeof label_path));
    LS_TRY(ls_idx_read_header(image_path, 3, 4, &images));
    LS_TRY(ls_idx_read_header(label_path, 1, 1, &labels));
    LS_TRY(check_counts(image_path, &images, label_path, &labels));
    LS_TRY(count_classes(argument, &classes));
    take_shape(&images, classes, out);
    return LS_OK;
}

static ls_rc take_labels(const char *path, const ls_idx *labels, size_t classes, ls_dataset *out) {
    out->labels = ls_calloc(labels->count, sizeof *out->labels, path);
    if (out->labels == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < labels->count; i++) {
        if (labels->content.data[i] >= classes) {
            return ls_fail(LS_BAD_INPUT,
                           "%s: byte %zu (record %zu): expected a label of 0 to %zu, the largest of the training set, "
                           "found %u",
                           path, 8 + i, i, classes - 1, (unsigned)labels->content.data[i]);
        }
        out->labels[i] = labels->content.data[i];
    }
    return LS_OK;
}

static ls_rc open_files(const char *argument, ls_split split, ls_dataset *out) {
    char image_path[PATH_MAX], label_path[PATH_MAX];
    ls_idx images = {0}, labels = {0};
    size_t classes = 0;
    LS_TRY(count_classes(argument, &classes));
    LS_TRY(find_file(argument, split, "image", image_path, sizeof image_path));
    LS_TRY(read_labels(argument, split, label_path, sizeof label_path, &labels));
    ls_rc rc = take_labels(label_path, &labels, classes, out);
    if (rc == LS_OK) {
        rc = ls_idx_read_between(image_path, 3, 4, &images);
    }
    if (rc == LS_OK) {
        ls_dataset_take_pixels(out, &images.content);
        rc = check_counts(image_path, &images, label_path, &labels);
    }
    ls_content_release(&labels.content);
    if (rc != LS_OK) {
        ls_dataset_close(out);
        return rc;
    }
    take_shape(&images, classes, out);
    return LS_OK;
}

const ls_data_source ls_data_idx = {
    .name = "idx", .usage = "idx:DIR", .check = check, .open = open_files, .shape = shape_of};
