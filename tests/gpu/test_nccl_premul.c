/* Sums of what each rank multiplies by a scalar of its own (ncclRedOpCreatePreMulSum): every type, scalars of the host and of the
 * device, when they are read, graphs, and what is refused. Inputs and scalars are such that every result is exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/gpu/nccl_test.h"

enum { MAX_COUNT = 20011, TYPES = 10 };

typedef enum kind_of_call { ALLREDUCE, REDUCE, REDUCESCATTER, KINDS } kind_of_call;

/* Rank and index show; sums of products over 4 ranks stay below 128 for 8-bit integers. */
static double input_value(int rank, size_t i) {
    return (double)((i + (size_t)rank) % 7);
}

/* Halves where the type has them: the least bit of a sum is then 2^-1, and below 2^7 it fits into bfloat16's 8 bits. */
static double scalar_value(ncclDataType_t dtype, int rank) {
    return roundoff(dtype) > 0.0 ? 0.5 * (double)(rank + 1) : (double)(rank + 1);
}

static double expected(ncclDataType_t dtype, int ranks, size_t i) {
    double sum = 0.0;
    for (int rank = 0; rank < ranks; rank++) {
        sum += scalar_value(dtype, rank) * input_value(rank, i);
    }
    return sum;
}

/* The rank's scalar as an operation; *device is to be freed once the operation has run. */
static ncclRedOp_t make_op(rank_context *r, ncclDataType_t dtype, bool on_device, void **device) {
    unsigned char scalar[8] = {0};
    ncclRedOp_t op = ncclSum;
    store_element(dtype, scalar, 0, scalar_value(dtype, r->rank));
    *device = NULL;
    if (on_device) {
        CUDA(cudaMalloc(device, sizeof scalar));
        CUDA(cudaMemcpy(*device, scalar, sizeof scalar, cudaMemcpyHostToDevice));
    }
    NCCL(ncclRedOpCreatePreMulSum(&op, on_device ? *device : scalar, dtype,
                                  on_device ? ncclScalarDevice : ncclScalarHostImmediate, r->comm));
    MUST((unsigned)op >= ncclNumOps && (unsigned)op <= ncclMaxRedOp);
    memset(scalar, 0xff, sizeof scalar); /* it has been read */
    return op;
}

/* One call; the operation is destroyed as soon as it returns. In place when send == receive. */
static void reduce(rank_context *r, kind_of_call kind, ncclDataType_t dtype, size_t count, char *send, char *receive,
                   bool on_device) {
    const size_t size = element_size(dtype), mine = (size_t)r->rank * count * size;
    void *scalar;
    ncclRedOp_t op = make_op(r, dtype, on_device, &scalar);
    switch (kind) {
    case ALLREDUCE:
        NCCL(ncclAllReduce(send, receive, count, dtype, op, r->comm, r->stream));
        break;
    case REDUCE:
        NCCL(ncclReduce(send, receive, count, dtype, op, r->ranks - 1, r->comm, r->stream));
        break;
    default:
        NCCL(ncclReduceScatter(send, send == receive ? send + mine : receive, count, dtype, op, r->comm, r->stream));
        break;
    }
    NCCL(ncclRedOpDestroy(op, r->comm));
    CUDA(cudaStreamSynchronize(r->stream));
    CUDA(cudaFree(scalar));
}

