/* Faults of the passes and optimizers that take more than a line (gpu/base/mutant.h); in lockstep-mutants alone. They wait for
 * the stream and compute on the host: slow, but none needs a kernel of its own. */
#ifndef LS_REFERENCE_MUTANT_FAULTS_H
#define LS_REFERENCE_MUTANT_FAULTS_H

#include "reference/layers/layer.h"
#include "reference/optimizer.h"

/* Changes count values of dtype in device memory; change sees them as doubles. */
typedef void (*ls_mutant_change)(double *values, size_t count, const void *argument);
ls_rc ls_mutant_edit(cudaStream_t stream, ls_dtype dtype, void *device, size_t count, ls_mutant_change change,
                     const void *argument);

/* Rounds count values to a type with so many bits of significand and its smallest exponent: TF32 11 and -126, float16 11 and
 * -14, bfloat16 8 and -126. */
ls_rc ls_mutant_round(cudaStream_t stream, ls_dtype dtype, void *device, size_t count, int bits, int least);

/* count values from device memory in new device memory, and their addition to others, which frees it. */
ls_rc ls_mutant_keep(cudaStream_t stream, ls_dtype dtype, const void *device, size_t count, void **kept);
ls_rc ls_mutant_add_kept(cudaStream_t stream, ls_dtype dtype, void *device, size_t count, void *kept);

/* Swaps height and width of a convolution's kernels. */
ls_rc ls_mutant_transpose(cudaStream_t stream, ls_dtype dtype, void *weights, size_t count, size_t kernel);

/* Makes the running variances, which have just got the share `momentum` of a new variance, those of the biased variance over
 * samples values. before: the running variances as they were (ls_mutant_keep), freed. */
ls_rc ls_mutant_biased(cudaStream_t stream, ls_dtype dtype, void *running, size_t channels, void *before,
                       double momentum, double samples);

/* Max-pool's choices over again, the last of equal values in place of the first. */
ls_rc ls_mutant_last_maximum(const ls_layer *layer, const ls_layer_pass *pass);

/* A step of Adam or of RMSprop (neither amsgrad, centered nor momentum) with epsilon under the root. */
ls_rc ls_mutant_adam(const ls_optimizer_options *options, const ls_optimizer_step *step);
ls_rc ls_mutant_rmsprop(const ls_optimizer_options *options, const ls_optimizer_step *step);

#endif
