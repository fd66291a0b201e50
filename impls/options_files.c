/* The files that options name are apart: what is written replaces no other result and no input that is still wanted. */
#include <string.h>

#include "gpu/base/path.h"
#include "impls/options_table.h"
#include "reference/dataset.h"

typedef struct named_file {
    const char *option;
    const char *path; /* empty or NULL: not given */
    bool written;
} named_file;

/* Replaced as a whole after it has been read: a run that goes on in its own file. */
static bool goes_on(const named_file *in, const named_file *out) {
    static const char *const pairs[][2] = {{"--load", "--save"}, {"--resume", "--checkpoint"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (strcmp(in->option, pairs[i][0]) == 0 && strcmp(out->option, pairs[i][1]) == 0) {
            return true;
        }
    }
    return false;
}

/* before stands before after among the files: inputs come first. */
static ls_rc check_pair(const named_file *before, const named_file *after) {
    bool given = before->path != NULL && before->path[0] != '\0' && after->path != NULL && after->path[0] != '\0';
    if (!given || !after->written || goes_on(before, after) || !ls_path_same(before->path, after->path)) {
        return LS_OK;
    }
    return ls_fail(LS_BAD_INPUT, "%s %s and %s %s are one file, %s; give each its own", before->option, before->path,
                   after->option, after->path,
                   before->written ? "of which one result would be lost" : "which would be lost as an input");
}

ls_rc ls_options_check_files(unsigned command, const ls_options *options) {
    const ls_run *run = &options->run;
    named_file files[LS_MAX_LIST + 8];
    size_t count = 0;
    for (size_t m = 0; m < options->model_count; m++) {
        files[count++] = (named_file){"--model", options->model_files[m], false};
    }
    files[count++] = (named_file){"--data", ls_dataset_file(run->data), false};
    files[count++] = (named_file){"--load", run->load, false};
    files[count++] = (named_file){"--resume", run->resume, false};
    files[count++] = (named_file){"--save", run->save, true};
    files[count++] = (named_file){"--save-grads", run->save_grads, true};
    files[count++] = (named_file){"--checkpoint", run->checkpoint, true};
    files[count++] = (named_file){"--json", run->json, true};
    if (command == LS_COMMAND_SWEEP) {
        files[count++] = (named_file){"-o", options->output, true};
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t k = i + 1; k < count; k++) {
            LS_TRY(check_pair(&files[i], &files[k]));
        }
    }
    return LS_OK;
}
