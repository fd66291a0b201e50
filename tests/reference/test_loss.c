/* Losses and their gradients against PyTorch's, from the device and from the oracle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/kernels/kernels.h"
#include "gpu/layer_math.h"
#include "reference/loss.h"
#include "reference/oracle/oracle.h"
#include "tests/golden/losses.h"

#define OK(call)      assert_int_equal((call), LS_OK)
#define CUDA_OK(call) assert_int_equal((call), cudaSuccess)

enum { VALUES = GOLDEN_BATCH * GOLDEN_OUTPUTS };

static void *device_copy(const void *host, size_t bytes) {
    void *memory = NULL;
    CUDA_OK(cudaMalloc(&memory, bytes));
    CUDA_OK(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice));
    CUDA_OK(cudaStreamSynchronize(0)); /* it may only have been staged, and a loss's stream need not wait for it */
    return memory;
}

/* The golden outputs in the platform's layout and dtype, on the device. */
static void *device_outputs(ls_dtype dtype) {
    float narrow[VALUES];
    for (size_t i = 0; i < VALUES; i++) {
        narrow[i] = (float)(&golden_outputs[0][0])[i];
    }
    size_t size = ls_dtype_size(dtype);
    void *rows = device_copy(dtype == LS_FLOAT64 ? (const void *)golden_outputs : narrow, VALUES * size);
    void *laid = NULL;
    CUDA_OK(cudaMalloc(&laid, ls_activation_count(GOLDEN_BATCH, GOLDEN_OUTPUTS) * size));
    CUDA_OK(ls_kernel_to_lanes(0, size, ls_lanes(), GOLDEN_BATCH, GOLDEN_OUTPUTS, rows, laid));
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaFree(rows));
    return laid;
}

static void read_gradient(ls_dtype dtype, const void *laid, double *out) {
    size_t size = ls_dtype_size(dtype);
    float narrow[VALUES];
    void *rows = NULL;
    CUDA_OK(cudaMalloc(&rows, VALUES * size));
    CUDA_OK(ls_kernel_from_lanes(0, size, ls_lanes(), GOLDEN_BATCH, GOLDEN_OUTPUTS, laid, rows));
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemcpy(dtype == LS_FLOAT64 ? (void *)out : narrow, rows, VALUES * size, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < VALUES && dtype == LS_FLOAT32; i++) {
        out[i] = (double)narrow[i];
    }
    CUDA_OK(cudaFree(rows));
}

/* Outputs of up to 4, so losses of up to 60 and gradients of up to 10: some ten roundings of such numbers. */
static void check_device(const golden_loss *golden, ls_dtype dtype, double bound) {
    cudaStream_t stream = NULL;
    ls_loss *loss = NULL;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(ls_loss_open(&golden->options, dtype, GOLDEN_OUTPUTS, GOLDEN_BATCH, stream, &loss));
    void *outputs = device_outputs(dtype);
    void *gradient = device_outputs(dtype);
    int32_t *labels = device_copy(golden_labels, sizeof golden_labels);
    float *targets = golden->targets ? device_copy(golden_targets, sizeof golden_targets) : NULL;
    double value = 0, again = 0, found[VALUES];
    OK(ls_loss_compute(loss, ls_lanes(), GOLDEN_BATCH, outputs, labels, targets, GOLDEN_BATCH, gradient));
    OK(ls_loss_read(loss, &value));
    read_gradient(dtype, gradient, found);
    assert_true(fabs(value - golden->value) <= bound * fmax(1, fabs(golden->value)));
    for (size_t i = 0; i < VALUES; i++) {
        assert_true(fabs(found[i] - (&golden->gradient[0][0])[i]) <= 10 * bound);
    }
    OK(ls_loss_compute(loss, ls_lanes(), GOLDEN_BATCH, outputs, labels, targets, GOLDEN_BATCH, NULL));
    OK(ls_loss_read(loss, &again)); /* without a gradient, as an evaluation */
    assert_true(again == value);
    CUDA_OK(cudaFree(outputs));
    CUDA_OK(cudaFree(gradient));
    CUDA_OK(cudaFree(labels));
    CUDA_OK(cudaFree(targets));
    ls_loss_close(loss);
    CUDA_OK(cudaStreamDestroy(stream));
}

