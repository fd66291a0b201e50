/* How inputs are normalised before they enter a network: torchvision's Normalize, a mean and a standard deviation for each
 * channel. Plain data. */
#ifndef LS_REFERENCE_NORMALIZE_H
#define LS_REFERENCE_NORMALIZE_H

#include <stddef.h>

enum { LS_NORMALIZE_MAX_CHANNELS = 16 };

/* channels 0: inputs stay as they are (pixels scaled to 0..1 only); 1: mean[0] and std[0] for every channel of an input;
 * else one of each for each channel. Unused entries are 0, so that equal settings are equal bytes. std is above 0. */
typedef struct ls_normalize {
    size_t channels;
    double mean[LS_NORMALIZE_MAX_CHANNELS];
    double std[LS_NORMALIZE_MAX_CHANNELS];
} ls_normalize;

/* As --normalize takes it: "none", "0.1307,0.3081" or "M1/M2/M3,S1/S2/S3", with every digit. Cut off where size does not do. */
void ls_normalize_format(const ls_normalize *normalize, char *text, size_t size);

#endif
