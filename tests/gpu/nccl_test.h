/* What the NCCL tests share: ranks as threads, as one thread with groups, and as processes of the same program; inputs whose
 * results are exact in every type. Public API only. */
#ifndef LS_TESTS_GPU_NCCL_TEST_H
#define LS_TESTS_GPU_NCCL_TEST_H

#include <cuda_runtime.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <nccl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Ends the program when a call fails: usable on every thread, unlike cmocka's assertions. */
static inline void must(bool ok, const char *what, const char *why, int line) {
    if (!ok) {
        fprintf(stderr, "%s:%d: %s: %s\n", program_invocation_short_name, line, what, why);
        exit(9);
    }
}

#define CUDA(call)                                                                            \
    do {                                                                                      \
        cudaError_t cuda_status_ = (call);                                                    \
        must(cuda_status_ == cudaSuccess, #call, cudaGetErrorString(cuda_status_), __LINE__); \
    } while (0)
#define NCCL(call)                                                                                                     \
    do {                                                                                                               \
        ncclResult_t nccl_status_ = (call);                                                                            \
        must(nccl_status_ == ncclSuccess, #call, nccl_status_ == ncclSuccess ? "" : ncclGetLastError(NULL), __LINE__); \
    } while (0)
#define MUST(condition) must((condition), #condition, "not so", __LINE__)

typedef struct rank_context {
    int rank, ranks;
    ncclComm_t comm;
    cudaStream_t stream;
    void *argument;
} rank_context;

typedef void (*rank_body)(rank_context *context);

static inline int device_count(void) {
    int count = 0;
    CUDA(cudaGetDeviceCount(&count));
    return count;
}

/* --- ranks as threads ------------------------------------------------------------------------------------------------- */

typedef struct thread_rank {
    rank_context context;
    ncclUniqueId id;
    rank_body body;
} thread_rank;

static inline void *run_thread_rank(void *argument) {
    thread_rank *self = argument;
    rank_context *c = &self->context;
    CUDA(cudaSetDevice(c->rank));
    NCCL(ncclCommInitRank(&c->comm, c->ranks, self->id, c->rank));
    CUDA(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    self->body(c);
    CUDA(cudaStreamSynchronize(c->stream));
    CUDA(cudaStreamDestroy(c->stream));
    NCCL(ncclCommDestroy(c->comm));
    return NULL;
}

static inline void run_threads(int ranks, rank_body body, void *argument) {
    thread_rank *all = calloc((size_t)ranks, sizeof *all);
    pthread_t *threads = calloc((size_t)ranks, sizeof *threads);
    MUST(all != NULL && threads != NULL);
    ncclUniqueId id;
    NCCL(ncclGetUniqueId(&id));
    for (int rank = 0; rank < ranks; rank++) {
        all[rank] = (thread_rank){{rank, ranks, NULL, NULL, argument}, id, body};
        MUST(pthread_create(&threads[rank], NULL, run_thread_rank, &all[rank]) == 0);
    }
    for (int rank = 0; rank < ranks; rank++) {
        MUST(pthread_join(threads[rank], NULL) == 0);
    }
    free(threads);
    free(all);
}

/* --- ranks as processes ----------------------------------------------------------------------------------------------- */

static inline void id_to_hex(const ncclUniqueId *id, char *hex) {
    for (size_t i = 0; i < sizeof id->internal; i++) {
        sprintf(hex + 2 * i, "%02x", (unsigned)(unsigned char)id->internal[i]);
    }
}

static inline ncclUniqueId id_from_hex(const char *hex) {
    ncclUniqueId id;
    for (size_t i = 0; i < sizeof id.internal; i++) {
        unsigned byte;
        MUST(sscanf(hex + 2 * i, "%2x", &byte) == 1);
        id.internal[i] = (char)byte;
    }
    return id;
}

/* Starts this program as `<program> --rank NAME rank ranks id`; main() hands it to the body of that name. */
static inline pid_t spawn_rank(const char *name, int rank, int ranks, const ncclUniqueId *id) {
    char hex[2 * NCCL_UNIQUE_ID_BYTES + 1], rank_text[16], ranks_text[16];
    id_to_hex(id, hex);
    snprintf(rank_text, sizeof rank_text, "%d", rank);
    snprintf(ranks_text, sizeof ranks_text, "%d", ranks);
    char program[] = "/proc/self/exe", flag[] = "--rank", name_text[64];
    snprintf(name_text, sizeof name_text, "%s", name);
    char *arguments[] = {program, flag, name_text, rank_text, ranks_text, hex, NULL};
    pid_t pid;
    MUST(posix_spawn(&pid, program, NULL, NULL, arguments, environ) == 0);
    return pid;
}

/* Exit status of a child, 128 + signal if it was killed. */
static inline int await_rank(pid_t pid) {
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* True when all ranks as processes exit 0. */
static inline bool run_processes(const char *name, int ranks) {
    ncclUniqueId id;
    pid_t pids[64];
    bool well = true;
    NCCL(ncclGetUniqueId(&id));
    for (int rank = 0; rank < ranks; rank++) {
        pids[rank] = spawn_rank(name, rank, ranks, &id);
    }
    for (int rank = 0; rank < ranks; rank++) {
        well = await_rank(pids[rank]) == 0 && well;
    }
    return well;
}

typedef struct named_body {
    const char *name;
    rank_body body;
} named_body;

/* Called first in main(): runs the body and exits when this process is a rank. */
static inline void become_rank(int argc, char **argv, const named_body *bodies, size_t count) {
    if (argc != 6 || strcmp(argv[1], "--rank") != 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(bodies[i].name, argv[2]) == 0) {
            thread_rank self = {{atoi(argv[3]), atoi(argv[4]), NULL, NULL, NULL}, id_from_hex(argv[5]), bodies[i].body};
            run_thread_rank(&self);
            exit(0);
        }
    }
    exit(8);
}

/* --- elements --------------------------------------------------------------------------------------------------------- */

static inline size_t element_size(ncclDataType_t dtype) {
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return sizes[dtype];
}

/* Unit roundoff of a floating-point type; 0 for integers. */
static inline double roundoff(ncclDataType_t dtype) {
    switch (dtype) {
    case ncclFloat16:
        return 0x1p-11;
    case ncclBfloat16:
        return 0x1p-8;
    case ncclFloat32:
        return 0x1p-24;
    case ncclFloat64:
        return 0x1p-53;
    default:
        return 0.0;
    }
}

/* Bits of a 16-bit float of the given exponent and mantissa widths; value is exact in it and normal or zero. */
static inline uint16_t pack_16bit(double value, int mantissa, int bias) {
    if (value == 0.0) {
        return 0;
    }
    int exponent;
    double fraction = frexp(fabs(value), &exponent); /* in [0.5, 1) */
    unsigned bits = (unsigned)ldexp(2.0 * fraction - 1.0, mantissa);
    return (uint16_t)((value < 0.0 ? 0x8000U : 0U) | ((unsigned)(exponent - 1 + bias) << mantissa) | bits);
}

static inline double unpack_16bit(uint16_t bits, int mantissa, int bias) {
    int exponent = (bits & 0x7fff) >> mantissa;
    double fraction = ldexp(bits & ((1U << mantissa) - 1U), -mantissa);
    double value = exponent == 0 ? ldexp(fraction, 1 - bias) : ldexp(1.0 + fraction, exponent - bias);
    return bits & 0x8000 ? -value : value;
}

#define STORE(T)                            \
    do {                                    \
        T typed_ = (T)value;                \
        memcpy(at, &typed_, sizeof typed_); \
    } while (0)

static inline void store_element(ncclDataType_t dtype, void *buffer, size_t i, double value) {
    char *at = (char *)buffer + i * element_size(dtype);
    uint16_t bits;
    switch (dtype) {
    case ncclInt8:
        STORE(int8_t);
        break;
    case ncclUint8:
        STORE(uint8_t);
        break;
    case ncclInt32:
        STORE(int32_t);
        break;
    case ncclUint32:
        STORE(uint32_t);
        break;
    case ncclInt64:
        STORE(int64_t);
        break;
    case ncclUint64:
        STORE(uint64_t);
        break;
    case ncclFloat32:
        STORE(float);
        break;
    case ncclFloat64:
        STORE(double);
        break;
    default:
        bits = dtype == ncclFloat16 ? pack_16bit(value, 10, 15) : pack_16bit(value, 7, 127);
        memcpy(at, &bits, sizeof bits);
        break;
    }
}

#define LOAD(T)                             \
    do {                                    \
        T typed_;                           \
        memcpy(&typed_, at, sizeof typed_); \
        return (double)typed_;              \
    } while (0)

static inline double load_element(ncclDataType_t dtype, const void *buffer, size_t i) {
    const char *at = (const char *)buffer + i * element_size(dtype);
    uint16_t bits;
    switch (dtype) {
    case ncclInt8:
        LOAD(int8_t);
    case ncclUint8:
        LOAD(uint8_t);
    case ncclInt32:
        LOAD(int32_t);
    case ncclUint32:
        LOAD(uint32_t);
    case ncclInt64:
        LOAD(int64_t);
    case ncclUint64:
        LOAD(uint64_t);
    case ncclFloat32:
        LOAD(float);
    case ncclFloat64:
        LOAD(double);
    default:
        memcpy(&bits, at, sizeof bits);
        return dtype == ncclFloat16 ? unpack_16bit(bits, 10, 15) : unpack_16bit(bits, 7, 127);
    }
}

#endif
