/* Ranges: names for what the host is doing, which a profiler shows above what it enqueued (docs/cuda.md, Profiling). They are
 * NVTX's, in the domain "lockstep", and nest within a thread. Without a profiler one is a call and a test. */
#ifndef LS_GPU_RANGE_H
#define LS_GPU_RANGE_H

#include <stddef.h>
#include <stdint.h>

/* A range from here to the end of the block, whichever way that is left. name: a string constant; a number, such as that of a
 * step or a bucket, goes apart, so that a profiler can sum up ranges of one name. */
#define LS_RANGE(name)                  LS_RANGE_UNTIL_END_(ls_range_push(name), __LINE__)
#define LS_RANGE_NUMBERED(name, number) LS_RANGE_UNTIL_END_(ls_range_push_numbered(name, number), __LINE__)

/* For the macros: begins a range of the calling thread and gives back its name; ends its innermost one. */
const char *ls_range_push(const char *name);
const char *ls_range_push_numbered(const char *name, uint64_t number);
void ls_range_pop(const char *const *name);

#define LS_RANGE_UNTIL_END_(push, line) LS_RANGE_UNTIL_END_AT_(push, line)
#define LS_RANGE_UNTIL_END_AT_(push, line) \
    const char *const ls_range_##line __attribute__((cleanup(ls_range_pop), unused)) = (push)

#endif
