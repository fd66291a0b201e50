/* Chooses among the instruction sets that direct.c was compiled for. */
#include <stdlib.h>
#include <string.h>

#include "gpu/base/error.h"
#include "gpu/vgpu/math/direct.h"

extern const direct_isa direct_baseline;
#ifdef DIRECT_X86
extern const direct_isa direct_avx2;
extern const direct_isa direct_avx512;
#endif

/* The instruction sets that this processor has, best first, NULL at the end. */
static void list_usable(const direct_isa *list[4]) {
    size_t count = 0;
#ifdef DIRECT_X86
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma")) {
        list[count++] = &direct_avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        list[count++] = &direct_avx2;
    }
#endif
    list[count++] = &direct_baseline;
    list[count] = NULL;
}

const direct_isa *direct_isa_select(void) {
    const direct_isa *usable[4];
    list_usable(usable);
    const char *wanted = getenv("LOCKSTEP_VGPU_ISA");
    if (wanted == NULL || wanted[0] == '\0') {
        return usable[0];
    }
    for (size_t i = 0; usable[i] != NULL; i++) {
        if (strcmp(usable[i]->name, wanted) == 0) {
            return usable[i];
        }
    }
    ls_notice(
        "environment: LOCKSTEP_VGPU_ISA is '%s', expected baseline, AVX2 or AVX-512, and one that this processor has; "
        "unset it for its best, %s",
        wanted, usable[0]->name);
    return NULL;
}