static void check(rank_context *r, kind_of_call kind, ncclDataType_t dtype, size_t count, const char *receive,
                  unsigned char *host) {
    const size_t size = element_size(dtype), first = kind == REDUCESCATTER ? (size_t)r->rank * count : 0;
    if (kind == REDUCE && r->rank != r->ranks - 1) {
        return;
    }
    CUDA(cudaMemcpy(host, receive, count * size, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++) {
        double is = load_element(dtype, host, i), should = expected(dtype, r->ranks, first + i);
        if (is != should) {
            fprintf(stderr, "kind %d, rank %d of %d, type %d, count %zu: element %zu is %.17g, expected %.17g\n",
                    (int)kind, r->rank, r->ranks, (int)dtype, count, i, is, should);
            exit(7);
        }
    }
}

static void all_types(rank_context *r) {
    static const size_t counts[] = {1, 7, 64, 1025, MAX_COUNT};
    const size_t bytes = (size_t)MAX_COUNT * (size_t)r->ranks * 8;
    unsigned char *host = malloc(bytes);
    char *send, *receive;
    MUST(host != NULL);
    CUDA(cudaMalloc((void **)&send, bytes));
    CUDA(cudaMalloc((void **)&receive, bytes));
    for (size_t n = 0; n < (size_t)KINDS * TYPES * 5; n++) {
        const kind_of_call kind = (kind_of_call)(n % KINDS);
        const ncclDataType_t dtype = (ncclDataType_t)(n / KINDS % TYPES);
        const size_t count = counts[n / KINDS / TYPES], size = element_size(dtype);
        const size_t sent = kind == REDUCESCATTER ? count * (size_t)r->ranks : count;
        const bool in_place = n / 2 % 2 == 0;
        for (size_t i = 0; i < sent; i++) {
            store_element(dtype, host, i, input_value(r->rank, i));
        }
        CUDA(cudaMemcpy(send, host, sent * size, cudaMemcpyHostToDevice));
        reduce(r, kind, dtype, count, send, in_place ? send : receive, n % 4 == 3);
        const size_t shift = in_place && kind == REDUCESCATTER ? (size_t)r->rank * count * size : 0;
        check(r, kind, dtype, count, in_place ? send + shift : receive, host);
    }
    CUDA(cudaFree(send));
    CUDA(cudaFree(receive));
    free(host);
}

/* A scalar on the device is read when the collective runs, in the order of the stream: small and large, and in a graph at
 * each launch, after its operation has been destroyed. */
static void scalars_of_the_device(rank_context *r) {
    static const size_t counts[] = {3, MAX_COUNT};
    float *scalar, *values, *host = malloc(MAX_COUNT * sizeof *host);
    float factors[4]; /* lives until the copies from it have ended */
    MUST(host != NULL);
    CUDA(cudaMalloc((void **)&scalar, sizeof *scalar));
    CUDA(cudaMalloc((void **)&values, MAX_COUNT * sizeof *values));
    for (size_t i = 0; i < MAX_COUNT; i++) {
        host[i] = 1.0F;
    }
    for (size_t c = 0; c < 2; c++) {
        ncclRedOp_t op;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        float product = 1.0F;
        NCCL(ncclRedOpCreatePreMulSum(&op, scalar, ncclFloat32, ncclScalarDevice, r->comm));
        CUDA(cudaMemcpy(values, host, MAX_COUNT * sizeof *host, cudaMemcpyHostToDevice));
        CUDA(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
        NCCL(ncclAllReduce(values, values, counts[c], ncclFloat32, op, r->comm, r->stream));
        CUDA(cudaStreamEndCapture(r->stream, &graph));
        CUDA(cudaGraphInstantiate(&exec, graph, 0));
        CUDA(cudaGraphDestroy(graph));
        for (int k = 0; k < 4; k++) {
            factors[k] = (float)(k + 1);
            product *= (float)((k + 1) * r->ranks);
            CUDA(cudaMemcpyAsync(scalar, &factors[k], sizeof *scalar, cudaMemcpyHostToDevice, r->stream));
            if (k < 2) {
                NCCL(ncclAllReduce(values, values, counts[c], ncclFloat32, op, r->comm, r->stream));
            } else {
                CUDA(cudaGraphLaunch(exec, r->stream));
            }
            if (k == 1) {
                NCCL(ncclRedOpDestroy(op, r->comm));
            }
        }
        CUDA(cudaStreamSynchronize(r->stream));
        float last;
        CUDA(cudaMemcpy(&last, values + counts[c] - 1, sizeof last, cudaMemcpyDeviceToHost));
        MUST(last == product); /* 24 * ranks^4 */
        CUDA(cudaGraphExecDestroy(exec));
    }
    CUDA(cudaFree(scalar));
    CUDA(cudaFree(values));
    free(host);
}

static const int worlds[] = {1, 2, 3, 4};

static void as_threads(void **state) {
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        if (worlds[i] <= device_count()) {
            run_threads(worlds[i], *state == NULL ? all_types : scalars_of_the_device, NULL);
        }
    }
}

static void as_processes(void **state) {
    (void)state;
    int ranks = device_count() < 3 ? device_count() : 3;
    assert_true(run_processes("types", ranks));
    assert_true(run_processes("scalars", ranks));
}

static void refusals(void **state) {
    (void)state;
    ncclComm_t comm;
    ncclRedOp_t first, second;
    float half = 0.5F, *values;
    CUDA(cudaSetDevice(0));
    NCCL(ncclCommInitAll(&comm, 1, NULL));
    CUDA(cudaMalloc((void **)&values, 4 * sizeof *values));
    assert_int_equal(ncclRedOpCreatePreMulSum(&first, &half, ncclFloat32, ncclScalarHostImmediate, NULL),
                     ncclInvalidArgument);
    NCCL(ncclRedOpCreatePreMulSum(&first, &half, ncclFloat32, ncclScalarHostImmediate, comm));
    NCCL(ncclRedOpCreatePreMulSum(&second, &half, ncclFloat32, ncclScalarHostImmediate, comm));
    assert_int_not_equal(first, second);
    assert_int_equal(ncclAllReduce(values, values, 2, ncclFloat64, first, comm, NULL), ncclInvalidArgument);
    for (int op = ncclSum; op < ncclNumOps; op++) {
        assert_int_equal(ncclRedOpDestroy((ncclRedOp_t)op, comm), ncclInvalidArgument);
    }
    assert_int_equal(ncclRedOpDestroy(first, NULL), ncclInvalidArgument);
    NCCL(ncclRedOpDestroy(first, comm));
    assert_int_equal(ncclRedOpDestroy(first, comm), ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(values, values, 4, ncclFloat32, first, comm, NULL), ncclInvalidArgument);
    NCCL(ncclAllReduce(values, values, 4, ncclFloat32, second, comm, NULL)); /* the other is well */
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaFree(values));
    NCCL(ncclCommDestroy(comm)); /* takes the operation that is left with it */
}

int main(int argc, char **argv) {
    const named_body bodies[] = {{"types", all_types}, {"scalars", scalars_of_the_device}};
    become_rank(argc, argv, bodies, sizeof bodies / sizeof bodies[0]);
    static int scalars;
    const struct CMUnitTest tests[] = {{"types_as_threads", as_threads, NULL, NULL, NULL},
                                       {"scalars_of_the_device", as_threads, NULL, NULL, &scalars},
                                       cmocka_unit_test(as_processes),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests_name("nccl premul", tests, NULL, NULL);
}
