/* LS_CUDA and LS_NCCL: a failed call prints one line and returns LS_DEVICE_FAILED from the caller. */
#include <stdio.h>

#include "gpu/gpu.h"
#include "tests/gpu/runtime.h"

/* What fails writes to stderr is caught in a pipe. */
static void run_caught(ls_rc (*call)(void), ls_rc expected, char *text, size_t size) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
    ls_rc rc = call();
    assert_true(dup2(saved, STDERR_FILENO) >= 0); /* closes the last writing end */
    close(saved);
    ssize_t got = read(ends[0], text, size - 1);
    close(ends[0]);
    assert_true(got >= 0);
    text[got] = '\0';
    assert_int_equal(rc, expected);
}

static int reached_the_end = 0;

static ls_rc fail_cuda(void) {
    LS_CUDA(cudaSetDevice(-1));
    reached_the_end = 1;
    return LS_OK;
}

static ls_rc fail_nccl(void) {
    LS_NCCL(ncclCommDestroy(NULL) == ncclSuccess ? ncclInternalError : ncclInvalidArgument);
    reached_the_end = 1;
    return LS_OK;
}

static ls_rc fail_memory(void) {
    void *memory = NULL;
    LS_CUDA(cudaMalloc(&memory, (size_t)1 << 50));
    reached_the_end = 1;
    return LS_OK;
}

static ls_rc succeed(void) {
    LS_CUDA(cudaSetDevice(0));
    LS_NCCL(ncclSuccess);
    return LS_OK;
}

static void failed_cuda_call_is_named(void **state) {
    (void)state;
    char text[1024];
    ls_error_set_rank(3, 5);
    run_caught(fail_cuda, LS_DEVICE_FAILED, text, sizeof text);
    ls_error_set_rank(-1, -1);
    assert_int_equal(reached_the_end, 0);
    assert_non_null(strstr(text, "lockstep: rank 3 device 5: "));
    assert_non_null(strstr(text, "test_check.c:"));
    assert_non_null(strstr(text, "cudaSetDevice(-1) failed: cudaErrorInvalidDevice (invalid device ordinal)\n"));
    assert_ptr_equal(strchr(text, '\n') + 1, text + strlen(text)); /* one line */
}

static void memory_says_what_was_asked_and_is_free(void **state) {
    (void)state;
    char text[1024];
    run_caught(fail_memory, LS_DEVICE_FAILED, text, sizeof text);
    assert_int_equal(reached_the_end, 0);
    assert_non_null(strstr(text, "cudaErrorMemoryAllocation"));
    assert_non_null(strstr(text, "; asked for 1.05e+06 GiB, "));
    assert_non_null(strstr(text, " GiB are free: use a smaller --batch"));
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
}

static void failed_nccl_call_is_named(void **state) {
    (void)state;
    char text[1024];
    run_caught(fail_nccl, LS_DEVICE_FAILED, text, sizeof text);
    assert_int_equal(reached_the_end, 0);
    assert_non_null(strstr(text, "test_check.c:"));
    assert_non_null(strstr(text, " failed: "));
    assert_ptr_equal(strchr(text, '\n') + 1, text + strlen(text));
}

static void successful_calls_say_nothing(void **state) {
    (void)state;
    char text[1024];
    run_caught(succeed, LS_OK, text, sizeof text);
    assert_string_equal(text, "");
}

static void platform_knows_its_devices(void **state) {
    (void)state;
    size_t count = 0;
    char text[256];
    assert_int_equal(ls_platform_device_count(&count), LS_OK);
    assert_int_equal(count, device_count());
    assert_int_equal(ls_platform_describe(text, sizeof text), LS_OK);
    assert_true(strlen(text) > 0);
    assert_true(strlen(ls_platform_name()) > 0);
}

int main(void) {
    alarm(TEST_SECONDS);
    const struct CMUnitTest tests[] = {
        RUNTIME_TEST(failed_cuda_call_is_named),  RUNTIME_TEST(memory_says_what_was_asked_and_is_free),
        RUNTIME_TEST(failed_nccl_call_is_named),  RUNTIME_TEST(successful_calls_say_nothing),
        RUNTIME_TEST(platform_knows_its_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
