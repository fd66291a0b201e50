#include "impls/run_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gpu/base/names.h"
#include "reference/dataset.h"
#include "reference/spec.h"

/* Fills what the spec leaves open with the shape of an image and the number of classes of the data set in force. */
static ls_rc fill_from_data(const ls_run *run, ls_model_spec *spec) {
    if (spec->channels != 0 && spec->classes != 0) {
        return LS_OK;
    }
    ls_dataset sizes;
    LS_TRY(ls_dataset_shape(run->data, run->evaluate_only ? LS_SPLIT_TEST : LS_SPLIT_TRAIN, &sizes));
    if (spec->channels == 0) {
        spec->channels = sizes.channels;
        spec->height = sizes.height;
        spec->width = sizes.width;
    }
    if (spec->classes == 0) {
        spec->classes = sizes.classes > 0 ? sizes.classes : sizes.target_count;
    }
    return LS_OK;
}

static bool is_file(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* What is said about text: of the file that it came from when that can still be read, so that the place is right. */
static ls_rc parse(const char *text, const char *file, ls_model_spec *spec, char **from_file) {
    char error[512];
    const char *source = text;
    *from_file = NULL;
    if (file[0] != '\0' && is_file(file)) {
        LS_TRY(ls_spec_read_file(file, from_file));
        source = *from_file;
    }
    if (ls_spec_parse(source, spec, error, sizeof error) != 0) {
        return ls_fail(LS_BAD_INPUT, "model %s: %s", file[0] != '\0' ? file : "custom", error);
    }
    return LS_OK;
}

ls_rc ls_run_spec(const ls_run *run, ls_model_spec *spec) {
    const ls_model_spec *known = ls_zoo_find(run->model);
    if (known != NULL) {
        *spec = *known;
        return LS_OK;
    }
    if (!ls_spec_is_text(run->model)) {
        return ls_fail(LS_BAD_INPUT, "unknown model '%s'; `lockstep info` lists the models", run->model);
    }
    char *text = NULL;
    ls_rc rc = parse(run->model, run->model_file, spec, &text);
    free(text);
    if (rc == LS_OK) {
        rc = fill_from_data(run, spec);
    }
    return rc;
}

ls_rc ls_run_resolve(const ls_run *run, ls_model_spec *spec, ls_model *model) {
    char error[512];
    LS_TRY(ls_run_spec(run, spec));
    if (ls_model_resolve(spec, model, error, sizeof error) != 0) {
        const char *name = run->model_file[0] != '\0' ? run->model_file : spec->name;
        return ls_fail(LS_BAD_INPUT, "model %s: %s", name, error);
    }
    return LS_OK;
}

static ls_rc unknown(const char *value) {
    char known[256] = "";
    for (size_t i = 0; ls_zoo[i] != NULL; i++) {
        ls_names_add(known, sizeof known, ls_zoo[i]->name);
    }
    return ls_fail(LS_BAD_INPUT,
                   "option '--model': '%s' is not a network; expected %s, all, a spec (`conv 10 k5; relu; ...`) or a "
                   "file with one",
                   value, known);
}

static ls_rc format(const ls_model_spec *spec, const char *file, char text[LS_MODEL_TEXT_SIZE]) {
    if (ls_spec_format(spec, text, LS_MODEL_TEXT_SIZE) != 0) {
        return ls_fail(LS_BAD_INPUT, "model %s: its text is longer than %d bytes", file[0] != '\0' ? file : spec->name,
                       LS_MODEL_TEXT_SIZE - 1);
    }
    return LS_OK;
}

ls_rc ls_run_read_model(const char *value, char text[LS_MODEL_TEXT_SIZE], char file[LS_PATH_SIZE]) {
    file[0] = '\0';
    text[0] = '\0';
    if (ls_zoo_find(value) != NULL) {
        snprintf(text, LS_MODEL_TEXT_SIZE, "%s", value);
        return LS_OK;
    }
    bool from_file = is_file(value) && strlen(value) < LS_PATH_SIZE;
    if (!from_file && !ls_spec_is_text(value)) {
        return unknown(value);
    }
    if (from_file) {
        memcpy(file, value, strlen(value) + 1);
    }
    ls_model_spec spec;
    char *content = NULL;
    ls_rc rc = parse(value, file, &spec, &content);
    free(content);
    LS_TRY(rc);
    /* A line as it was typed keeps its columns; anything else is written anew as one line. */
    bool as_typed = !from_file && strpbrk(value, "\n\t\r#") == NULL && strlen(value) < LS_MODEL_TEXT_SIZE;
    if (as_typed) {
        memcpy(text, value, strlen(value) + 1);
        return LS_OK;
    }
    return format(&spec, file, text);
}

ls_rc ls_run_network(const ls_run *run, char text[LS_MODEL_TEXT_SIZE]) {
    ls_model_spec spec;
    if (ls_zoo_find(run->model) != NULL) {
        snprintf(text, LS_MODEL_TEXT_SIZE, "%s", run->model);
        return LS_OK;
    }
    LS_TRY(ls_run_spec(run, &spec));
    return format(&spec, run->model_file, text);
}

void ls_run_use_model(const ls_options *options, size_t m, ls_run *run) {
    memcpy(run->model, options->models[m], sizeof run->model);
    memcpy(run->model_file, options->model_files[m], sizeof run->model_file);
}

const char *ls_run_model_label(const ls_run *run, char label[16]) {
    if (ls_zoo_find(run->model) != NULL) {
        return run->model;
    }
    snprintf(label, 16, "%.7s..", run->model);
    return label;
}