static void losses_equal_pytorch(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof golden_losses / sizeof golden_losses[0]; c++) {
        check_device(&golden_losses[c], LS_FLOAT64, 10 * 0x1p-53);
        check_device(&golden_losses[c], LS_FLOAT32, 10 * 0x1p-24);
    }
}

/* As PyTorch prints them: 1.06710744 and, smoothed by 0.1, 1.11710739. */
static void known_cross_entropies(void **state) {
    (void)state;
    const double z[2][3] = {{2, 0, -1}, {.5, 1.5, 0}};
    const double expected[2][2] = {{1.06710744, 1.11710739}, {2.13421488, 2.23421478}};
    const int32_t y[2] = {0, 2};
    size_t count = ls_activation_count(2, 3);
    double *laid = calloc(count, sizeof *laid);
    assert_non_null(laid);
    for (size_t n = 0; n < 2; n++) {
        for (size_t c = 0; c < 3; c++) {
            laid[n / ls_lanes() * 3 * ls_lanes() + c * ls_lanes() + n % ls_lanes()] = z[n][c];
        }
    }
    double *logits = device_copy(laid, count * sizeof *laid);
    int32_t *labels = device_copy(y, sizeof y);
    for (size_t reduction = 0; reduction < 2; reduction++) {
        for (size_t smooth = 0; smooth < 2; smooth++) {
            ls_loss_options options = {.reduction = reduction == 0 ? LS_LOSS_MEAN : LS_LOSS_SUM,
                                       .label_smoothing = smooth == 0 ? 0 : .1};
            ls_loss *loss = NULL;
            double value = 0;
            OK(ls_loss_open(&options, LS_FLOAT64, 3, 2, NULL, &loss));
            OK(ls_loss_compute(loss, ls_lanes(), 2, logits, labels, NULL, 2, NULL));
            OK(ls_loss_read(loss, &value));
            assert_true(fabs(value - expected[reduction][smooth]) <= 0x1p-22); /* known in float32 */
            ls_loss_close(loss);
        }
    }
    CUDA_OK(cudaFree(logits));
    CUDA_OK(cudaFree(labels));
    free(laid);
}

/* Without samples there is no loss; without an error the root has no derivative, as in PyTorch. */
static void edges(void **state) {
    (void)state;
    ls_loss *loss = NULL;
    double value = 7;
    OK(ls_loss_open(&(ls_loss_options){.kind = LS_LOSS_RMSE}, LS_FLOAT64, 1, 1, NULL, &loss));
    OK(ls_loss_compute(loss, ls_lanes(), 0, NULL, NULL, NULL, 1, NULL));
    OK(ls_loss_read(loss, &value));
    assert_true(value == 0);
    double *zeros = calloc(ls_activation_count(1, 1), sizeof *zeros);
    const float target = 0;
    assert_non_null(zeros);
    double *y = device_copy(zeros, ls_activation_count(1, 1) * sizeof *zeros);
    float *targets = device_copy(&target, sizeof target);
    OK(ls_loss_compute(loss, ls_lanes(), 1, y, NULL, targets, 1, y));
    OK(ls_loss_read(loss, &value));
    assert_true(value == 0);
    CUDA_OK(cudaMemcpy(zeros, y, sizeof *zeros, cudaMemcpyDeviceToHost));
    assert_true(isnan(zeros[0]));
    free(zeros);
    CUDA_OK(cudaFree(y));
    CUDA_OK(cudaFree(targets));
    ls_loss_close(loss);
}

/* The sum of the oracle's terms over samples [first, first + count) of the golden batch, and in bias the gradient of that sum
 * divided by denominator with respect to the bias of a layer that passes its inputs on: the sum of the samples' rows. */
