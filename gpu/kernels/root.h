/* The square root of either element type. */
#ifndef LS_GPU_KERNELS_ROOT_H
#define LS_GPU_KERNELS_ROOT_H

#include "gpu/kernels/kernel.h"

LS_DEVICE float ls_root(float x) {
    return sqrtf(x);
}
LS_DEVICE double ls_root(double x) {
    return sqrt(x);
}

#endif
