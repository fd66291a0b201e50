/* Whether NVIDIA's libraries are those that this program was built for. */
#ifndef LS_GPU_CUDA_VERSIONS_H
#define LS_GPU_CUDA_VERSIONS_H

#include "gpu/base/error.h"

/* The CUDA runtime, NCCL and, where it is linked, cuDNN: each must have the major version of the headers that the program was
 * built with, and be no older. Otherwise one line and LS_DEVICE_FAILED. Looked at once a process. */
ls_rc ls_versions_check(void);

#endif
