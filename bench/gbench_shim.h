/* Google Benchmark for C. The .cc behind it is the only C++ of this folder; where the program is built without the library
 * gbench_absent.c stands in, and says so when it is asked to run. */
#ifndef LS_BENCH_GBENCH_SHIM_H
#define LS_BENCH_GBENCH_SHIM_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One measurement under way: so many iterations, decided by the library before the function is called. */
typedef struct ls_gbench_state ls_gbench_state;

typedef enum ls_gbench_clock {
    LS_GBENCH_WALL,   /* wall time between the first and the last ls_gbench_next */
    LS_GBENCH_MANUAL, /* the sum of what is given to ls_gbench_add_seconds */
} ls_gbench_clock;

typedef enum ls_gbench_kind {
    LS_GBENCH_VALUE, /* as it is */
    LS_GBENCH_RATE,  /* value of one iteration; shown a second */
} ls_gbench_kind;

/* run is called once a measurement with argument, which must live until ls_gbench_run returns. name is copied. */
void ls_gbench_register(const char *name, ls_gbench_clock clock, void (*run)(ls_gbench_state *state, void *argument),
                        void *argument);

/* Iterations of this measurement. */
uint64_t ls_gbench_iterations(const ls_gbench_state *state);
/* Goes on to the next `count` iterations; false: all are done. */
bool ls_gbench_next(ls_gbench_state *state, uint64_t count);
/* Time of one iteration under LS_GBENCH_MANUAL. */
void ls_gbench_add_seconds(ls_gbench_state *state, double seconds);
/* A counter of the table and of the JSON. */
void ls_gbench_counter(ls_gbench_state *state, const char *name, ls_gbench_kind kind, double value);
/* Bytes of one iteration: the library's own counter bytes_per_second. */
void ls_gbench_bytes(ls_gbench_state *state, double bytes);
/* The measurement failed: it is shown as an error, and ls_gbench_run returns rc in the end. */
void ls_gbench_fail(ls_gbench_state *state, ls_rc rc, const char *message);

/* A line of the JSON's context. */
void ls_gbench_context(const char *key, const char *value);

/* The library's flags as text on stdout. */
void ls_gbench_print_flags(void);

/* Parses --benchmark_* flags and runs what they select. Unknown words, or a filter that selects nothing: one line and
 * LS_BAD_INPUT. A program built without the library: one line that names the package, LS_BAD_INPUT. */
ls_rc ls_gbench_run(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
