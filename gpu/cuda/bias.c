#include "gpu/cuda/bias.h"

ls_rc ls_bias_add(ls_math *math, ls_dtype dtype, cudnnTensorDescriptor_t bias_desc, const void *bias,
                  cudnnTensorDescriptor_t y_desc, void *y) {
    const void *one = ls_scalar_of(&ls_one, dtype);
    LS_CUDNN(cudnnAddTensor(math->cudnn, one, bias_desc, bias, one, y_desc, y));
    return LS_OK;
}

ls_rc ls_bias_grad(ls_math *math, ls_dtype dtype, cudnnTensorDescriptor_t dy_desc, const void *dy,
                   cudnnTensorDescriptor_t bias_desc, void *dbias) {
    LS_CUDNN(cudnnConvolutionBackwardBias(math->cudnn, ls_scalar_of(&ls_one, dtype), dy_desc, dy,
                                          ls_scalar_of(&ls_zero, dtype), bias_desc, dbias));
    return LS_OK;
}
