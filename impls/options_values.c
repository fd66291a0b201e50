/* The values of options: from words and back. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "impls/impl.h"
#include "impls/options_table.h"
#include "impls/run_spec.h"
#include "reference/dataset.h"
#include "reference/model.h"

static ls_rc bad_value(const ls_option *option, const char *value, const char *expected) {
    return ls_fail(LS_BAD_INPUT, "option '%s': '%s' is not %s", option->flag, value, expected);
}

static ls_rc copy_text(const ls_option *option, const char *value, char *out, size_t size) {
    if (value[0] == '\0') {
        return ls_fail(LS_BAD_INPUT, "option '%s': the value is empty, expected %s", option->flag, option->argument);
    }
    if (strlen(value) >= size) {
        return ls_fail(LS_BAD_INPUT, "option '%s': the value has %zu bytes, expected at most %zu", option->flag,
                       strlen(value), size - 1);
    }
    memcpy(out, value, strlen(value) + 1);
    return LS_OK;
}

/* A whole decimal number from low to high, with nothing after it but what *rest points to. */
static bool read_whole(const char *value, size_t *out, const char **rest) {
    if (value[0] < '0' || value[0] > '9') {
        return false;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (errno != 0 || end == value || number > SIZE_MAX) {
        return false;
    }
    *out = (size_t)number;
    *rest = end;
    return true;
}

static ls_rc read_size(const ls_option *option, const char *value, double low, double high, size_t *out) {
    const char *rest = NULL;
    size_t number = 0;
    if (!read_whole(value, &number, &rest) || rest[0] != '\0' || (double)number < low || (double)number > high) {
        char expected[96];
        snprintf(expected, sizeof expected, "a whole number from %.0f to %.0f", low, high);
        return bad_value(option, value, expected);
    }
    *out = number;
    return LS_OK;
}

ls_rc ls_option_parse_size(const ls_option *option, const char *value, ls_options *options) {
    return read_size(option, value, option->low, option->high, (size_t *)((char *)&options->run + option->offset));
}

ls_rc ls_option_parse_steps(const ls_option *option, const char *value, ls_options *options) {
    options->steps_given = true;
    return ls_option_parse_size(option, value, options);
}

ls_rc ls_option_parse_seed(const ls_option *option, const char *value, ls_options *options) {
    size_t seed = 0;
    const char *rest = NULL;
    if (!read_whole(value, &seed, &rest) || rest[0] != '\0') {
        return bad_value(option, value, "a whole number from 0 to 18446744073709551615");
    }
    options->run.seed = seed;
    return LS_OK;
}

static bool read_double(const char *value, double *out) {
    char *end = NULL;
    errno = 0;
    *out = strtod(value, &end);
    return end != value && *end == '\0' && errno == 0 && isfinite(*out);
}

ls_rc ls_option_parse_double(const ls_option *option, const char *value, ls_options *options) {
    double number = 0;
    if (!read_double(value, &number) || number < option->low || number > option->high) {
        char expected[96];
        snprintf(expected, sizeof expected, "a number from %g to %g", option->low, option->high);
        return bad_value(option, value, expected);
    }
    *(double *)((char *)&options->run + option->offset) = number;
    return LS_OK;
}

ls_rc ls_option_parse_flag(const ls_option *option, const char *value, ls_options *options) {
    (void)value;
    *(bool *)((char *)&options->run + option->offset) = true;
    return LS_OK;
}

ls_rc ls_option_parse_text(const ls_option *option, const char *value, ls_options *options) {
    return copy_text(option, value, (char *)&options->run + option->offset, LS_PATH_SIZE);
}

ls_rc ls_option_parse_random(const ls_option *option, const char *value, ls_options *options) {
    return read_size(option, value, option->low, option->high, &options->random_count);
}

ls_rc ls_option_parse_case(const ls_option *option, const char *value, ls_options *options) {
    return read_size(option, value, option->low, option->high, &options->random_case);
}

ls_rc ls_option_parse_determinism(const ls_option *option, const char *value, ls_options *options) {
    (void)option;
    (void)value;
    options->determinism = true;
    return LS_OK;
}

ls_rc ls_option_parse_output(const ls_option *option, const char *value, ls_options *options) {
    return copy_text(option, value, options->output, sizeof options->output);
}

ls_rc ls_option_parse_data(const ls_option *option, const char *value, ls_options *options) {
    LS_TRY(copy_text(option, value, options->run.data, sizeof options->run.data));
    return ls_dataset_check_spec(value);
}

/* Cuts the next member off a comma-separated list. Returns false at the end. */
typedef struct member_list {
    const char *at;
    char member[LS_MODEL_TEXT_SIZE];
} member_list;

static bool list_next(member_list *list) {
    if (list->at == NULL) {
        return false;
    }
    const char *comma = strchr(list->at, ',');
    size_t length = comma != NULL ? (size_t)(comma - list->at) : strlen(list->at);
    if (length >= sizeof list->member) {
        length = sizeof list->member - 1;
    }
    memcpy(list->member, list->at, length);
    list->member[length] = '\0';
    list->at = comma != NULL ? comma + 1 : NULL;
    return true;
}

static ls_rc too_many(const ls_option *option) {
    return ls_fail(LS_BAD_INPUT, "option '%s': the list has more than %d members", option->flag, LS_MAX_LIST);
}

static ls_rc given_twice(const ls_option *option, const char *member) {
    return ls_fail(LS_BAD_INPUT, "option '%s': '%s' is in the list twice", option->flag, member);
}

static ls_rc add_impl(const ls_option *option, const char *name, ls_options *options) {
    if (ls_impl_find(name) == NULL) {
        char known[256];
        ls_impls_with(0, known, sizeof known);
        return ls_fail(LS_BAD_INPUT, "option '%s': '%s' is not an implementation; expected %s or all", option->flag,
                       name, known);
    }
    for (size_t i = 0; i < options->impl_count; i++) {
        if (strcmp(options->impls[i], name) == 0) {
            return given_twice(option, name);
        }
    }
    if (options->impl_count == LS_MAX_LIST) {
        return too_many(option);
    }
    snprintf(options->impls[options->impl_count++], sizeof options->impls[0], "%s", name);
    return LS_OK;
}

ls_rc ls_option_parse_impls(const ls_option *option, const char *value, ls_options *options) {
    options->impl_count = 0;
    options->impl_all = strcmp(value, "all") == 0;
    if (options->impl_all) {
        for (size_t i = 0; ls_impls[i] != NULL; i++) {
            LS_TRY(add_impl(option, ls_impls[i]->name, options));
        }
    } else {
        for (member_list members = {.at = value}; list_next(&members);) {
            LS_TRY(add_impl(option, members.member, options));
        }
    }
    snprintf(options->run.impl, sizeof options->run.impl, "%s", options->impls[0]);
    return LS_OK;
}

ls_rc ls_option_parse_devices(const ls_option *option, const char *value, ls_options *options) {
    options->device_count = 0;
    for (member_list members = {.at = value}; list_next(&members);) {
        size_t devices = 0;
        LS_TRY(read_size(option, members.member, 1, 1024, &devices));
        for (size_t i = 0; i < options->device_count; i++) {
            if (options->devices[i] == devices) {
                return given_twice(option, members.member);
            }
        }
        if (options->device_count == LS_MAX_LIST) {
            return too_many(option);
        }
        options->devices[options->device_count++] = devices;
    }
    options->devices_given = true;
    options->run.devices = options->devices[0];
    return LS_OK;
}

static ls_rc add_model(const ls_option *option, const char *name, ls_options *options) {
    if (options->model_count == LS_MAX_LIST) {
        return too_many(option);
    }
    char *text = options->models[options->model_count];
    LS_TRY(ls_run_read_model(name, text, options->model_files[options->model_count]));
    for (size_t i = 0; i < options->model_count; i++) {
        if (strcmp(options->models[i], text) == 0) {
            return given_twice(option, name);
        }
    }
    options->model_count++;
    return LS_OK;
}

ls_rc ls_option_parse_models(const ls_option *option, const char *value, ls_options *options) {
    options->model_count = 0;
    options->model_all = strcmp(value, "all") == 0;
    if (options->model_all) {
        for (size_t i = 0; ls_zoo[i] != NULL; i++) {
            LS_TRY(add_model(option, ls_zoo[i]->name, options));
        }
    } else {
        for (member_list members = {.at = value}; list_next(&members);) {
            LS_TRY(add_model(option, members.member, options));
        }
    }
    ls_run_use_model(options, 0, &options->run);
    return LS_OK;
}

ls_rc ls_option_parse_dtypes(const ls_option *option, const char *value, ls_options *options) {
    options->dtype_count = 0;
    for (member_list members = {.at = value}; list_next(&members);) {
        bool is_float64 = strcmp(members.member, "float64") == 0;
        if (!is_float64 && strcmp(members.member, "float32") != 0) {
            return bad_value(option, members.member, "float32 or float64");
        }
        ls_dtype dtype = is_float64 ? LS_FLOAT64 : LS_FLOAT32;
        if (options->dtype_count > 0 && (options->dtype_count == 2 || options->dtypes[0] == dtype)) {
            return given_twice(option, members.member);
        }
        options->dtypes[options->dtype_count++] = dtype;
    }
    options->run.dtype = options->dtypes[0];
    return LS_OK;
}

ls_rc ls_option_parse_buckets(const ls_option *option, const char *value, ls_options *options) {
    options->bucket_count = 0;
    for (member_list members = {.at = value}; list_next(&members);) {
        const char *unit = "";
        size_t bytes = 0;
        bool good = read_whole(members.member, &bytes, &unit);
        size_t factor = strcmp(unit, "KiB") == 0 ? 1024 : strcmp(unit, "MiB") == 0 ? 1024 * 1024 : 1;
        if (!good || (unit[0] != '\0' && factor == 1) || bytes == 0 || bytes > (size_t)1e15 / factor) {
            return bad_value(option, members.member,
                             "a number of bytes from 1 to 1e15, or one with KiB or MiB behind it");
        }
        bytes *= factor;
        for (size_t i = 0; i < options->bucket_count; i++) {
            if (options->buckets[i] == bytes) {
                return given_twice(option, members.member);
            }
        }
        if (options->bucket_count == LS_MAX_LIST) {
            return too_many(option);
        }
        options->buckets[options->bucket_count++] = bytes;
    }
    options->run.bucket_bytes = options->buckets[0];
    return LS_OK;
}

ls_rc ls_option_parse_math(const ls_option *option, const char *value, ls_options *options) {
    return ls_math_mode_find(value, &options->run.math) ? LS_OK : bad_value(option, value, "exact, fast or im2col");
}

ls_rc ls_option_parse_ranks(const ls_option *option, const char *value, ls_options *options) {
    options->ranks_count = 0;
    for (member_list members = {.at = value}; list_next(&members);) {
        bool threads = strcmp(members.member, "threads") == 0;
        if (!threads && strcmp(members.member, "processes") != 0) {
            return bad_value(option, members.member, "processes or threads");
        }
        ls_rank_kind kind = threads ? LS_RANKS_THREADS : LS_RANKS_PROCESSES;
        if (options->ranks_count > 0 && (options->ranks_count == 2 || options->ranks[0] == kind)) {
            return given_twice(option, members.member);
        }
        options->ranks[options->ranks_count++] = kind;
    }
    options->run.ranks = options->ranks[0];
    return LS_OK;
}

static const char *const mpi_buffers[] = {
    [LS_MPI_BUFFERS_HOST] = "host", [LS_MPI_BUFFERS_DEVICE] = "device", [LS_MPI_BUFFERS_AUTO] = "auto"};

ls_rc ls_option_parse_mpi_buffers(const ls_option *option, const char *value, ls_options *options) {
    for (size_t i = 0; i < sizeof mpi_buffers / sizeof mpi_buffers[0]; i++) {
        if (strcmp(value, mpi_buffers[i]) == 0) {
            options->run.mpi_buffers = (ls_mpi_buffers)i;
            return LS_OK;
        }
    }
    return bad_value(option, value, "host, device or auto");
}

void ls_option_format_mpi_buffers(const ls_option *option, const ls_run *run, char *text, size_t size) {
    (void)option;
    (void)snprintf(text, size, "%s", mpi_buffers[run->mpi_buffers]);
}

ls_rc ls_option_parse_scaling(const ls_option *option, const char *value, ls_options *options) {
    options->scaling_count = 0;
    for (member_list members = {.at = value}; list_next(&members);) {
        if (strcmp(members.member, "weak") != 0 && strcmp(members.member, "strong") != 0) {
            return bad_value(option, members.member, "weak or strong");
        }
        if (options->scaling_count > 0 &&
            (options->scaling_count == 2 || strcmp(options->scaling[0], members.member) == 0)) {
            return given_twice(option, members.member);
        }
        snprintf(options->scaling[options->scaling_count++], sizeof options->scaling[0], "%.7s", members.member);
    }
    return LS_OK;
}

void ls_option_format_size(const ls_option *option, const ls_run *run, char *text, size_t size) {
    size_t value = 0;
    memcpy(&value, (const char *)run + option->offset, sizeof value);
    snprintf(text, size, "%zu", value);
    if (value == SIZE_MAX) {
        text[0] = '\0'; /* no limit: nothing to say */
    }
}

void ls_option_format_seed(const ls_option *option, const ls_run *run, char *text, size_t size) {
    (void)option;
    snprintf(text, size, "%llu", (unsigned long long)run->seed);
}

void ls_option_format_double(const ls_option *option, const ls_run *run, char *text, size_t size) {
    double value = 0;
    memcpy(&value, (const char *)run + option->offset, sizeof value);
    for (int digits = 6; digits <= 17; digits++) { /* the shortest text that reads back as the same value */
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            return;
        }
    }
}

void ls_option_format_flag(const ls_option *option, const ls_run *run, char *text, size_t size) {
    bool value = false;
    memcpy(&value, (const char *)run + option->offset, sizeof value);
    snprintf(text, size, "%s", value ? "on" : "");
}

void ls_option_format_text(const ls_option *option, const ls_run *run, char *text, size_t size) {
    snprintf(text, size, "%s", (const char *)run + option->offset);
}

void ls_option_format_dtype(const ls_option *option, const ls_run *run, char *text, size_t size) {
    (void)option;
    snprintf(text, size, "%s", ls_dtype_name(run->dtype));
}

void ls_option_format_ranks(const ls_option *option, const ls_run *run, char *text, size_t size) {
    (void)option;
    snprintf(text, size, "%s", run->ranks == LS_RANKS_THREADS ? "threads" : "processes");
}

void ls_option_format_math(const ls_option *option, const ls_run *run, char *text, size_t size) {
    (void)option;
    snprintf(text, size, "%s", ls_math_mode_name(run->math));
}
