/* Every collective, type, operation, root, count and alignment, in place and out of place, against exact expectations, with
 * ranks as threads, as one thread with groups, and as processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/gpu/nccl_test.h"

enum { MAX_COUNT = 20011, MAX_RANKS = 8, MARGIN = 4, GUARD = 0xA5 };

typedef enum kind { ALLREDUCE, REDUCE, REDUCESCATTER, BROADCAST, ALLGATHER, KINDS } kind;
static const char *const kind_names[] = {"allreduce", "reduce", "reduce-scatter", "broadcast", "all-gather"};

typedef struct one_case {
    kind kind;
    ncclDataType_t dtype;
    ncclRedOp_t op;
    int root;
    size_t count, offset; /* elements per block; elements from the buffer's start */
    bool in_place;
} one_case;

/* A rank's memory: device buffers and their images. */
typedef struct buffers {
    void *send, *receive;
    unsigned char *sent, *got;
    size_t bytes;
} buffers;

/* Rank and index show in each value, and results stay exact in the type: sums over 8 ranks below 128 for 8-bit integers and
 * below 256 for bfloat16's 8 bits of mantissa, products below 128. */
static double input_value(const one_case *c, int rank, size_t i) {
    bool wide = c->dtype != ncclInt8 && c->dtype != ncclUint8 && c->dtype != ncclBfloat16;
    size_t r = (size_t)rank;
    switch (c->op) {
    case ncclProd:
        return ((i + r) % 5 == 0 ? 2.0 : 1.0) * ((i + r) % 7 == 0 ? 3.0 : 1.0);
    case ncclMax:
    case ncclMin:
        return (double)((i * 7 + r * 13) % 101);
    default:
        return (double)(r + 1) + (double)(i % (wide ? 97 : 7));
    }
}

static double reduced_value(const one_case *c, int ranks, size_t i) {
    double value = input_value(c, 0, i);
    for (int rank = 1; rank < ranks; rank++) {
        double next = input_value(c, rank, i);
        switch (c->op) {
        case ncclProd:
            value *= next;
            break;
        case ncclMax:
            value = fmax(value, next);
            break;
        case ncclMin:
            value = fmin(value, next);
            break;
        default:
            value += next;
            break;
        }
    }
    if (c->op == ncclAvg) {
        value /= ranks;
        return roundoff(c->dtype) == 0.0 ? trunc(value) : value;
    }
    return value;
}

static size_t send_count(const one_case *c, int ranks) {
    return c->kind == REDUCESCATTER ? c->count * (size_t)ranks : c->count;
}

static size_t receive_count(const one_case *c, int ranks) {
    return c->kind == ALLGATHER ? c->count * (size_t)ranks : c->count;
}

static bool receives(const one_case *c, int rank) {
    return c->kind != REDUCE || rank == c->root;
}

/* Element i of what this rank must receive. */
static double expected(const one_case *c, int rank, int ranks, size_t i) {
    switch (c->kind) {
    case ALLGATHER:
        return input_value(c, (int)(i / c->count), i % c->count);
    case BROADCAST:
        return input_value(c, c->root, i);
    case REDUCESCATTER:
        return reduced_value(c, ranks, (size_t)rank * c->count + i);
    default:
        return reduced_value(c, ranks, i);
    }
}

/* Where the two buffers of a case lie; in place they overlap as NCCL defines it. */
static char *send_at(const one_case *c, const buffers *b, int rank) {
    size_t shift = c->in_place && c->kind == ALLGATHER ? (size_t)rank * c->count : 0;
    return (char *)(c->in_place ? b->receive : b->send) + (c->offset + shift) * element_size(c->dtype);
}

static char *receive_at(const one_case *c, const buffers *b, int rank) {
    size_t shift = c->in_place && c->kind == REDUCESCATTER ? (size_t)rank * c->count : 0;
    return (char *)b->receive + (c->offset + shift) * element_size(c->dtype);
}

