/* The rows of a result file, checked, and grouped into what belongs on one plot. */
#ifndef LS_REPORTS_ROWS_H
#define LS_REPORTS_ROWS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "gpu/base/error.h"

enum { LS_REPORT_TEXT = 256 };

/* One measured point of a series. */
typedef struct ls_report_point {
    size_t devices;
    bool oversubscribed;
    const json_t *row; /* borrowed */
} ls_report_point;

/* Points of one implementation (with its rank kind, bucket cap and other options), by rising device count. */
typedef struct ls_report_series {
    char label[LS_REPORT_TEXT];
    size_t count;
    ls_report_point *points;
} ls_report_series;

/* Series that share model, data, dtype, scaling mode, fixed batch, platform, layer math and graphs: one plot of each kind. */
typedef struct ls_report_group {
    char key[LS_REPORT_TEXT];   /* for file names: letters, digits, '-' */
    char title[LS_REPORT_TEXT]; /* for people */
    bool weak;
    size_t count;
    ls_report_series *series;
} ls_report_group;

typedef struct ls_report_rows {
    json_t *sweep;   /* array: sweep rows, of equal tuples the last one only */
    json_t *verify;  /* array: verify rows, likewise */
    size_t repeated; /* rows of the file that are in neither, since one of an equal tuple follows */
    size_t pooled; /* measured sweep rows of an earlier form: their interval of a step is over steps, not over rounds */
    size_t count;
    ls_report_group *groups;
} ls_report_rows;

/* Reads and checks the file: every line a JSON object with schema 1 and the fields of its kind. One line and LS_BAD_INPUT
 * otherwise, with the line's number. A line that begins a JSON object and is broken is left out, with one line that says so. The
 * file may be a pipe. Owned: ls_report_rows_free. */
ls_rc ls_report_rows_read(const char *path, ls_report_rows *out);
void ls_report_rows_free(ls_report_rows *rows);

/* A text or number field of a row; "" and 0 when null. */
const char *ls_report_text(const json_t *row, const char *key);
double ls_report_number(const json_t *row, const char *key);

/* A statistic of a row ({"median", "low", "high"}); false when it is null. */
typedef struct ls_report_value {
    double median, low, high;
} ls_report_value;
bool ls_report_statistic(const json_t *row, const char *key, ls_report_value *out);

#endif
