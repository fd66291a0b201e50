#include "impls/ddp_mean.h"

ls_rc ls_ddp_mean_open(ls_ddp_watch *watch, ls_dtype dtype, double share, ls_ddp_mean *out) {
    float share32 = (float)share;
    void *scalar = dtype == LS_FLOAT64 ? (void *)&share : (void *)&share32;
    *out = (ls_ddp_mean){.open = false};
    LS_TRY(ls_ddp_watch_begin(watch));
    ls_rc rc = ls_ddp_watch_check(
        watch, ncclRedOpCreatePreMulSum(&out->op, scalar, ls_dtype_nccl(dtype), ncclScalarHostImmediate, watch->comm),
        "ncclRedOpCreatePreMulSum", __FILE__, __LINE__);
    ls_ddp_watch_end(watch);
    out->open = rc == LS_OK;
    return rc;
}

void ls_ddp_mean_close(ls_ddp_watch *watch, ls_ddp_mean *mean) {
    if (mean->open && ls_ddp_watch_begin(watch) == LS_OK) {
        (void)ls_ddp_watch_check(watch, ncclRedOpDestroy(mean->op, watch->comm), "ncclRedOpDestroy", __FILE__,
                                 __LINE__);
        ls_ddp_watch_end(watch);
    }
    mean->open = false;
}
