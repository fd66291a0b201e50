#include "bench/micro.h"
ls_rc ls_micro_peers(const ls_micro_options *options) {
    (void)options;
    return ls_fail(LS_BAD_INPUT, "not yet");
}
