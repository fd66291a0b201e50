#include <stddef.h>
#include <sys/stat.h>

#include "reference/data/mnist_files.h"
#include "reference/data/source.h"

/* Where Debian's package dataset-fashion-mnist puts it. */
static const char default_folder[] = "/usr/share/datasets/fashion-mnist";

static ls_rc check(const char *argument) {
    if (argument != NULL && argument[0] == '\0') {
        return ls_fail(LS_BAD_INPUT, "--data fashion-mnist: expected a folder after the colon, found nothing");
    }
    return LS_OK;
}

static ls_rc find_folder(const char *argument, const char **folder) {
    struct stat info;
    *folder = argument != NULL ? argument : default_folder;
    if (argument == NULL && stat(default_folder, &info) != 0) {
        return ls_fail(LS_BAD_INPUT,
                       "--data fashion-mnist: expected the folder %s, found none; apt-get install "
                       "dataset-fashion-mnist, or name another folder: fashion-mnist:DIR",
                       default_folder);
    }
    return LS_OK;
}

static ls_rc open_files(const char *argument, ls_split split, ls_dataset *out) {
    const char *folder = NULL;
    LS_TRY(find_folder(argument, &folder));
    return ls_mnist_files_open(folder, split, out);
}

static ls_rc shape_of(const char *argument, ls_split split, ls_dataset *out) {
    const char *folder = NULL;
    LS_TRY(find_folder(argument, &folder));
    return ls_mnist_files_shape(folder, split, out);
}

const ls_data_source ls_data_fashion_mnist = {
    .name = "fashion-mnist", .usage = "fashion-mnist[:DIR]", .check = check, .open = open_files, .shape = shape_of};
