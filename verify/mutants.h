/* The mutants: faults that people ship in data-parallel code, each switched on by name in the program lockstep-mutants
 * (gpu/base/mutant.h), with the checks that must find it. A new one is a site in the code and a line in verify/mutants.c. */
#ifndef LS_VERIFY_MUTANTS_H
#define LS_VERIFY_MUTANTS_H

#include <stdbool.h>
#include <stddef.h>

/* Implementations in which a fault can be made. */
enum {
    LS_MUTANT_SINGLE = 1u << 0,
    LS_MUTANT_DP = 1u << 1,
    LS_MUTANT_DDP = 1u << 2, /* ranks as threads and as processes */
    LS_MUTANT_MPI = 1u << 3,
};

/* A fault under certain settings. Lines of the same name are one mutant. */
typedef struct ls_mutant {
    const char *name;    /* what LOCKSTEP_MUTANT is set to */
    const char *fault;   /* its number: a fault may have several mutants; "-": none */
    const char *summary; /* what is wrong */
    const char
        *checks; /* headings of ls_checks, separated by blanks, which must all fail. oracle: float32 or float64, that of
                          * the case; run: the run itself fails */
    unsigned impls;
    const char *model;   /* the network that shows it */
    const char *options; /* of `lockstep verify`, separated by blanks, after the usual ones (bench/selftest_jobs.c) */
    const char *waits;   /* not NULL: it cannot be made yet, for want of this */
} ls_mutant;

/* Ended by a NULL name. */
extern const ls_mutant ls_mutants[];

/* Whether `name` is among the words of `list`, which blanks separate. */
bool ls_mutant_names(const char *list, const char *name);

#endif
