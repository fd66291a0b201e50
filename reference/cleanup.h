/* Clean-up that goes on after a failure. */
#ifndef LS_REFERENCE_CLEANUP_H
#define LS_REFERENCE_CLEANUP_H

#include "gpu/gpu.h"

/* Runs a CUDA call; prints its failure only when rc, an ls_rc variable, is still LS_OK: one broken device is one line. */
#define LS_CLOSE(rc, call)                                                     \
    do {                                                                       \
        cudaError_t ls_close_status_ = (call);                                 \
        if ((rc) == LS_OK) {                                                   \
            (rc) = ls_cuda_check(ls_close_status_, #call, __FILE__, __LINE__); \
        }                                                                      \
    } while (0)

#endif
