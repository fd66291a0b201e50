/* Without NVTX's header there are no ranges. */
#include "gpu/range.h"

const char *ls_range_push(const char *name) {
    return name;
}

const char *ls_range_push_numbered(const char *name, uint64_t number) {
    (void)number;
    return name;
}

void ls_range_pop(const char *const *name) {
    (void)name;
}
