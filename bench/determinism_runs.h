/* The runs of a determinism matrix: each is made once, however many comparisons it takes part in. */
#ifndef LS_BENCH_DETERMINISM_RUNS_H
#define LS_BENCH_DETERMINISM_RUNS_H

#include <stddef.h>
#include <stdint.h>

#include "gpu/base/error.h"
#include "impls/run.h"

enum { LS_BITS_TEXT = 48 };

/* What a run came to: per rank the hashes of parameters and of the last reduced gradient. */
typedef struct ls_run_bits {
    char *key; /* the command line, and which of the runs with this command it is */
    size_t ranks;
    char (*bits)[LS_BITS_TEXT]; /* [ranks]: "params/gradient" */
    char failure[512];          /* not empty: the run failed, and there are no bits */
} ls_run_bits;

typedef struct ls_run_cache {
    const char *program;
    ls_run_bits **runs; /* owned: ls_run_cache_free */
    size_t count;
} ls_run_cache;

/* The bits of a run; repeat tells the second run of the same command from the first. A run that failed is an answer too;
 * other codes than LS_OK end the command. */
ls_rc ls_run_cache_get(ls_run_cache *cache, const ls_run *run, size_t repeat, const ls_run_bits **out);
void ls_run_cache_free(ls_run_cache *cache);

#endif
