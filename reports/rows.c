#include "reports/rows.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MOST = 256 << 20 }; /* bytes; a row that tells a million steps of each of a few ranks has less */

const char *ls_report_text(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? text : "";
}

double ls_report_number(const json_t *row, const char *key) {
    return json_number_value(json_object_get(row, key));
}

bool ls_report_statistic(const json_t *row, const char *key, ls_report_value *out) {
    const json_t *value = json_object_get(row, key);
    if (!json_is_object(value)) {
        return false;
    }
    *out = (ls_report_value){ls_report_number(value, "median"), ls_report_number(value, "low"),
                             ls_report_number(value, "high")};
    return true;
}

/* What a series is called: the implementation, and its options where they are not the usual. */
static void label_of(const json_t *row, char *label, size_t size) {
    const char *ranks = ls_report_text(row, "ranks");
    snprintf(label, size, "%s%s%s", ls_report_text(row, "impl"), ranks[0] != '\0' ? ", " : "", ranks);
    const json_t *bucket = json_object_get(row, "bucket_bytes");
    size_t at = strlen(label);
    if (json_is_integer(bucket) && json_integer_value(bucket) != 25 * 1024 * 1024) {
        snprintf(label + at, size - at, ", buckets %lld B", (long long)json_integer_value(bucket));
        at = strlen(label);
    }
    bool on_device = strcmp(ls_report_text(row, "mpi_buffers"), "device") == 0;
    bool registered = json_is_true(json_object_get(row, "nccl_register"));
    snprintf(label + at, size - at, "%s%s", on_device ? ", device buffers" : "", registered ? ", registered" : "");
}

/* What makes two rows measurements of the same thing. Options that rows of earlier versions lack are the usual ones there. */
static bool same_tuple(const json_t *a, const json_t *b) {
    static const char *const keys[] = {"kind",  "impl",         "ranks",  "world", "devices", "local_batch",
                                       "model", "global_batch", "data",   "dtype", "scaling", "bucket_bytes",
                                       "clock", "platform",     "device", "link",  "math"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        if ((x == NULL) != (y == NULL) || (x != NULL && !json_equal(x, y))) {
            return false;
        }
    }
    char labels[2][LS_REPORT_TEXT];
    label_of(a, labels[0], sizeof labels[0]);
    label_of(b, labels[1], sizeof labels[1]);
    return strcmp(labels[0], labels[1]) == 0 &&
           json_is_true(json_object_get(a, "graph")) == json_is_true(json_object_get(b, "graph"));
}

static void keep_latest(json_t *rows, json_t *row, size_t *repeated) {
    for (size_t i = 0; i < json_array_size(rows); i++) {
        if (same_tuple(json_array_get(rows, i), row)) {
            json_array_set(rows, i, row);
            (*repeated)++;
            return;
        }
    }
    json_array_append(rows, row);
}

/* The first field of a row that is not as docs/result-format.md says; NULL when all are. */
static const char *bad_field(const json_t *row) {
    static const char *const texts[] = {"impl", "model", "data", "dtype", "platform", "device", "status", "command"};
    static const char *const numbers[] = {"world", "devices", "local_batch", "global_batch"};
    static const char *const statistics[] = {"step_seconds", "samples_per_second", "base_step_seconds", "speedup",
                                             "efficiency"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (!json_is_string(json_object_get(row, texts[i]))) {
            return texts[i];
        }
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (json_integer_value(json_object_get(row, numbers[i])) <= 0) {
            return numbers[i];
        }
    }
    bool sweep = strcmp(ls_report_text(row, "kind"), "sweep") == 0;
    if (sweep && strcmp(ls_report_text(row, "scaling"), "weak") != 0 &&
        strcmp(ls_report_text(row, "scaling"), "strong") != 0) {
        return "scaling";
    }
    for (size_t i = 0; sweep && i < sizeof statistics / sizeof statistics[0]; i++) {
        ls_report_value value;
        bool there = ls_report_statistic(row, statistics[i], &value);
        if (there && !(value.low > 0 && value.low <= value.median && value.median <= value.high)) {
            return statistics[i];
        }
        if (!there && strcmp(ls_report_text(row, "status"), "PASSED") == 0) {
            return statistics[i];
        }
    }
    return NULL;
}

