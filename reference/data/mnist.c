#include <stddef.h>

#include "reference/data/mnist_files.h"
#include "reference/data/source.h"

static ls_rc check(const char *argument) {
    if (argument == NULL || argument[0] == '\0') {
        return ls_fail(LS_BAD_INPUT, "--data mnist: expected mnist:DIR with the folder of the four MNIST files; "
                                     "scripts/get-mnist.sh downloads them");
    }
    return LS_OK;
}

static ls_rc open_files(const char *argument, ls_split split, ls_dataset *out) {
    return ls_mnist_files_open(argument, split, out);
}

static ls_rc shape_of(const char *argument, ls_split split, ls_dataset *out) {
    return ls_mnist_files_shape(argument, split, out);
}

const ls_data_source ls_data_mnist = {
    .name = "mnist", .usage = "mnist:DIR", .check = check, .open = open_files, .shape = shape_of};
