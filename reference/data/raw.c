#include "reference/data/raw_format.h"
#include "reference/data/source.h"

static ls_rc check(const char *argument) {
    if (argument == NULL || argument[0] == '\0') {
        return ls_fail(LS_BAD_INPUT, "--data raw: expected raw:FILE, a container that `lockstep data import` makes");
    }
    return LS_OK;
}

static ls_rc open_file(const char *argument, ls_split split, ls_dataset *out) {
    return ls_raw_read(argument, split, false, out);
}

static ls_rc shape_of(const char *argument, ls_split split, ls_dataset *out) {
    return ls_raw_read(argument, split, true, out);
}

const ls_data_source ls_data_raw = {
    .name = "raw", .usage = "raw:FILE", .one_file = true, .check = check, .open = open_file, .shape = shape_of};
