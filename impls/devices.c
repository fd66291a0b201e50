#include "impls/devices.h"

#include <stdio.h>

#include "impls/rank.h"

ls_rc ls_devices_place(const ls_run *run, size_t index, int *device) {
    *device = (int)index;
    if (run->share_devices) {
        size_t present = 0;
        LS_TRY(ls_platform_device_count(&present));
        *device = (int)(index % present);
    }
    return LS_OK;
}

bool ls_devices_suffice(const ls_run *run, const ls_impl *impl, size_t present, char *why, size_t size) {
    bool can_share = (impl->capabilities & LS_CAP_SHARED_DEVICES) != 0;
    why[0] = '\0';
    if (run->devices <= present || (run->share_devices && can_share)) {
        return true;
    }
    if (run->share_devices) {
        (void)snprintf(
            why, size,
            "%zu ranks of %s on %zu device%s: NCCL refuses two ranks on one GPU; share devices with dp or mpi",
            run->devices, impl->name, present, present == 1 ? "" : "s");
    } else {
        (void)snprintf(why, size, "expected at most %zu, the devices present, found %zu%s", present, run->devices,
                       can_share ? "; --share-devices puts several on one" : "");
    }
    return false;
}

ls_rc ls_devices_check(const ls_run *run) {
    size_t present = 0;
    char why[256];
    const ls_impl *impl = ls_impl_find(run->impl);
    LS_TRY(ls_platform_device_count(&present));
    if (impl == NULL || ls_rank_started_outside(run) || ls_devices_suffice(run, impl, present, why, sizeof why)) {
        return LS_OK;
    }
    return ls_fail(LS_BAD_INPUT, "--devices: %s", why);
}