static double oracle_terms(const ls_model *model, ls_oracle *oracle, const golden_loss *golden, size_t first,
                           size_t count, double denominator, double bias[GOLDEN_OUTPUTS]) {
    double params[16] = {0}, grads[16] = {0}, x[VALUES], targets[VALUES], sum = 0;
    for (size_t c = 0; c < GOLDEN_OUTPUTS; c++) {
        params[model->params[0].offset + c * GOLDEN_OUTPUTS + c] = 1;
    }
    memcpy(x, golden_outputs, sizeof x);
    for (size_t i = 0; i < VALUES; i++) {
        targets[i] = (double)(&golden_targets[0][0])[i];
    }
    ls_oracle_input input = {
        .params = params,
        .count = count,
        .x = x + first * GOLDEN_OUTPUTS,
        .labels = golden_labels + first,
        .targets = golden->targets ? targets + first * GOLDEN_OUTPUTS : NULL,
        .loss = {.sum = golden->options.reduction == LS_LOSS_SUM, .label_smoothing = golden->options.label_smoothing},
        .denominator = denominator};
    input.loss.kind = golden->options.kind == LS_LOSS_CROSS_ENTROPY ? LS_ORACLE_CROSS_ENTROPY : LS_ORACLE_MSE;
    assert_int_equal(ls_oracle_gradient(oracle, &input, grads, &sum, NULL), 0);
    memcpy(bias, grads + model->params[1].offset, GOLDEN_OUTPUTS * sizeof *bias);
    return sum;
}

static void the_oracle_equals_pytorch(void **state) {
    (void)state;
    const ls_model_spec spec = {
        .name = "unit",
        .channels = GOLDEN_OUTPUTS,
        .height = 1,
        .width = 1,
        .classes = GOLDEN_OUTPUTS,
        .layer_count = 2,
        .layers = {{.kind = LS_LAYER_FLATTEN}, {.kind = LS_LAYER_LINEAR, .name = "fc", .out = GOLDEN_OUTPUTS}}};
    ls_model model;
    ls_oracle *oracle = NULL;
    char error[128];
    assert_int_equal(ls_model_resolve(&spec, &model, error, sizeof error), 0);
    assert_int_equal(model.param_count, GOLDEN_OUTPUTS * GOLDEN_OUTPUTS + GOLDEN_OUTPUTS);
    assert_int_equal(ls_oracle_open(&model, &oracle), 0);
    for (size_t k = 0; k < sizeof golden_losses / sizeof golden_losses[0]; k++) {
        const golden_loss *golden = &golden_losses[k];
        ls_oracle_loss loss = {.sum = golden->options.reduction == LS_LOSS_SUM};
        loss.kind = golden->options.kind == LS_LOSS_CROSS_ENTROPY ? LS_ORACLE_CROSS_ENTROPY
                    : golden->options.kind == LS_LOSS_MSE         ? LS_ORACLE_MSE
                                                                  : LS_ORACLE_RMSE;
        double bias[GOLDEN_OUTPUTS];
        double sum = oracle_terms(&model, oracle, golden, 0, GOLDEN_BATCH, 1, bias);
        double value = ls_oracle_loss_value(&loss, sum, GOLDEN_BATCH, GOLDEN_OUTPUTS);
        double slope = ls_oracle_loss_slope(&loss, sum, GOLDEN_BATCH, GOLDEN_OUTPUTS);
        assert_true(fabs(value - golden->value) <= 1e-14 * fmax(1, fabs(golden->value)));
        for (size_t n = 0; n < GOLDEN_BATCH; n++) {
            oracle_terms(&model, oracle, golden, n, 1, 1 / slope, bias);
            for (size_t c = 0; c < GOLDEN_OUTPUTS; c++) {
                assert_true(fabs(bias[c] - golden->gradient[n][c]) <= 1e-14);
            }
        }
    }
    ls_oracle_close(oracle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_equal_pytorch),
        cmocka_unit_test(known_cross_entropies),
        cmocka_unit_test(edges),
        cmocka_unit_test(the_oracle_equals_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