/* A row that was cut, or has another behind it in its line, costs itself alone: a program was killed, or a disk was full. */
static ls_rc take_line(const char *path, size_t number, const char *line, size_t length, ls_report_rows *out) {
    json_error_t error;
    json_t *row = json_loadb(line, length, JSON_REJECT_DUPLICATES, &error);
    if (row == NULL && line[strspn(line, " \t")] == '{' && json_error_code(&error) != json_error_duplicate_key &&
        json_error_code(&error) != json_error_out_of_memory) {
        ls_notice("%s line %zu is left out: it begins like a result row and is broken: %s", path, number, error.text);
        return LS_OK;
    }
    if (row == NULL || !json_is_object(row)) {
        json_decref(row);
        return ls_fail(LS_BAD_INPUT, "%s line %zu is not a result row: %s", path, number,
                       row == NULL ? error.text : "expected a JSON object");
    }
    ls_rc rc = LS_OK;
    if (json_integer_value(json_object_get(row, "schema")) != 1) {
        rc = ls_fail(LS_BAD_INPUT, "%s line %zu: the schema is not 1, the one that this program reads", path, number);
    } else {
        const char *kind = ls_report_text(row, "kind");
        bool sweep = strcmp(kind, "sweep") == 0, verify = strcmp(kind, "verify") == 0;
        const char *bad = sweep || verify ? bad_field(row) : NULL;
        if (bad != NULL) {
            rc = ls_fail(LS_BAD_INPUT, "%s line %zu: field '%s' is missing or not as docs/result-format.md says", path,
                         number, bad);
        } else if (sweep || verify) {
            keep_latest(sweep ? out->sweep : out->verify, row, &out->repeated);
        }
    }
    json_decref(row);
    return rc;
}

static void group_title(const json_t *row, ls_report_group *group) {
    group->weak = strcmp(ls_report_text(row, "scaling"), "weak") == 0;
    size_t batch = (size_t)ls_report_number(row, group->weak ? "local_batch" : "global_batch");
    const char *math = ls_report_text(row, "math"); /* exact needs no words */
    math = strcmp(math, "exact") == 0 ? "" : math;
    char words[64] = "";
    if (math[0] != '\0') {
        bool verified = strcmp(ls_report_text(row, "verification"), "none") != 0;
        snprintf(words, sizeof words, "%.20s math%s: ", math, verified ? "" : ", NOT VERIFIED");
    }
    bool graph = json_is_true(json_object_get(row, "graph")); /* the base's steps are graphs too */
    snprintf(group->title, sizeof group->title, "%s%s%s, %s, %s scaling, batch %zu %s, %s", words,
             graph ? "CUDA graphs: " : "", ls_report_text(row, "model"), ls_report_text(row, "dtype"),
             ls_report_text(row, "scaling"), batch, group->weak ? "a device" : "over all devices",
             ls_report_text(row, "data"));
    char raw[2 * LS_REPORT_TEXT];
    snprintf(raw, sizeof raw, "%s-%s-%s-b%zu-%s-%s%s%s%s", ls_report_text(row, "model"), ls_report_text(row, "dtype"),
             ls_report_text(row, "scaling"), batch, ls_report_text(row, "data"), ls_report_text(row, "platform"),
             math[0] != '\0' ? "-" : "", math, graph ? "-graph" : "");
    for (size_t i = 0; i < sizeof group->key - 1 && raw[i] != '\0'; i++) {
        group->key[i] = (char)(isalnum((unsigned char)raw[i]) ? raw[i] : '-');
    }
}

static ls_report_group *find_group(ls_report_rows *rows, const json_t *row) {
    ls_report_group wanted = {0};
    group_title(row, &wanted);
    for (size_t i = 0; i < rows->count; i++) {
        if (strcmp(rows->groups[i].key, wanted.key) == 0) {
            return &rows->groups[i];
        }
    }
    ls_report_group *grown = realloc(rows->groups, (rows->count + 1) * sizeof rows->groups[0]);
    if (grown == NULL) {
        return NULL;
    }
    rows->groups = grown;
    rows->groups[rows->count] = wanted;
    return &rows->groups[rows->count++];
}

static ls_report_series *find_series(ls_report_group *group, const json_t *row) {
    char label[LS_REPORT_TEXT];
    label_of(row, label, sizeof label);
    for (size_t i = 0; i < group->count; i++) {
        if (strcmp(group->series[i].label, label) == 0) {
            return &group->series[i];
        }
    }
    ls_report_series *grown = realloc(group->series, (group->count + 1) * sizeof group->series[0]);
    if (grown == NULL) {
        return NULL;
    }
    group->series = grown;
    ls_report_series *series = &group->series[group->count++];
    *series = (ls_report_series){0};
    memcpy(series->label, label, sizeof label);
    return series;
}

