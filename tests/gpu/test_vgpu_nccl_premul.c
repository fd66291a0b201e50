/* vgpu's sums of products: their bits are those of a multiplication in the type and then a sum, and what vgpu refuses that NCCL
 * does not look at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/gpu/nccl_clique.h"

enum { MOST = 5003, BYTES_MOST = MOST * 8, RANKS_MOST = 3 };

static const ncclDataType_t floats[] = {ncclFloat16, ncclBfloat16, ncclFloat32, ncclFloat64};

/* Any bits but infinities and NaNs: normal, denormal, of both signs. */
static void fill(ncclDataType_t dtype, int rank, unsigned char *bytes, size_t count) {
    uint64_t x = 88172645463325252ULL + (uint64_t)rank;
    for (size_t i = 0; i < count; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        double sign = x & 1 ? -1.0 : 1.0, fraction = 1.0 + (double)(x >> 12) * 0x1p-52;
        int spread = (int)(x % 61) - 30;
        uint16_t half = (uint16_t)(x >> 3);
        float single = (float)(sign * ldexp(fraction, i % 17 == 0 ? spread - 120 : spread));
        double wide = sign * ldexp(fraction, i % 17 == 0 ? spread - 1030 : spread);
        if ((half & 0x7c00U) == 0x7c00U || dtype == ncclBfloat16) {
            half &= 0xbfffU; /* an exponent below the largest by far */
        }
        const void *from = dtype == ncclFloat32 ? (const void *)&single : dtype == ncclFloat64 ? &wide : (void *)&half;
        memcpy(bytes + i * element_size(dtype), from, element_size(dtype));
    }
}

/* The product rounded to the type, by its definition: to the nearest multiple of the unit in the last place, ties to even. The
 * double is exact for the narrower types: 24 bits times 24 at most. */
static double product(ncclDataType_t dtype, double a, double k) {
    if (dtype == ncclFloat64) {
        return a * k;
    }
    const int bits = dtype == ncclFloat16 ? 11 : dtype == ncclBfloat16 ? 8 : 24;
    const int least = dtype == ncclFloat16 ? -24 : dtype == ncclBfloat16 ? -133 : -149;
    int exponent;
    double exact = a * k;
    (void)frexp(exact, &exponent);
    const int unit = exponent - bits > least ? exponent - bits : least;
    return ldexp(nearbyint(ldexp(exact, -unit)), unit);
}

static void to_device(rank_context *r, void *device, const void *host, size_t bytes) {
    CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
}

static void from_device(rank_context *r, void *host, const void *device, size_t bytes) {
    CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
}

/* This rank's products into bytes, by a communicator of one rank, whose sum is the product; checked against their definition. */
static void multiply(rank_context *r, ncclDataType_t dtype, void *scalar, void *device, unsigned char *bytes,
                     size_t count) {
    static _Thread_local unsigned char before[BYTES_MOST];
    const size_t size = element_size(dtype);
    ncclComm_t alone;
    ncclUniqueId id;
    ncclRedOp_t op;
    memcpy(before, bytes, count * size);
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclCommInitRank(&alone, 1, id, 0));
    NCCL(ncclRedOpCreatePreMulSum(&op, scalar, dtype, ncclScalarHostImmediate, alone));
    to_device(r, device, bytes, count * size);
    NCCL(ncclAllReduce(device, device, count, dtype, op, alone, r->stream));
    from_device(r, bytes, device, count * size);
    NCCL(ncclCommDestroy(alone));
    for (size_t i = 0; i < count; i++) {
        MUST(load_element(dtype, bytes, i) ==
             product(dtype, load_element(dtype, before, i), load_element(dtype, scalar, 0)));
    }
}

