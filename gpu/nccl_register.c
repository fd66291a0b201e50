#include "gpu/nccl_register.h"

#include <stdio.h>

enum { FIRST_VERSION = 21900 }; /* 2.19.0 */

static const char *version_text(int version, char text[16]) {
    (void)snprintf(text, 16, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return text;
}

bool ls_nccl_register_versions(int built, int found, char *why, size_t size) {
    char text[16];
    if (built < FIRST_VERSION) {
        (void)snprintf(why, size, "expected NCCL 2.19 or later, found a program built with NCCL %s: build it again",
                       version_text(built, text));
    } else if (found < FIRST_VERSION) {
        (void)snprintf(why, size, "expected NCCL 2.19 or later, found NCCL %s: install a later one",
                       version_text(found, text));
    }
    return built >= FIRST_VERSION && found >= FIRST_VERSION;
}

bool ls_nccl_register_available(char *why, size_t size) {
    int found = 0;
    (void)ncclGetVersion(&found); /* 0 is refused */
    return ls_nccl_register_versions(NCCL_VERSION_CODE, found, why, size);
}

#if NCCL_VERSION_CODE >= 21900

ncclResult_t ls_nccl_mem_alloc(void **pointer, size_t bytes) {
    return ncclMemAlloc(pointer, bytes);
}

ncclResult_t ls_nccl_mem_free(void *pointer) {
    return ncclMemFree(pointer);
}

ncclResult_t ls_nccl_register(ncclComm_t comm, void *memory, size_t bytes, void **handle) {
    return ncclCommRegister(comm, memory, bytes, handle);
}

ncclResult_t ls_nccl_deregister(ncclComm_t comm, void *handle) {
    return ncclCommDeregister(comm, handle);
}

#else

ncclResult_t ls_nccl_mem_alloc(void **pointer, size_t bytes) {
    (void)pointer, (void)bytes;
    return ncclInvalidUsage;
}

ncclResult_t ls_nccl_mem_free(void *pointer) {
    (void)pointer;
    return ncclInvalidUsage;
}

ncclResult_t ls_nccl_register(ncclComm_t comm, void *memory, size_t bytes, void **handle) {
    (void)comm, (void)memory, (void)bytes, (void)handle;
    return ncclInvalidUsage;
}

ncclResult_t ls_nccl_deregister(ncclComm_t comm, void *handle) {
    (void)comm, (void)handle;
    return ncclInvalidUsage;
}

#endif
