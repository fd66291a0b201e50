/* How a verification is told: the table while it goes on, the failures after it, and a JSON row a case. */
#ifndef LS_BENCH_VERIFY_TABLE_H
#define LS_BENCH_VERIFY_TABLE_H

#include <jansson.h>

#include "bench/verify_plan.h"
#include "verify/check.h"

/* What became of a case. */
typedef struct ls_verify_result {
    ls_status status;
    char reason[512]; /* for all but PASSED: one line */
    bool checked;     /* the run came to its end and verdict is filled */
    ls_verdict verdict;
    char param_hash[32]; /* after the last step; empty: none */
    json_t *counters;    /* owned by whoever made the result; NULL: none */
} ls_verify_result;

void ls_verify_print_head(const ls_options *options, size_t cases);
void ls_verify_print_row(const ls_verify_point *point, const ls_verify_result *result);
/* Place, observed and expected values, likely cause and the reproducing command of a FAILED case. */
void ls_verify_print_failure(const ls_verify_point *point, const ls_verify_result *result);

/* A row of docs/result-format.md. NULL when memory is short. */
json_t *ls_verify_json(const ls_verify_point *point, const ls_verify_result *result);

#endif
