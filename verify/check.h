/* The checks of a case as a table. A new check is one file verify/check_<name>.c and one line in verify/checks.c. */
#ifndef LS_VERIFY_CHECK_H
#define LS_VERIFY_CHECK_H

#include "verify/case.h"
#include "verify/oracle_cache.h"

/* Ordered by how much they matter: a case is the worst of its checks. */
typedef enum ls_status { LS_SKIPPED = 0, LS_PASSED, LS_MISTRUSTED, LS_FAILED } ls_status;

const char *ls_status_name(ls_status status);

/* What a check found. The observed value that lies closest to, or furthest beyond, its bound. */
typedef struct ls_finding {
    ls_status status;
    double observed, bound; /* NaN: none */
    char reason[256];       /* SKIPPED, MISTRUSTED: why */
    char detail[512];       /* FAILED: the first place that is wrong: step, tensor, element, ranks, hex floats */
    char cause[256];        /* FAILED: the likely cause, or empty */
    char tensors[1024];     /* FAILED: each tensor that differs, the scale that fits and a verdict, or empty */
} ls_finding;

/* The error of `single` on the same global batches against the same oracle, per step and tensor, to scale float32 bounds
 * by. Arrays [steps][tensors], owned: ls_baseline_close. */
typedef struct ls_baseline {
    size_t steps, tensors;
    double *absolute_l2, *absolute_max; /* ||g - oracle||, max|g - oracle| */
    double *relative_l2;                /* ||g - oracle|| / ||oracle|| */
    double *relative_max;               /* max|g - oracle| / max|oracle| */
} ls_baseline;

typedef struct ls_check_input {
    const ls_case *c;
    ls_oracle_cache *oracle;
    const ls_baseline *baseline; /* NULL: none that can be trusted, or this case is `single` itself */
} ls_check_input;

typedef struct ls_check {
    int layer; /* of docs/verification.md, 0: the inputs */
    const char *name;
    const char *heading;                                            /* of its column in a table */
    ls_rc (*run)(const ls_check_input *input, ls_finding *finding); /* other than LS_OK: no verdict (no memory) */
} ls_check;

/* Ended by a NULL name. */
extern const ls_check ls_checks[];
enum { LS_MAX_CHECKS = 16 };

ls_rc ls_check_samples(const ls_check_input *input, ls_finding *finding);
ls_rc ls_check_inputs(const ls_check_input *input, ls_finding *finding);
ls_rc ls_check_initial(const ls_check_input *input, ls_finding *finding);
ls_rc ls_check_masks(const ls_check_input *input, ls_finding *finding);
ls_rc ls_check_bits(const ls_check_input *input, ls_finding *finding);
ls_rc ls_check_protocol(const ls_check_input *input, ls_finding *finding);
ls_rc ls_check_reduction(const ls_check_input *input, ls_finding *finding);
ls_rc ls_check_float64(const ls_check_input *input, ls_finding *finding);
ls_rc ls_check_float32(const ls_check_input *input, ls_finding *finding);
ls_rc ls_check_exact(const ls_check_input *input, ls_finding *finding);
ls_rc ls_check_update(const ls_check_input *input, ls_finding *finding);
ls_rc ls_check_trajectory(const ls_check_input *input, ls_finding *finding);
ls_rc ls_check_buffers(const ls_check_input *input, ls_finding *finding);

/* The verdict over a case. */
typedef struct ls_verdict {
    ls_status status;
    size_t count;
    ls_finding findings[LS_MAX_CHECKS]; /* in the order of ls_checks */
    size_t decisive;                    /* index of the finding that made the status */
} ls_verdict;

ls_rc ls_case_verify(const ls_check_input *input, ls_verdict *out);

/* Fills a baseline from a case of `single`. */
ls_rc ls_baseline_measure(const ls_check_input *input, ls_baseline *out);
void ls_baseline_close(ls_baseline *baseline);

/* For checks: enters a value with its bound; keeps the worst. False when it lies beyond the bound. */
bool ls_finding_measure(ls_finding *finding, double observed, double bound);
/* FAILED with a detail; the first one stays. */
void ls_finding_fail(ls_finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ls_finding_skip(ls_finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ls_finding_mistrust(ls_finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
