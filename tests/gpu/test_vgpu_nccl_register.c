/* What vgpu's NCCL finds where NCCL itself says nothing: arguments, memory freed by the wrong call or too early, registrations left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu/vgpu/internal.h"
#include "tests/gpu/nccl_test.h"
#include "tests/impls/stderr_capture.h"

enum { BYTES = 4096 };

typedef struct fixture {
    ncclComm_t comms[2];
    void *memory; /* of ncclMemAlloc, on device 0 */
} fixture;

static int set_up(void **state) {
    static fixture f;
    NCCL(ncclCommInitAll(f.comms, 2, NULL));
    CUDA(cudaSetDevice(0));
    NCCL(ncclMemAlloc(&f.memory, BYTES));
    *state = &f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    NCCL(ncclMemFree(f->memory));
    NCCL(ncclCommDestroy(f->comms[0]));
    NCCL(ncclCommDestroy(f->comms[1]));
    return 0;
}

static void expect_words(const char *part) {
    if (strstr(ncclGetLastError(NULL), part) == NULL) {
        fail_msg("expected '%s' in '%s'", part, ncclGetLastError(NULL));
    }
}

static void bad_arguments(void **state) {
    fixture *f = *state;
    void *handle = NULL;
    char host[16];
    struct {
        int rank;
        void *buffer;
        size_t size;
        void **handle;
        const char *words;
    } calls[] = {
        {0, NULL, 16, &handle, "buff is NULL"},
        {0, f->memory, 0, &handle, "size is 0"},
        {0, f->memory, 16, NULL, "handle is NULL"},
        {0, f->memory, BYTES + 1, &handle, "expected 4097 bytes of device 0, found 4096 of device 0"},
        {1, f->memory, 16, &handle, "expected 16 bytes of device 1, found 4096 of device 0"},
        {0, host, sizeof host, &handle, "found 0 of device -1"},
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        assert_int_equal(ncclCommRegister(f->comms[calls[i].rank], calls[i].buffer, calls[i].size, calls[i].handle),
                         ncclInvalidArgument);
        expect_words(calls[i].words);
        assert_null(handle);
    }
}

static void handles_belong_to_a_communicator(void **state) {
    fixture *f = *state;
    void *handle = NULL;
    NCCL(ncclCommRegister(f->comms[0], f->memory, BYTES, &handle));
    assert_int_equal(ncclCommDeregister(f->comms[1], handle), ncclInvalidUsage);
    expect_words("not a handle of this communicator");
    NCCL(ncclCommDeregister(f->comms[0], handle));
}

static void registered_memory_is_not_freed(void **state) {
    fixture *f = *state;
    void *handle = NULL;
    NCCL(ncclCommRegister(f->comms[0], (char *)f->memory + 256, 512, &handle));
    assert_int_equal(ncclMemFree(f->memory), ncclInvalidUsage);
    expect_words("rank 0 has registered this memory");
    CUDA(cudaMemset(f->memory, 1, BYTES)); /* it is still there */
    NCCL(ncclCommDeregister(f->comms[0], handle));
}

/* Memory of cudaMalloc may be registered, too; that cudaFree came too early is found when it is deregistered. */
static void memory_freed_too_early_is_found(void **state) {
    fixture *f = *state;
    void *memory = NULL, *handle = NULL;
    CUDA(cudaMalloc(&memory, BYTES));
    NCCL(ncclCommRegister(f->comms[0], memory, BYTES, &handle));
    CUDA(cudaFree(memory));
    assert_int_equal(ncclCommDeregister(f->comms[0], handle), ncclInvalidUsage);
    expect_words("the buffer has been freed before");
    assert_int_equal(ncclCommDeregister(f->comms[0], handle), ncclInvalidUsage);
}

static void each_allocator_frees_its_own(void **state) {
    fixture *f = *state;
    void *plain = NULL;
    CUDA(cudaMalloc(&plain, BYTES));
    assert_int_equal(ncclMemFree(plain), ncclUnhandledCudaError);
    assert_int_equal(cudaFree(f->memory), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    CUDA(cudaMemset(f->memory, 1, BYTES));
    CUDA(cudaFree(plain));
    /* the same place, allocated the other way */
    CUDA(cudaMalloc(&plain, BYTES));
    CUDA(cudaFree(plain));
    NCCL(ncclMemAlloc(&plain, BYTES));
    NCCL(ncclMemFree(plain));
}

static void registrations_left_are_reported(void **state) {
    (void)state;
    ncclComm_t comm = NULL;
    void *memory = NULL, *handle = NULL;
    stderr_capture capture;
    NCCL(ncclCommInitAll(&comm, 1, NULL));
    CUDA(cudaSetDevice(0));
    NCCL(ncclMemAlloc(&memory, BYTES));
    NCCL(ncclCommRegister(comm, memory, BYTES, &handle));
    assert_int_equal(stderr_capture_begin(&capture), 0);
    ncclResult_t result = ncclCommDestroy(comm);
    stderr_capture_end(&capture);
    assert_int_equal(result, ncclSuccess);
    assert_int_equal(capture.lines, 1);
    assert_non_null(strstr(capture.text, "rank 0 destroys its communicator with registered buffers left (1)"));
    NCCL(ncclMemFree(memory));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(handles_belong_to_a_communicator),
        cmocka_unit_test(registered_memory_is_not_freed),
        cmocka_unit_test(memory_freed_too_early_is_found),
        cmocka_unit_test(each_allocator_frees_its_own),
        cmocka_unit_test(registrations_left_are_reported),
    };
    return cmocka_run_group_tests_name("vgpu nccl register", tests, set_up, tear_down);
}
