/* What the cuda platform says where it cannot run: no driver, one that is too old, no device, hidden devices, libraries of other
 * versions, memory, an unsupported GPU. The CUDA runtime and NCCL are stand-ins that answer as a test sets them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/gpu.h"
#if __has_include(<cudnn_version.h>)
#include <cudnn_version.h>
#endif

static struct machine {
    int driver, runtime, nccl, devices;
    size_t cudnn;
    cudaError_t counting, launch;
} machine;

cudaError_t cudaGetDeviceCount(int *count) {
    if (machine.counting == cudaSuccess) {
        *count = machine.devices;
    }
    return machine.counting;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = machine.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = machine.runtime;
    return cudaSuccess;
}

ncclResult_t ncclGetVersion(int *version) {
    *version = machine.nccl;
    return ncclSuccess;
}

/* Found by name, as the real one. */
size_t cudnnGetVersion(void);
size_t cudnnGetVersion(void) {
    return machine.cudnn;
}

const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "out of memory" : "words";
}

const char *cudaGetErrorName(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOther";
}

const char *ncclGetErrorString(ncclResult_t result) {
    (void)result;
    return "words";
}

const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return "";
}

cudaError_t(cudaMalloc)(void **memory, size_t bytes) {
    (void)memory;
    (void)bytes;
    return cudaErrorMemoryAllocation;
}

cudaError_t(cudaMallocHost)(void **memory, size_t bytes) {
    (void)memory;
    (void)bytes;
    return cudaErrorMemoryAllocation;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    *available = (size_t)3 << 29; /* 1.5 GiB */
    *total = (size_t)80 << 30;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    (void)device;
    memset(properties, 0, sizeof *properties);
    (void)snprintf(properties->name, sizeof properties->name, "Tesla V100");
    properties->major = 7;
    properties->minor = 0;
    return cudaSuccess;
}

static ls_rc count_devices(void) {
    size_t count = 0;
    return ls_platform_device_count(&count);
}

static ls_rc allocate(void) {
    void *memory = NULL;
    LS_CUDA(cudaMalloc(&memory, (size_t)12 << 30));
    return LS_OK;
}

static ls_rc allocate_pinned(void) {
    void *memory = NULL;
    LS_CUDA(cudaMallocHost(&memory, (size_t)2 << 30));
    return LS_OK;
}

static ls_rc launch(void) {
    LS_CUDA(machine.launch);
    return LS_OK;
}

/* What the call says in a process of its own, since versions are looked at once a process: its return value, and its line. */
static int says(ls_rc (*call)(void), char *text, size_t size) {
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        _exit((int)call());
    }
    (void)close(ends[1]);
    size_t used = 0;
    ssize_t got = 0;
    while (used < size - 1 && (got = read(ends[0], text + used, size - 1 - used)) > 0) {
        used += (size_t)got;
    }
    text[used] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect_line(ls_rc (*call)(void), const char *first, const char *second) {
    char text[4096];
    assert_int_equal(says(call, text, sizeof text), LS_DEVICE_FAILED);
    if (strstr(text, first) == NULL || strstr(text, second) == NULL) {
        fail_msg("expected '%s' and '%s', found: %s", first, second, text);
    }
    assert_ptr_equal(strchr(text, '\n') + 1, text + strlen(text)); /* one line */
}

static int set_up(void **state) {
    (void)state;
    machine = (struct machine){.driver = CUDART_VERSION,
                               .runtime = CUDART_VERSION,
                               .nccl = NCCL_VERSION_CODE,
                               .cudnn = SIZE_MAX,
                               .devices = 2};
#ifdef CUDNN_VERSION
    machine.cudnn = CUDNN_VERSION;
#endif
    return unsetenv("CUDA_VISIBLE_DEVICES");
}

static void a_whole_machine_is_silent(void **state) {
    (void)state;
    char text[64];
    assert_int_equal(says(count_devices, text, sizeof text), LS_OK);
    assert_string_equal(text, "");
    machine.runtime += 10; /* a newer minor version serves */
    machine.nccl += 100;
    assert_int_equal(says(count_devices, text, sizeof text), LS_OK);
}

static void a_missing_driver_and_an_old_one_differ(void **state) {
    (void)state;
    machine.counting = cudaErrorInsufficientDriver;
    machine.driver = 0;
    expect_line(count_devices, "no NVIDIA driver", "--gpus all");
    machine.driver = 11020;
    expect_line(count_devices, "driver is too old", "for CUDA 11.2, this program's runtime is");
}

static void no_device_says_why(void **state) {
    (void)state;
    machine.counting = cudaErrorNoDevice;
    expect_line(count_devices, "no GPU: cudaGetDeviceCount finds none", "nvidia-smi");
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);
    expect_line(count_devices, "CUDA_VISIBLE_DEVICES=''", "unset it");
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "7", 1), 0);
    machine.counting = cudaSuccess;
    machine.devices = 0;
    expect_line(count_devices, "CUDA_VISIBLE_DEVICES='7'", "nvidia-smi -L");
    machine.counting = cudaErrorSystemNotReady;
    expect_line(count_devices, "CUDA error 802", "nvidia-smi");
}

static void other_libraries_are_refused(void **state) {
    (void)state;
    machine.runtime = CUDART_VERSION - 1000;
    expect_line(count_devices, "the CUDA runtime here is", "libcudart.so first in LD_LIBRARY_PATH");
    machine.runtime = CUDART_VERSION + 1000;
    expect_line(count_devices, "the CUDA runtime here is", "same major version");
    machine.runtime = CUDART_VERSION;
    machine.nccl = NCCL_VERSION_CODE - 100;
    expect_line(count_devices, "NCCL here is", "libnccl.so");
    machine.nccl = NCCL_VERSION_CODE;
#ifdef CUDNN_VERSION
    machine.cudnn = 80904;
    expect_line(count_devices, "cuDNN here is 8.9, this program was built with", "libcudnn.so");
#endif
}

static void memory_says_how_much(void **state) {
    (void)state;
    expect_line(allocate,
                "cudaErrorMemoryAllocation (out of memory); asked for 12 GiB, 1.5 of the device's 80 GiB are free",
                "--batch");
    expect_line(allocate_pinned, "asked for 2 GiB of pinned host memory", "--batch");
}

static void an_unsupported_gpu_is_named(void **state) {
    (void)state;
    machine.launch = cudaErrorNoKernelImageForDevice;
    expect_line(launch, "no kernels for Tesla V100, compute capability 7.0", "-DLOCKSTEP_CUDA_ARCHITECTURES=70");
    machine.launch = cudaErrorLaunchFailure;
    expect_line(launch, "platform_errors.c", "failed: cudaErrorOther (words)\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_whole_machine_is_silent, set_up),
        cmocka_unit_test_setup(a_missing_driver_and_an_old_one_differ, set_up),
        cmocka_unit_test_setup(no_device_says_why, set_up),
        cmocka_unit_test_setup(other_libraries_are_refused, set_up),
        cmocka_unit_test_setup(memory_says_how_much, set_up),
        cmocka_unit_test_setup(an_unsupported_gpu_is_named, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
