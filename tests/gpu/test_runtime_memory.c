/* Device and pinned memory: allocation, reuse, what cudaFree waits for, what pointers are known to be. */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/gpu/runtime.h"

enum { BYTES = 4096 };

static void allocations_are_aligned_and_apart(void **state) {
    (void)state;
    enum { COUNT = 64 };
    unsigned char *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = make_bytes((size_t)(1 + i * 173), i);
        assert_int_equal((uintptr_t)blocks[i] % 256, 0);
    }
    for (int i = 0; i < COUNT; i += 2) {
        CHECK(cudaFree(blocks[i]));
    }
    for (int i = 0; i < COUNT; i += 2) {
        blocks[i] = make_bytes((size_t)(1 + i * 91), 100 + i);
    }
    for (int i = 0; i < COUNT; i++) {
        size_t count = (size_t)(1 + i * (i % 2 == 0 ? 91 : 173));
        check_bytes(blocks[i], count, i % 2 == 0 ? 100 + i : i);
        CHECK(cudaFree(blocks[i]));
    }
}

static void freed_memory_can_be_used_again(void **state) {
    (void)state;
    size_t before = 0;
    size_t after = 0;
    size_t total = 0;
    CHECK(cudaFree(NULL));
    CHECK(cudaMemGetInfo(&before, &total));
    assert_true(before <= total);
    size_t half = before / 2 + 1; /* two of them cannot be live at once */
    for (int round = 0; round < 4; round++) {
        void *block = NULL;
        CHECK(cudaMalloc(&block, half));
        CHECK(cudaMemGetInfo(&after, &total));
        assert_true(after <= before - half);
        CHECK(cudaMemset((char *)block + half - 16, round, 16));
        check_bytes((char *)block + half - 16, 16, round);
        CHECK(cudaFree(block));
    }
    CHECK(cudaMemGetInfo(&after, &total));
    assert_int_equal(after, before);
}

static void out_of_memory_is_an_answer(void **state) {
    (void)state;
    size_t available = 0;
    size_t total = 0;
    CHECK(cudaMemGetInfo(&available, &total));
    void *block = &available;
    CHECK_REFUSED(cudaMalloc(&block, total + 1), cudaErrorMemoryAllocation);
    CHECK_REFUSED(cudaMalloc(&block, SIZE_MAX), cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&block, BYTES)); /* and it does not stick */
    CHECK(cudaFree(block));
}

typedef struct freeing {
    void *block;
    cudaError_t status;
    _Atomic int done;
} freeing;

static void *free_block(void *argument) {
    freeing *f = argument;
    f->status = cudaFree(f->block);
    atomic_store(&f->done, 1);
    return NULL;
}

static void free_waits_for_the_device(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned char *used = make_bytes(BYTES, 0);
    freeing f = {.block = make_bytes(BYTES, 0)};
    gate g;
    gate_close(&g, stream);
    CHECK(cudaMemsetAsync(used, 1, BYTES, stream));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_block, &f), 0);
    let_errors_happen();
    assert_int_equal(atomic_load(&f.done), 0);
    gate_open(&g);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(f.status, cudaSuccess);
    CHECK(cudaStreamQuery(stream));
    CHECK(cudaFree(used));
    CHECK(cudaStreamDestroy(stream));
}

static void bad_frees_are_refused(void **state) {
    (void)state;
    int local = 0;
    void *block = NULL;
    CHECK(cudaMalloc(&block, BYTES));
    CHECK_REFUSED(cudaFree(&local), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaFreeHost(&local), cudaErrorInvalidValue);
    CHECK(cudaFree(block));
    CHECK_REFUSED(cudaMalloc(NULL, BYTES), cudaErrorInvalidValue);
    CHECK(cudaFree(NULL));
    CHECK(cudaFreeHost(NULL));
}

static void registration_is_exact(void **state) {
    (void)state;
    unsigned char *memory = test_malloc(2 * BYTES);
    CHECK_REFUSED(cudaHostUnregister(memory), cudaErrorHostMemoryNotRegistered);
    CHECK(cudaHostRegister(memory, BYTES, cudaHostRegisterDefault));
    CHECK_REFUSED(cudaHostRegister(memory, BYTES, cudaHostRegisterDefault), cudaErrorHostMemoryAlreadyRegistered);
    CHECK(cudaHostUnregister(memory));
    CHECK_REFUSED(cudaHostUnregister(memory), cudaErrorHostMemoryNotRegistered);
    CHECK_REFUSED(cudaHostRegister(NULL, BYTES, cudaHostRegisterDefault), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaHostRegister(memory, 0, cudaHostRegisterDefault), cudaErrorInvalidValue);
    test_free(memory);
}

static void attributes_tell_what_a_pointer_is(void **state) {
    (void)state;
    struct cudaPointerAttributes attributes;
    int last = device_count() - 1;
    CHECK(cudaSetDevice(last));
    unsigned char *device = make_bytes(BYTES, 0);
    CHECK(cudaSetDevice(0));
    CHECK(cudaPointerGetAttributes(&attributes, device + BYTES / 2));
    assert_int_equal(attributes.type, cudaMemoryTypeDevice);
    assert_int_equal(attributes.device, last);
    assert_ptr_equal(attributes.devicePointer, device + BYTES / 2);
    unsigned char *pinned = NULL;
    CHECK(cudaMallocHost((void **)&pinned, BYTES));
    CHECK(cudaPointerGetAttributes(&attributes, pinned + 8));
    assert_int_equal(attributes.type, cudaMemoryTypeHost);
    assert_ptr_equal(attributes.hostPointer, pinned + 8);
    CHECK(cudaPointerGetAttributes(&attributes, &last));
    assert_int_equal(attributes.type, cudaMemoryTypeUnregistered);
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
}

int main(void) {
    alarm(TEST_SECONDS);
    const struct CMUnitTest tests[] = {
        RUNTIME_TEST(allocations_are_aligned_and_apart),
        RUNTIME_TEST(freed_memory_can_be_used_again),
        RUNTIME_TEST(out_of_memory_is_an_answer),
        RUNTIME_TEST(free_waits_for_the_device),
        RUNTIME_TEST(bad_frees_are_refused),
        RUNTIME_TEST(registration_is_exact),
        RUNTIME_TEST(attributes_tell_what_a_pointer_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
