#include "verify/mutants.h"

#include <string.h>

#define RANKS  (LS_MUTANT_DDP | LS_MUTANT_MPI)
#define MANY   (LS_MUTANT_DP | RANKS)
#define ALL    (LS_MUTANT_SINGLE | MANY)
#define SINGLE LS_MUTANT_SINGLE
#define DP     LS_MUTANT_DP
#define DDP    LS_MUTANT_DDP
#define MPI    LS_MUTANT_MPI

/* Small networks: a case is judged in some 20 ms. */
#define PLAIN   "conv 2 k5 s3; maxpool 2; relu; flatten; linear 10"
#define TIES    "conv 2 k5 s3; relu; maxpool 2; flatten; linear 10" /* windows of zeros */
#define DROPOUT "conv 2 k5 s3; relu; maxpool 2; flatten; dropout 0.5; linear 10"
#define NORM    "conv 2 k5 s3; batchnorm; relu; avgpool 2; flatten; linear 10"
#define EQUAL   "avgpool 7; flatten; linear 16 nobias; linear 16 nobias; linear 10" /* the last two buckets: as large */
#define EXACT   "exact"                                                             /* float32 without a rounding */

#define FLOAT64  "--dtype float64"
#define ADAPTIVE "--eps 0.1 --weight-decay 0.1 " FLOAT64

/* Races - a bucket used again while it is in flight (M45), a rank stale for want of a wait (M13) - are among the generated
 * faults: bench/selftest_calls.c leaves out every call that prevents one. */
