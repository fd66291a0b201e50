/* The parts of `lockstep micro`. */
#ifndef LS_BENCH_MICRO_MICRO_H
#define LS_BENCH_MICRO_MICRO_H

#include "bench/micro/crew.h"
#include "gpu/base/error.h"

typedef struct ls_micro_options {
    size_t devices; /* ranks of a collective */
    ls_micro_clock clock;
    bool kinds[LS_CREW_KINDS]; /* of ranks, where an implementation has the choice; asked for or by default */
    const char *json;          /* result rows; NULL: none */

    /* tables of collectives */
    size_t collective;                       /* index in ls_micro_collectives; SIZE_MAX: no table was asked for */
    size_t min_bytes, max_bytes, step_bytes; /* -b -e -i; step 0: by factor */
    size_t factor;                           /* -f */
    size_t iterations, warmup;               /* -n -w */
    size_t type, redop;                      /* -d -o; SIZE_MAX: all */
    size_t root;                             /* -r */
    bool check;                              /* -c */

    /* peers */
    bool peers;
    size_t restarts, rounds;
    const char *only; /* rows whose name has this in it; NULL: all */
} ls_micro_options;

/* The table of a collective in nccl-tests' columns, for each kind of rank. Wrong elements: LS_CHECK_FAILED. */
ls_rc ls_micro_table(const ls_micro_options *options);

/* Ratios to peers and roofs, each from turns of one run. */
ls_rc ls_micro_peers(const ls_micro_options *options);

/* Registers every benchmark with the library: the families of bench/micro/families.c. What they keep is freed by
 * ls_micro_benchmarks_end. */
ls_rc ls_micro_benchmarks(const ls_micro_options *options);
void ls_micro_benchmarks_end(void);

/* A family of benchmarks. */
typedef struct ls_micro_family {
    const char *name;
    ls_rc (*add)(const ls_micro_options *options);
    void (*end)(void); /* NULL: it keeps nothing */
} ls_micro_family;
extern const ls_micro_family ls_micro_families[]; /* ended by a NULL name */

ls_rc ls_micro_add_kernels(const ls_micro_options *options);
void ls_micro_end_kernels(void);
ls_rc ls_micro_add_layers(const ls_micro_options *options);
void ls_micro_end_layers(void);
ls_rc ls_micro_add_steps(const ls_micro_options *options);
void ls_micro_end_steps(void);
ls_rc ls_micro_add_collectives(const ls_micro_options *options);
void ls_micro_end_collectives(void);

/* The job of one collective call. */
ls_micro_job ls_micro_collective_job(const ls_micro_options *options, ls_crew_kind kind, size_t collective, size_t type,
                                     size_t redop, size_t bytes, bool in_place);

/* Median, sorting the samples. */
double ls_micro_median(double *samples, size_t count);

#endif
