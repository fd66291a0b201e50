/* Which device of the host a device of a run is. Usually the one with its number; with --share-devices several devices of a run
 * lie on one of the host, by turns, so that one GPU suffices to verify world sizes above 1. */
#ifndef LS_IMPLS_DEVICES_H
#define LS_IMPLS_DEVICES_H

#include "impls/impl.h"

/* The host's device of device `index` of this host's part of the run. */
ls_rc ls_devices_place(const ls_run *run, size_t index, int *device);

/* Whether impl can run on run->devices devices where `present` are; otherwise why not, in words. */
bool ls_devices_suffice(const ls_run *run, const ls_impl *impl, size_t present, char *why, size_t size);

/* The same as an error: one line and LS_BAD_INPUT. What somebody else's launcher started is left to the ranks, which know
 * how many of them are on their host. */
ls_rc ls_devices_check(const ls_run *run);

#endif
