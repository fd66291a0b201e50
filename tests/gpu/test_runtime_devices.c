/* Devices, the current one of a thread, peers, and the errors of bad arguments. */
#include <pthread.h>

#include "tests/gpu/runtime.h"

typedef struct seen {
    int first;
    int second;
    cudaError_t error;
    cudaError_t status;
} seen;

static void *look(void *argument) {
    seen *s = argument;
    s->status = cudaGetDevice(&s->first);
    s->error = cudaPeekAtLastError();
    if (s->status == cudaSuccess) {
        s->status = cudaSetDevice(device_count() - 1);
    }
    if (s->status == cudaSuccess) {
        s->status = cudaGetDevice(&s->second);
    }
    return NULL;
}

static void current_device_and_last_error_belong_to_the_thread(void **state) {
    (void)state;
    int last = device_count() - 1;
    CHECK(cudaSetDevice(last));
    assert_int_equal(cudaSetDevice(last + 1), cudaErrorInvalidDevice);
    pthread_t thread;
    seen s = {.first = -1, .second = -1};
    assert_int_equal(pthread_create(&thread, NULL, look, &s), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(s.status, cudaSuccess);
    assert_int_equal(s.first, 0);
    assert_int_equal(s.second, last);
    assert_int_equal(s.error, cudaSuccess);
    int mine = -1;
    CHECK(cudaGetDevice(&mine));
    assert_int_equal(mine, last);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
}

static void get_last_error_forgets_and_peek_does_not(void **state) {
    (void)state;
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(cudaSetDevice(-1), cudaErrorInvalidDevice);
    CHECK(cudaSetDevice(0)); /* a success does not clear it */
    assert_int_equal(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
}

static void bad_arguments_are_refused(void **state) {
    (void)state;
    cudaStream_t stream = NULL;
    cudaEvent_t event = NULL;
    struct cudaDeviceProp prop;
    int access = 0;
    int count = device_count();
    CHECK_REFUSED(cudaGetDeviceCount(NULL), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaSetDevice(count), cudaErrorInvalidDevice);
    CHECK_REFUSED(cudaSetDevice(-1), cudaErrorInvalidDevice);
    CHECK_REFUSED(cudaGetDevice(NULL), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaGetDeviceProperties(&prop, count), cudaErrorInvalidDevice);
    CHECK_REFUSED(cudaDeviceGetAttribute(NULL, cudaDevAttrWarpSize, 0), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaDeviceGetAttribute(&access, (enum cudaDeviceAttr)0, 0), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaDeviceGetAttribute(&access, cudaDevAttrWarpSize, count), cudaErrorInvalidDevice);
    CHECK_REFUSED(cudaDeviceGetAttribute(&access, cudaDevAttrWarpSize, -1), cudaErrorInvalidDevice);
    CHECK_REFUSED(cudaStreamCreate(NULL), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaStreamCreateWithFlags(&stream, 0x80), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaStreamDestroy(NULL), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaEventCreate(NULL), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaEventCreateWithFlags(&event, 0x80), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaEventRecord(NULL, 0), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaEventQuery(NULL), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaEventSynchronize(NULL), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaEventDestroy(NULL), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaStreamWaitEvent(0, NULL, 0), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaLaunchHostFunc(0, NULL, NULL), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaDeviceCanAccessPeer(&access, 0, count), cudaErrorInvalidDevice);
    CHECK_REFUSED(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice); /* itself */
    CHECK_REFUSED(cudaDeviceEnablePeerAccess(count, 0), cudaErrorInvalidDevice);
    CHECK_REFUSED(cudaRuntimeGetVersion(NULL), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaDriverGetVersion(NULL), cudaErrorInvalidValue);
}

static void peer_access_is_switched_once(void **state) {
    (void)state;
    int possible = 1;
    CHECK(cudaDeviceCanAccessPeer(&possible, 0, 0));
    assert_int_equal(possible, 0);
    if (device_count() < 2) {
        skip();
    }
    CHECK(cudaDeviceCanAccessPeer(&possible, 0, 1));
    if (!possible) {
        skip();
    }
    CHECK_REFUSED(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
    CHECK_REFUSED(cudaDeviceEnablePeerAccess(1, 1), cudaErrorInvalidValue);
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    CHECK_REFUSED(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    CHECK(cudaSetDevice(1)); /* one direction only */
    CHECK_REFUSED(cudaDeviceDisablePeerAccess(0), cudaErrorPeerAccessNotEnabled);
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceDisablePeerAccess(1));
    CHECK_REFUSED(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
}

static void devices_describe_themselves(void **state) {
    (void)state;
    for (int device = 0; device < device_count(); device++) {
        struct cudaDeviceProp prop;
        CHECK(cudaGetDeviceProperties(&prop, device));
        CHECK(cudaSetDevice(device));
        size_t available = 0;
        size_t total = 0;
        CHECK(cudaMemGetInfo(&available, &total));
        assert_true(prop.totalGlobalMem >= total);
        assert_true(strlen(prop.name) > 0);
        assert_true(prop.multiProcessorCount > 0);
        assert_int_equal(prop.warpSize, 32);
    }
    int runtime = 0;
    int driver = 0;
    CHECK(cudaRuntimeGetVersion(&runtime));
    CHECK(cudaDriverGetVersion(&driver));
    assert_int_equal(runtime, CUDART_VERSION);
    assert_true(driver >= 12000);
}

static void attributes_are_those_of_the_properties(void **state) {
    (void)state;
    for (int device = 0; device < device_count(); device++) {
        struct cudaDeviceProp prop;
        CHECK(cudaGetDeviceProperties(&prop, device));
        const struct {
            enum cudaDeviceAttr attribute;
            int value;
        } expected[] = {
            {cudaDevAttrMaxThreadsPerBlock, prop.maxThreadsPerBlock},
            {cudaDevAttrWarpSize, prop.warpSize},
            {cudaDevAttrMaxRegistersPerBlock, prop.regsPerBlock},
            {cudaDevAttrMultiProcessorCount, prop.multiProcessorCount},
            {cudaDevAttrConcurrentKernels, prop.concurrentKernels},
            {cudaDevAttrAsyncEngineCount, prop.asyncEngineCount},
            {cudaDevAttrUnifiedAddressing, prop.unifiedAddressing},
            {cudaDevAttrComputeCapabilityMajor, prop.major},
            {cudaDevAttrComputeCapabilityMinor, prop.minor},
        };
        for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
            int value = -1;
            CHECK(cudaDeviceGetAttribute(&value, expected[i].attribute, device));
            assert_int_equal(value, expected[i].value);
        }
    }
}

static void errors_have_cudas_names_and_texts(void **state) {
    (void)state;
    assert_string_equal(cudaGetErrorName(cudaSuccess), "cudaSuccess");
    assert_string_equal(cudaGetErrorString(cudaSuccess), "no error");
    assert_string_equal(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
    assert_string_equal(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument");
    assert_string_equal(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
    assert_string_equal(cudaGetErrorString(cudaErrorInvalidDevice), "invalid device ordinal");
    assert_string_equal(cudaGetErrorString(cudaErrorInvalidResourceHandle), "invalid resource handle");
    assert_string_equal(cudaGetErrorString(cudaErrorNotReady), "device not ready");
    assert_string_equal(cudaGetErrorString(cudaErrorPeerAccessAlreadyEnabled), "peer access is already enabled");
    assert_string_equal(cudaGetErrorName((cudaError_t)123456), "unrecognized error code");
}

int main(void) {
    alarm(TEST_SECONDS);
    const struct CMUnitTest tests[] = {
        RUNTIME_TEST(current_device_and_last_error_belong_to_the_thread),
        RUNTIME_TEST(get_last_error_forgets_and_peek_does_not),
        RUNTIME_TEST(bad_arguments_are_refused),
        RUNTIME_TEST(peer_access_is_switched_once),
        RUNTIME_TEST(devices_describe_themselves),
        RUNTIME_TEST(attributes_are_those_of_the_properties),
        RUNTIME_TEST(errors_have_cudas_names_and_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
