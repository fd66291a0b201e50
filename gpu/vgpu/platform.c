/* What gpu/gpu.h says about this platform. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "gpu/vgpu/runtime.h"

const char *ls_platform_name(void) {
    return "vgpu";
}

size_t ls_platform_shared_cores(void) {
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) {
        return 1;
    }
    int count = CPU_COUNT(&cores);
    return count > 0 ? (size_t)count : 1;
}

ls_rc ls_platform_device_count(size_t *count) {
    const vgpu_settings *settings = vgpu_get_settings();
    if (settings->status != cudaSuccess) {
        return LS_BAD_INPUT; /* the line about the environment has been printed */
    }
    *count = (size_t)settings->devices;
    return LS_OK;
}

ls_rc ls_platform_describe(char *text, size_t size) {
    size_t devices = 0;
    LS_TRY(ls_platform_device_count(&devices));
    size_t cores = ls_platform_shared_cores();
    snprintf(text, size, "%zu virtual device%s on %zu core%s", devices, devices == 1 ? "" : "s", cores,
             cores == 1 ? "" : "s");
    return LS_OK;
}

bool ls_platform_memory_is_host(void) {
    return true;
}

bool ls_platform_has_collectives(char *why, size_t size) {
    (void)vgpu_get_settings();
    bool isolated = vgpu_mode.sched == VGPU_ISOLATE;
    if (isolated) {
        snprintf(
            why, size,
            "LOCKSTEP_VGPU_SCHED=isolate runs one operation at a time, and a collective runs on all ranks at once");
    }
    return !isolated;
}

bool ls_platform_wants_poison(void) {
    const char *asked = getenv("LOCKSTEP_POISON");
    (void)vgpu_get_settings();
    return vgpu_mode.guard || (asked != NULL && strcmp(asked, "1") == 0);
}

ls_rc ls_platform_host_access(const void *pointer, size_t bytes, int write) {
    return vgpu_check_host_access(pointer, bytes, write ? VGPU_WRITE : VGPU_READ) == cudaSuccess ? LS_OK
                                                                                                 : LS_DEVICE_FAILED;
}
