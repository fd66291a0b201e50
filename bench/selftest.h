/* The parts of `lockstep selftest`: verifications by the program lockstep-mutants, each with a fault switched on, and what
 * became of them. */
#ifndef LS_BENCH_SELFTEST_H
#define LS_BENCH_SELFTEST_H

#include <jansson.h>

#include "impls/run.h"
#include "verify/mutants.h"

/* What all of a self-test shares. */
typedef struct ls_selftest {
    char program[LS_PATH_SIZE]; /* lockstep-mutants */
    char folder[LS_PATH_SIZE];  /* private, for what the verifications leave; removed at the end */
    bool quick;                 /* one implementation and one device count a fault */
    const char *json;           /* NULL: none */
    unsigned impls;             /* LS_MUTANT_* that run here: mpi with mpirun, all on as many devices as are tried */
    bool share;                 /* several devices of a run may lie on one of the host (--share-devices) */
} ls_selftest;

/* One `lockstep-mutants verify`, or train, and what it said. */
typedef struct ls_selftest_job {
    const char *mutant;  /* LOCKSTEP_MUTANT; empty: none */
    const char *sched;   /* LOCKSTEP_VGPU_SCHED; NULL: not set */
    const char *sites;   /* LOCKSTEP_MUTANT_SITES; NULL: not set */
    unsigned impls;      /* LS_MUTANT_* */
    const char *model;   /* as --model */
    const char *options; /* of verify, separated by blanks */
    bool train;          /* training as it is done, nothing recorded or waited for between steps; no rows */
    bool copies;         /* LOCKSTEP_VGPU_COPY_ENGINES=1 */
    bool one_case;       /* two devices, ranks as threads where the implementation has them */
    json_t *rows;        /* array of the rows of verify, as far as it came; owned: ls_selftest_jobs_close */
    int status;          /* as of waitpid */
} ls_selftest_job;

/* Runs the jobs, as many at once as there are cores. done, if not NULL, is told how many have ended. Between ls_interrupt_begin and
 * _end: a signal ends them all, and is LS_DEVICE_FAILED without a line. */
ls_rc ls_selftest_jobs_run(const ls_selftest *test, ls_selftest_job *jobs, size_t count, void (*done)(size_t ended));
void ls_selftest_jobs_close(ls_selftest_job *jobs, size_t count);

/* Implementations of impls that run here, under --quick the first of ddp, dp, mpi, single. */
unsigned ls_selftest_impls(const ls_selftest *test, unsigned impls);

/* What became of a fault in one case. */
typedef enum ls_selftest_verdict {
    LS_SELFTEST_CAUGHT = 0,
    LS_SELFTEST_SKIPPED,   /* the case cannot run here */
    LS_SELFTEST_ELSEWHERE, /* a check failed, but not every one that is named */
    LS_SELFTEST_SURVIVED,  /* no check failed */
} ls_selftest_verdict;

const char *ls_selftest_verdict_name(ls_selftest_verdict verdict);

/* Judges a row of verify. by: headings of the checks that failed, separated by blanks; "run" when the run did. */
ls_selftest_verdict ls_selftest_judge(const char *checks, const json_t *row, char *by, size_t size);

/* What became of all. */
typedef struct ls_selftest_sum {
    size_t caught, survived, skipped, waiting;
} ls_selftest_sum;

/* The listed mutants, or `only` one: runs every setting without a fault, which must pass, then with its faults; prints the
 * table and appends rows. */
ls_rc ls_selftest_listed(const ls_selftest *test, const char *only, ls_selftest_sum *sum);

/* Every item of a reduction left out, counted twice, stale, or not reduced, one a step. */
ls_rc ls_selftest_terms(const ls_selftest *test, ls_selftest_sum *sum);

/* Every call of an implementation that orders streams and threads left out, found by LOCKSTEP_VGPU_SCHED=check. */
ls_rc ls_selftest_calls(const ls_selftest *test, ls_selftest_sum *sum);

/* Appends a row {"kind": "selftest", ...} to test->json, if any: takes fields over and frees them. */
ls_rc ls_selftest_row(const ls_selftest *test, json_t *fields);

#endif