static ncclResult_t start(const one_case *c, const buffers *b, rank_context *r) {
    const void *send = send_at(c, b, r->rank);
    void *receive = receive_at(c, b, r->rank);
    switch (c->kind) {
    case ALLREDUCE:
        return ncclAllReduce(send, receive, c->count, c->dtype, c->op, r->comm, r->stream);
    case REDUCE:
        return ncclReduce(send, receives(c, r->rank) || c->in_place ? receive : NULL, c->count, c->dtype, c->op,
                          c->root, r->comm, r->stream);
    case REDUCESCATTER:
        return ncclReduceScatter(send, receive, c->count, c->dtype, c->op, r->comm, r->stream);
    case BROADCAST:
        return ncclBroadcast(send, receive, c->count, c->dtype, c->root, r->comm, r->stream);
    default:
        return ncclAllGather(send, receive, c->count, c->dtype, r->comm, r->stream);
    }
}

static void fill(const one_case *c, const buffers *b, rank_context *r) {
    size_t size = element_size(c->dtype), count = send_count(c, r->ranks);
    size_t used = (c->offset + MARGIN + c->count * (size_t)r->ranks) * size;
    memset(b->sent, GUARD, used);
    memset(b->got, GUARD, used);
    unsigned char *image = c->in_place ? b->got : b->sent;
    const char *device = c->in_place ? b->receive : b->send;
    size_t from = (size_t)(send_at(c, b, r->rank) - device);
    for (size_t i = 0; i < count; i++) {
        store_element(c->dtype, image + from, i, input_value(c, r->rank, i));
    }
    CUDA(cudaMemcpyAsync(b->send, b->sent, used, cudaMemcpyHostToDevice, r->stream));
    CUDA(cudaMemcpyAsync(b->receive, b->got, used, cudaMemcpyHostToDevice, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
}

static void report(const one_case *c, rank_context *r, const char *what, size_t i, double is, double should) {
    fprintf(stderr,
            "%s: rank %d of %d, type %d op %d root %d count %zu offset %zu %s: %s %zu is %.17g, expected %.17g\n",
            kind_names[c->kind], r->rank, r->ranks, (int)c->dtype, (int)c->op, c->root, c->count, c->offset,
            c->in_place ? "in place" : "out of place", what, i, is, should);
    exit(7);
}

static void check(const one_case *c, const buffers *b, rank_context *r) {
    size_t size = element_size(c->dtype), count = receives(c, r->rank) ? receive_count(c, r->ranks) : 0;
    size_t used = (c->offset + MARGIN + c->count * (size_t)r->ranks) * size;
    static _Thread_local unsigned char now[(MAX_COUNT + 8) * MAX_RANKS * 8];
    CUDA(cudaMemcpyAsync(now, b->receive, used, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    size_t from = (size_t)(receive_at(c, b, r->rank) - (char *)b->receive);
    /* An average of floats may multiply by the rounded 1/W: each term is off by 2u at most and W-1 additions add u each, so
     * (W+1)u of the sum of magnitudes; all terms are positive. Every other result is exact. */
    double slack = c->op == ncclAvg && c->kind <= REDUCESCATTER ? (r->ranks + 1) * roundoff(c->dtype) : 0.0;
    for (size_t i = 0; i < count; i++) {
        double is = load_element(c->dtype, now + from, i), should = expected(c, r->rank, r->ranks, i);
        if (!(fabs(is - should) <= slack * should)) {
            report(c, r, "element", i, is, should);
        }
    }
    bool keeps_send = c->in_place && c->kind == REDUCESCATTER; /* NCCL leaves the other blocks undefined */
    for (size_t i = 0; i < used; i++) {
        bool inside = i >= from && i < from + count * size;
        if (!inside && !keeps_send && now[i] != b->got[i]) {
            report(c, r, "byte outside", i, now[i], b->got[i]);
        }
    }
    if (!c->in_place) {
        CUDA(cudaMemcpyAsync(now, b->send, used, cudaMemcpyDeviceToHost, r->stream));
        CUDA(cudaStreamSynchronize(r->stream));
        MUST(memcmp(now, b->sent, used) == 0);
    }
}

/* Case number n of a walk over all combinations; false at the end. */
static bool nth_case(size_t n, int ranks, one_case *c) {
    /* The last one is for few ranks, whose parts are then longer than any unit of work even for 8-bit elements. */
    static const size_t counts[] = {0, 1, 2, 3, 5, 7, 63, 64, 65, 1023, 1025, MAX_COUNT};
    enum { COUNTS = sizeof counts / sizeof counts[0], TYPES = 10, OPS = 5 };
    if (n >= (size_t)COUNTS * TYPES * OPS * KINDS) {
        return false;
    }
    c->count = counts[n % COUNTS] < MAX_COUNT || ranks <= 2 ? counts[n % COUNTS] : 3001;
    c->dtype = (ncclDataType_t)(n / COUNTS % TYPES);
    c->op = (ncclRedOp_t)(n / COUNTS / TYPES % OPS);
    c->kind = (kind)(n / COUNTS / TYPES / OPS);
    c->root = (int)(n % (size_t)ranks);
    c->offset = n / 3 % MARGIN;
    c->in_place = n / 2 % 2 == 0;
    return true;
}

static void buffers_open(buffers *b, int ranks) {
    b->bytes = (size_t)(MAX_COUNT + 2 * MARGIN) * (size_t)ranks * 8;
    b->sent = malloc(b->bytes);
    b->got = malloc(b->bytes);
    MUST(b->sent != NULL && b->got != NULL);
    CUDA(cudaMalloc(&b->send, b->bytes));
    CUDA(cudaMalloc(&b->receive, b->bytes));
}

static void buffers_close(buffers *b) {
    CUDA(cudaFree(b->send));
    CUDA(cudaFree(b->receive));
    free(b->sent);
    free(b->got);
}

/* The walk is thinned, with a stride below the number of counts so that every collective, type and operation comes up. */
static size_t stride_of(int ranks) {
    return ranks <= 2 ? 5 : 11;
}

static void all_cases(rank_context *r) {
    buffers b;
    buffers_open(&b, r->ranks);
    one_case c;
    for (size_t n = 0; nth_case(n, r->ranks, &c); n += stride_of(r->ranks)) {
        fill(&c, &b, r);
        NCCL(start(&c, &b, r));
        check(&c, &b, r);
    }
    buffers_close(&b);
}

static const int worlds[] = {1, 2, 3, 4, 8};

static void ranks_as_threads(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        if (worlds[i] <= device_count()) {
            run_threads(worlds[i], all_cases, NULL);
        }
    }
}

static void ranks_as_processes(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        if (worlds[i] <= device_count()) {
            assert_true(run_processes("all", worlds[i]));
        }
    }
}

static void one_thread_with_groups(void **state) {
    (void)state;
    int ranks = device_count() < 4 ? device_count() : 4;
    ncclComm_t comms[4];
    rank_context r[4];
    buffers b[4];
    NCCL(ncclCommInitAll(comms, ranks, NULL));
    for (int rank = 0; rank < ranks; rank++) {
        CUDA(cudaSetDevice(rank));
        r[rank] = (rank_context){rank, ranks, comms[rank], NULL, NULL};
        CUDA(cudaStreamCreate(&r[rank].stream));
        buffers_open(&b[rank], ranks);
    }
    one_case c;
    for (size_t n = 0; nth_case(n, ranks, &c); n += 11) {
        for (int rank = 0; rank < ranks; rank++) {
            fill(&c, &b[rank], &r[rank]);
        }
        NCCL(ncclGroupStart());
        for (int rank = ranks; rank-- > 0;) { /* the order inside a group is free */
            NCCL(start(&c, &b[rank], &r[rank]));
        }
        NCCL(ncclGroupEnd());
        for (int rank = 0; rank < ranks; rank++) {
            check(&c, &b[rank], &r[rank]);
        }
    }
    for (int rank = 0; rank < ranks; rank++) {
        CUDA(cudaSetDevice(rank));
        buffers_close(&b[rank]);
        CUDA(cudaStreamDestroy(r[rank].stream));
        NCCL(ncclCommDestroy(comms[rank]));
    }
}

int main(int argc, char **argv) {
    const named_body bodies[] = {{"all", all_cases}};
    become_rank(argc, argv, bodies, sizeof bodies / sizeof bodies[0]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_as_threads), cmocka_unit_test(ranks_as_processes),
                                       cmocka_unit_test(one_thread_with_groups)};
    return cmocka_run_group_tests_name("nccl collectives", tests, NULL, NULL);
}
