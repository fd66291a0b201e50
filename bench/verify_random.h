/* `lockstep verify --random N`: drawn cases of correct code, every one of which must pass. */
#ifndef LS_BENCH_VERIFY_RANDOM_H
#define LS_BENCH_VERIFY_RANDOM_H

#include "impls/options.h"

/* Runs options->random_count cases from options->random_case on, of seed options->run.seed: each is a `lockstep verify` of
 * its own with the options that its line gives, as many side by side as there are cores. Prints a line a case in their order,
 * what a failed one says, and the counts; appends the cases' rows to --json. LS_CHECK_FAILED when a case FAILED, when none
 * PASSED, or when more than 2 of a hundred are MISTRUSTED. */
ls_rc ls_verify_random(const char *program, const ls_options *options);

#endif
