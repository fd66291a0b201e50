/* Dropout on the device: the masks' generator against its published values, the masks against the generator. */
#include "tests/reference/layer_bench.h"

/* Philox4x32-10 by its paper, for the reference of the masks. */
static void philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    uint32_t k[2] = {key[0], key[1]};
    memcpy(out, counter, 4 * sizeof *out);
    for (size_t round = 0; round < 10; round++) {
        uint64_t a = UINT64_C(0xD2511F53) * out[0];
        uint64_t b = UINT64_C(0xCD9E8D57) * out[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ out[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ out[3] ^ k[1],
                            (uint32_t)a};
        memcpy(out, next, sizeof next);
        k[0] += 0x9E3779B9;
        k[1] += 0xBB67AE85;
    }
}

/* Known answers of the authors' library, Random123 (tests/kat_vectors). */
static void test_philox_reference(void **state) {
    (void)state;
    const uint32_t zeros[4] = {0, 0, 0, 0};
    const uint32_t ones[4] = {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff};
    const uint32_t of_zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    const uint32_t of_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    uint32_t out[4];
    philox(zeros, zeros, out);
    assert_memory_equal(out, of_zeros, sizeof out);
    philox(ones, ones, out);
    assert_memory_equal(out, of_ones, sizeof out);
}

static ls_layer dropout_layer(double p, size_t features) {
    return (ls_layer){
        .kind = LS_LAYER_DROPOUT, .name = "drop", .in = {features, 1, 1}, .out = {features, 1, 1}, .p = p};
}

static uint8_t *mask_of(const bench *b) {
    uint8_t *plain = device_alloc(b->pass.batch * b->out);
    uint8_t *mask = host_alloc(b->pass.batch * b->out, 1);
    CUDA_OK(ls_kernel_from_lanes(0, 1, ls_lanes(), b->pass.batch, b->out, b->pass.index, plain));
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemcpy(mask, plain, b->pass.batch * b->out, cudaMemcpyDeviceToHost));
    device_free(plain);
    return mask;
}

/* The mask is the generator's, value by value, whatever the layout; 0.3 of the values go, and what stays is scaled by
 * 1/(1-p), rounded to dtype. */
static void test_dropout_masks(void **state) {
    (void)state;
    enum { FEATURES = 7 }; /* not a multiple of the generator's four words */
    const uint64_t seed = UINT64_C(0x123456789abcdef0);
    for (size_t i = 0; i < 2 * ODD_BATCHES; i++) {
        size_t batch = odd_batches[i / 2];
        ls_dtype dtype = i % 2 == 0 ? LS_FLOAT32 : LS_FLOAT64;
        ls_layer layer = dropout_layer(0.3, FEATURES);
        bench b;
        bench_open(&b, &layer, dtype, batch);
        b.pass.seed = seed;
        b.pass.step = 5;
        b.pass.rank = 2;
        double *x = host_doubles(batch * FEATURES);
        fill_random(x, batch * FEATURES, i);
        forward(&b, x);
        uint8_t *mask = mask_of(&b);
        double *y = result(&b, b.pass.y, FEATURES);
        backward(&b, x);
        double *dx = result(&b, b.pass.dx, FEATURES);
        double scale = dtype == LS_FLOAT64 ? 1 / (1 - 0.3) : (double)(float)(1 / (1 - 0.3));
        for (size_t k = 0; k < batch * FEATURES; k++) {
            const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
            const uint32_t counter[4] = {(uint32_t)(k % FEATURES / 4), (uint32_t)(k / FEATURES), 5,
                                         2 * LS_MODEL_MAX_LAYERS + 3};
            uint32_t words[4];
            philox(key, counter, words);
            bool kept = words[k % FEATURES % 4] < 0.7 * 4294967296.0;
            assert_int_equal(mask[k], kept);
            double product = dtype == LS_FLOAT64 ? x[k] * scale : (double)((float)x[k] * (float)scale);
            assert_true(y[k] == (kept ? product : 0));
            assert_true(dx[k] == y[k]);
        }
        free(x);
        free(y);
        free(dx);
        free(mask);
        bench_close(&b);
    }
}

/* The same names give the same mask; another seed, step, rank or layer gives another. */
static void test_dropout_masks_differ(void **state) {
    (void)state;
    enum { FEATURES = 100, BATCH = 4, KINDS = 6 };
    ls_layer layer = dropout_layer(0.5, FEATURES);
    double *x = host_doubles(BATCH * FEATURES);
    uint8_t *masks[KINDS];
    for (size_t i = 0; i < KINDS; i++) {
        bench b;
        bench_open(&b, &layer, LS_FLOAT32, BATCH);
        b.pass.seed = i == 2 ? 1 : 0;
        b.pass.step = i == 3 ? 1 : 0;
        b.pass.rank = i == 4 ? 1 : 0;
        b.pass.layer = i == 5 ? 1 : 0;
        forward(&b, x);
        masks[i] = mask_of(&b);
        bench_close(&b);
    }
    for (size_t i = 0; i < KINDS; i++) {
        for (size_t k = 0; k < i; k++) {
            bool equal = memcmp(masks[i], masks[k], BATCH * FEATURES) == 0;
            assert_int_equal(equal, i == 1); /* 0 and 1 are the same */
        }
    }
    for (size_t i = 0; i < KINDS; i++) {
        free(masks[i]);
    }
    free(x);
}

static void test_dropout_passes_evaluation_through(void **state) {
    (void)state;
    enum { FEATURES = 9, BATCH = 5 };
    ls_layer layer = dropout_layer(0.9, FEATURES);
    bench b;
    bench_open(&b, &layer, LS_FLOAT32, BATCH);
    b.pass.training = false;
    double *x = host_doubles(BATCH * FEATURES);
    fill_random(x, BATCH * FEATURES, 1);
    forward(&b, x);
    double *y = result(&b, b.pass.y, FEATURES);
    assert_memory_equal(x, y, BATCH * FEATURES * sizeof *x);
    /* p = 0 keeps everything, in training too */
    b.layer.p = 0;
    b.pass.training = true;
    forward(&b, x);
    free(y);
    y = result(&b, b.pass.y, FEATURES);
    assert_memory_equal(x, y, BATCH * FEATURES * sizeof *x);
    free(x);
    free(y);
    bench_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_reference),
        cmocka_unit_test(test_dropout_masks),
        cmocka_unit_test(test_dropout_masks_differ),
        cmocka_unit_test(test_dropout_passes_evaluation_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
