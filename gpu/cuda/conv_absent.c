/* In place of conv.c and conv_fastest.c where cuDNN is missing: the im2col engine computes convolutions. */
#include <stdio.h>

#include "gpu/cuda/math.h"

ls_rc ls_cudnn_attach(ls_math *math) {
    math->cudnn = NULL;
    return LS_OK;
}

void ls_cudnn_detach(ls_math *math) {
    (void)math;
}

void ls_cudnn_describe(char *text, size_t size) {
    (void)snprintf(text, size, "built without cuDNN (convolutions: im2col)");
}

const ls_layer_engine *ls_platform_conv_engine(void) {
    return NULL;
}
