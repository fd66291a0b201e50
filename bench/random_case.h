/* A drawn case of a verification: one run of correct code. */
#ifndef LS_BENCH_RANDOM_CASE_H
#define LS_BENCH_RANDOM_CASE_H

#include <stddef.h>
#include <stdint.h>

#include "impls/run.h"

/* Case `index` of a seed, a function of these and of the devices present alone: implementation, 1 to 8 devices, network, data
 * set, batch, dtype, bucket cap, loss, optimizer and the rest. At least 15 of a hundred are mpi. Every such run is one that
 * `lockstep verify` takes as its options say it. */
void ls_random_case_draw(uint64_t seed, uint64_t index, size_t devices_present, ls_run *out);

#endif