/* clang-format off */
const ls_mutant ls_mutants[] = {
    {"no_division", "M1", "gradients are summed, not divided by the world size", "reduction oracle", RANKS, PLAIN, "", NULL},
    {"divided_twice", "M2", "divided by the world size twice", "reduction oracle", RANKS, PLAIN, "", NULL},
    {"sum_divided", "M2", "DataParallel's sum is divided, though its loss is a mean already", "reduction oracle", DP, PLAIN, "", NULL},
    {"divided_by_one_less", "M3", "divided by the world size less one", "reduction oracle", RANKS, PLAIN, "", NULL},
    {"last_bucket_skipped", "M4", "the last bucket is not reduced", "bits protocol oracle", RANKS, PLAIN, "", NULL},
    {"bias_left_local", "M5", "the last tensor alone is not reduced", "bits oracle", RANKS, PLAIN, "", NULL},
    {"bias_left_local", "M5", "the last tensor alone is not reduced", "reduction oracle", DP, PLAIN, "", NULL},
    {"unpack_shifted", "M8", "a reduced bucket is unpacked one element further on", "reduction oracle", MANY, PLAIN, "", NULL},
    {"taps_transposed", "M9", "one rank has height and width of a kernel swapped", "oracle", MANY, PLAIN, "", NULL},
    {"rank_dropped", "M10", "the last rank is missing in the sum", "reduction oracle", MANY, PLAIN, "", NULL},
    {"rank_twice", "M12", "the last rank counts twice", "reduction oracle", MANY, PLAIN, "", NULL},
    {"rank_twice", "M12", "the last rank counts twice, of exact inputs", "exact", RANKS, EXACT, "", NULL},
    {"rank_stale", "M13", "the last rank takes part with its gradient of the step before", "reduction oracle", MANY, PLAIN, "", NULL},
    {"shards_overlap", "M15", "a rank starts with a sample of the rank before it", "samples", RANKS, PLAIN, "", NULL},
    {"chunks_overlap", "M15", "a device computes on a sample of the device before it", "inputs oracle", DP, PLAIN, "", NULL},
    {"sample_dropped", "M16", "the last rank leaves a sample out", "samples", ALL, PLAIN, "", NULL},
    {"label_wrong", "M17", "a wrong label in each batch of the last rank", "inputs oracle", ALL, PLAIN, "", NULL},
    {"pixel_off", "M19", "a pixel off by 1/255 in each batch of the last rank", "inputs oracle", ALL, PLAIN, "", NULL},
    {"deviation_off", "M20", "inputs normalised by 0.3082 in place of 0.3081", "inputs oracle", ALL, PLAIN, "--normalize 0.1307,0.3081", NULL},
    {"no_broadcast", "M22", "each rank starts from initial values of its own", "bits initial", RANKS, PLAIN, "", NULL},
    {"parameters_not_copied", "M22", "a device never gets the parameters", "oracle", DP, PLAIN, "", NULL},
    {"drift_1e_3", "M23", "a rank's parameters drift by 1e-3 a step", "bits", RANKS, PLAIN, "", NULL},
    {"drift_1e_3", "M23", "a device's parameters are off by 1e-3", "oracle", DP, PLAIN, "", NULL},
    {"drift_1e_5", "M24", "a rank's parameters drift by 1e-5 a step", "bits", RANKS, PLAIN, "", NULL},
    {"drift_1e_5", "M24", "a device's parameters are off by 1e-5", "oracle", DP, PLAIN, FLOAT64, NULL},
    {"drift_1e_6", "M25", "a rank's parameters drift by 1e-6 a step", "bits", RANKS, PLAIN, "", NULL},
    {"drift_1e_6", "M25", "a device's parameters are off by 1e-6", "oracle", DP, PLAIN, FLOAT64, NULL},
    {"drift_1e_6", "M25", "a device's parameters are off by 1e-6", "exact", DP, EXACT, "--loss mse", NULL},
    {"gradient_not_zeroed", "M26", "gradients are added to those of the step before", "oracle", ALL, PLAIN, "", NULL},
    {"mean_of_means", "M27", "the mean of the devices' means, of 4, 4, 4 and 3 samples", "oracle", DP, PLAIN, "--global-batch 15", NULL},
    {"mean_of_means", "M28", "the mean of the devices' means, of 4, 4, 4 and 1 samples", "oracle", DP, PLAIN, "--global-batch 13", NULL},
    {"idle_device_averaged", "M30", "a device without samples contributes 0/0", "reduction oracle", DP, PLAIN, "--global-batch 1", NULL},
    {"padding_repeats_last", "M31", "shards are padded with the last sample, not from the start", "samples", RANKS, PLAIN, "--data synthetic:23", NULL},
    {"low_precision_sum", "M33", "float16 is summed before it is divided, and overflows", "oracle", RANKS, PLAIN, "", "gradient compression"},
    {"silent_float16", "M34", "gradients travel as float16 in float32 mode", "reduction oracle", MANY, PLAIN, "", NULL},
    {"silent_bfloat16", "M34", "gradients travel as bfloat16 in float32 mode", "reduction oracle", MANY, PLAIN, "", NULL},
    {"silent_bfloat16", "M34", "gradients travel as bfloat16 in float32 mode", "reduction exact", MANY, EXACT, "--loss mse", NULL},
    {"silent_tf32", "M35", "layers round their inputs to TF32", "oracle", ALL, PLAIN, "", NULL},
    {"local_statistics", "M36", "batchnorm normalises by a rank's own statistics where all ranks' are claimed", "oracle", MANY, NORM, "", "synchronised batchnorm"},
    {"running_variance_biased", "M37", "running variances are biased", "buffers", ALL, NORM, "", NULL},
    {"buffers_not_broadcast", "M37", "each rank keeps running statistics of its own", "buffers", RANKS, NORM, "", NULL},
    {"momentum_lost", "M38", "a rank loses its momentum buffer", "bits", RANKS, PLAIN, "--momentum 0.9", NULL},
    {"first_step_dampened", "M38", "the first step's momentum buffer is dampened", "update trajectory", ALL, PLAIN, "--momentum 0.9 --dampening 0.5", NULL},
    {"eps_under_root", "M39", "Adam's epsilon stands under the root", "update trajectory", ALL, PLAIN, "--optimizer adam " ADAPTIVE, NULL},
    {"eps_under_root", "M39", "RMSprop's epsilon stands under the root", "update trajectory", ALL, PLAIN, "--optimizer rmsprop " ADAPTIVE, NULL},
    {"decay_coupled", "M39", "AdamW's weight decay goes through the moments", "update trajectory", ALL, PLAIN, "--optimizer adamw " ADAPTIVE, NULL},
    {"clipped_before_reduction", "M40", "gradients are clipped before they are reduced", "oracle", RANKS, PLAIN, "", "gradient clipping"},
    {"accumulation_not_divided", "M41", "accumulated gradients are not divided by their number", "oracle", RANKS, PLAIN, "", "gradient accumulation"},
    {"bucket_order_differs", "M42", "a rank reduces two buckets of the same size in another order", "bits reduction oracle", RANKS, EQUAL, "", NULL},
    {"cap_ignored", "M42", "one bucket holds everything, whatever cap was asked for", "protocol", RANKS, PLAIN, "", NULL},
    {"count_differs", "M43", "a rank reduces one element less", "run", RANKS, PLAIN, "", NULL},
    {"type_differs", "M43", "a rank reduces another type", "run", DDP, PLAIN, "", NULL},
    {"first_chunk_only", "M44", "of a reduction in several calls only the first is made", "bits oracle", MPI, PLAIN, "", NULL},
    {"tie_takes_last", "M48", "max-pool takes the last of equal values", "oracle", ALL, TIES, "", NULL},
    {"mean_over_one_more", "M50", "a loss that all share divides by one sample too many", "oracle", ALL, PLAIN, "", NULL},
    {"relu_lets_through", "M50", "a relu that all share lets every gradient through", "oracle", ALL, PLAIN, "", NULL},
    {"masks_of_one_rank", "-", "dropout's masks do not depend on the rank", "masks", MANY, DROPOUT, "", NULL},
    {"masks_of_one_step", "-", "dropout's masks do not depend on the step", "masks", ALL, DROPOUT, "", NULL},
    {"weight_decay_forgotten", "-", "weight decay has no effect", "update trajectory", ALL, PLAIN, "--weight-decay 0.1", NULL},
    {NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL},
};
/* clang-format on */

bool ls_mutant_names(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; *at != '\0'; at += strspn(at, " ")) {
        size_t word = strcspn(at, " ");
        if (word == length && strncmp(at, name, word) == 0) {
            return true;
        }
        at += word;
    }
    return false;
}