/* A type's sum of products, and the sum of the products made before, have the same bits; small and large, in place. */
static void same_bits(rank_context *r) {
    static const size_t counts[] = {5, 1000, MOST};
    static _Thread_local unsigned char first[BYTES_MOST], second[BYTES_MOST];
    void *device;
    CUDA(cudaMalloc(&device, BYTES_MOST));
    for (size_t n = 0; n < 4 * 3; n++) {
        const ncclDataType_t dtype = floats[n % 4];
        const size_t count = counts[n / 4], bytes = count * element_size(dtype);
        unsigned char scalar[8] = {0};
        ncclRedOp_t op;
        /* 1/3 and its like, shortened to the type's bits. */
        double third = 1.0 / (double)(3 + r->rank);
        store_element(dtype, scalar, 0, roundoff(dtype) > 0x1p-20 ? product(dtype, third, 1.0) : third);
        NCCL(ncclRedOpCreatePreMulSum(&op, scalar, dtype, ncclScalarHostImmediate, r->comm));
        fill(dtype, r->rank, first, count);
        memcpy(second, first, bytes);
        to_device(r, device, first, bytes);
        NCCL(ncclAllReduce(device, device, count, dtype, op, r->comm, r->stream));
        from_device(r, first, device, bytes);
        multiply(r, dtype, scalar, device, second, count);
        to_device(r, device, second, bytes);
        NCCL(ncclAllReduce(device, device, count, dtype, ncclSum, r->comm, r->stream));
        from_device(r, second, device, bytes);
        MUST(memcmp(first, second, bytes) == 0);
        NCCL(ncclRedOpDestroy(op, r->comm));
    }
    CUDA(cudaFree(device));
}

static void bits_of_product_and_sum(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= RANKS_MOST; ranks++) {
        run_threads(ranks, same_bits, NULL);
    }
}

static void refusals(void **state) {
    (void)state;
    clique q;
    ncclRedOp_t op, others;
    float half = 0.5F, *pinned;
    clique_open(&q, 2);
    ncclComm_t comm = q.comms[0];
    assert_int_equal(ncclRedOpCreatePreMulSum(NULL, &half, ncclFloat32, ncclScalarHostImmediate, comm),
                     ncclInvalidArgument);
    assert_int_equal(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat32, ncclScalarHostImmediate, comm),
                     ncclInvalidArgument);
    assert_int_equal(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat8e4m3, ncclScalarHostImmediate, comm),
                     ncclInvalidArgument);
    assert_int_equal(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, (ncclScalarResidence_t)2, comm),
                     ncclInvalidArgument);
    assert_int_equal(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarDevice, comm), ncclInvalidArgument);
    expect_text(NULL, "the scalar is not 4 aligned bytes of memory that device 0 can read");
    assert_int_equal(ncclRedOpCreatePreMulSum(&op, q.buffers[1], ncclFloat32, ncclScalarDevice, comm),
                     ncclInvalidArgument); /* another device's */
    assert_int_equal(ncclRedOpCreatePreMulSum(&op, q.buffers[0] + COUNT - 1, ncclFloat64, ncclScalarDevice, comm),
                     ncclInvalidArgument); /* half of it is beyond the end */
    NCCL(ncclRedOpCreatePreMulSum(&others, &half, ncclFloat32, ncclScalarHostImmediate, q.comms[1]));
    assert_int_equal(ncclRedOpDestroy(others, comm), ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(q.buffers[0], q.buffers[0], 4, ncclFloat32, others, comm, q.streams[0]),
                     ncclInvalidArgument);
    expect_text(NULL, "is not of this communicator");
    assert_int_equal(ncclAllReduce(q.buffers[1], q.buffers[1], 4, ncclFloat64, others, q.comms[1], q.streams[1]),
                     ncclInvalidArgument);
    expect_text(NULL, "was made for float32, not for float64");
    CUDA(cudaMallocHost((void **)&pinned, sizeof *pinned));
    NCCL(ncclRedOpCreatePreMulSum(&op, pinned, ncclFloat32, ncclScalarDevice, comm)); /* the device sees it */
    NCCL(ncclRedOpDestroy(op, comm));
    CUDA(cudaFreeHost(pinned));
    for (int rank = 0; rank < 2; rank++) {
        CUDA(cudaSetDevice(rank));
        CUDA(cudaFree(q.buffers[rank]));
        CUDA(cudaStreamDestroy(q.streams[rank]));
        NCCL(ncclCommDestroy(q.comms[rank]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits_of_product_and_sum), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests_name("vgpu nccl premul", tests, NULL, NULL);
}
