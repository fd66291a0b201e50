/* Inputs as torchvision's transforms give them: float32 arithmetic, each step rounded. */
#include "reference/oracle/oracle.h"

/* Normalize of one value of feature i; a setting of one channel serves all. */
static double normalized(float value, size_t i, ls_shape shape, const ls_normalize *normalize) {
    if (normalize->channels == 0) {
        return (double)value;
    }
    size_t channel = normalize->channels == 1 ? 0 : i / (shape.height * shape.width);
    float centred = value - (float)normalize->mean[channel];
    return (double)(centred / (float)normalize->std[channel]);
}

void ls_oracle_pixels(const uint8_t *pixels, ls_shape shape, const ls_normalize *normalize, double *x) {
    for (size_t i = 0; i < ls_shape_features(shape); i++) {
        x[i] = normalized((float)pixels[i] / 255.0F, i, shape, normalize);
    }
}

void ls_oracle_values(const float *values, ls_shape shape, const ls_normalize *normalize, double *x) {
    for (size_t i = 0; i < ls_shape_features(shape); i++) {
        x[i] = normalized(values[i], i, shape, normalize);
    }
}