/* Adds a point at its place by device count. */
static bool add_point(ls_report_series *series, const json_t *row) {
    ls_report_point *grown = realloc(series->points, (series->count + 1) * sizeof series->points[0]);
    if (grown == NULL) {
        return false;
    }
    series->points = grown;
    size_t devices = (size_t)ls_report_number(row, "devices"), at = series->count++;
    for (; at > 0 && series->points[at - 1].devices > devices; at--) {
        series->points[at] = series->points[at - 1];
    }
    series->points[at] = (ls_report_point){devices, json_is_true(json_object_get(row, "oversubscribed")), row};
    return true;
}

static ls_rc group_rows(ls_report_rows *out) {
    size_t index = 0;
    json_t *row = NULL;
    json_array_foreach(out->sweep, index, row) {
        ls_report_value value;
        if (!ls_report_statistic(row, "step_seconds", &value)) {
            continue; /* failed or skipped: in the table, on no plot */
        }
        out->pooled += json_object_get(row, "timed_steps") == NULL;
        ls_report_group *group = find_group(out, row);
        ls_report_series *series = group != NULL ? find_series(group, row) : NULL;
        if (series == NULL || !add_point(series, row)) {
            return ls_fail(LS_DEVICE_FAILED, "out of memory for the points of the report");
        }
    }
    return LS_OK;
}

/* Reads a line with its newline into *line (zero-ended, *room bytes, grown by realloc). *length: 0 at the end of the file, or where
 * it cannot be read (ferror). */
static ls_rc read_line(const char *path, size_t number, FILE *file, char **line, size_t *room, size_t *length) {
    *length = 0;
    for (int c = 0; c != '\n' && (c = getc_unlocked(file)) != EOF;) {
        if (*length == LINE_MOST) { /* such as /dev/zero, which has no end */
            return ls_fail(LS_BAD_INPUT, "'%s' is no result file: line %zu is longer than %d MiB", path, number,
                           LINE_MOST >> 20);
        }
        if (*length + 1 >= *room) {
            size_t more = *room > 0 ? 2 * *room : 4096;
            char *grown = realloc(*line, more);
            if (grown == NULL) {
                return ls_fail(LS_DEVICE_FAILED, "out of memory for line %zu of '%s'", number, path);
            }
            *line = grown;
            *room = more;
        }
        (*line)[(*length)++] = (char)c;
        (*line)[*length] = '\0';
    }
    return LS_OK;
}

static ls_rc read_lines(const char *path, FILE *file, ls_report_rows *out) {
    char *line = NULL;
    size_t room = 0, number = 1, length = 0;
    ls_rc rc = read_line(path, number, file, &line, &room, &length);
    while (rc == LS_OK && length > 0) {
        if (strspn(line, " \t\r\n") < length) {
            rc = take_line(path, number, line, length, out);
        }
        number++;
        rc = rc == LS_OK ? read_line(path, number, file, &line, &room, &length) : rc;
    }
    if (rc == LS_OK && ferror(file)) {
        rc = ls_fail(LS_BAD_INPUT, "cannot read '%s' after line %zu: %s", path, number - 1, strerror(errno));
    }
    free(line);
    return rc;
}

ls_rc ls_report_rows_read(const char *path, ls_report_rows *out) {
    *out = (ls_report_rows){.sweep = json_array(), .verify = json_array()};
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        ls_report_rows_free(out);
        return ls_fail(LS_BAD_INPUT, "cannot read the result file '%s': %s; `lockstep sweep -o FILE` makes one", path,
                       strerror(errno));
    }
    ls_rc rc = read_lines(path, file, out);
    fclose(file);
    if (rc == LS_OK && json_array_size(out->sweep) + json_array_size(out->verify) == 0) {
        rc = ls_fail(LS_BAD_INPUT, "'%s' holds no rows of `lockstep sweep` or `lockstep verify`", path);
    }
    if (rc == LS_OK) {
        rc = group_rows(out);
    }
    if (rc != LS_OK) {
        ls_report_rows_free(out);
    }
    return rc;
}

void ls_report_rows_free(ls_report_rows *rows) {
    for (size_t g = 0; g < rows->count; g++) {
        for (size_t s = 0; s < rows->groups[g].count; s++) {
            free(rows->groups[g].series[s].points);
        }
        free(rows->groups[g].series);
    }
    free(rows->groups);
    json_decref(rows->sweep);
    json_decref(rows->verify);
    *rows = (ls_report_rows){0};
}
