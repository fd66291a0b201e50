/* Devices: the current one of a thread, properties, synchronisation, peers, reset. */
#include "gpu/vgpu/graph.h"

static vgpu_device devices[VGPU_MAX_DEVICES];
static pthread_once_t devices_once = PTHREAD_ONCE_INIT;
static _Thread_local int current_device = 0;

static void prepare_devices(void) {
    for (int i = 0; i < VGPU_MAX_DEVICES; i++) {
        pthread_mutex_init(&devices[i].streams_lock, NULL);
        vgpu_stream_prepare(&devices[i].legacy);
        devices[i].legacy.device = i;
    }
}

static bool exists(int device) {
    return device >= 0 && device < vgpu_get_settings()->devices;
}

vgpu_device *vgpu_device_get(int device) {
    pthread_once(&devices_once, prepare_devices);
    return exists(device) ? &devices[device] : NULL;
}

int vgpu_current_device(void) {
    return current_device;
}

void vgpu_set_current_device(int device) {
    current_device = device;
}

cudaError_t vgpu_device_error(int device) {
    return (cudaError_t)atomic_load_explicit(&devices[device].error, memory_order_acquire);
}

void vgpu_device_fail(int device, cudaError_t status) {
    int well = cudaSuccess;
    atomic_compare_exchange_strong(&devices[device].error, &well, (int)status);
}

/* A stream and the position up to which it is waited for. Streams never go away as objects, so the list may be left. */
typedef struct pending {
    vgpu_stream *stream;
    uint64_t position;
} pending;

void vgpu_device_wait(int number) {
    vgpu_device *device = vgpu_device_get(number);
    enum { BATCH = 64 };
    bool more = true;
    while (more) {
        pending list[BATCH];
        size_t count = 0;
        more = false;
        pthread_mutex_lock(&device->streams_lock);
        for (vgpu_stream *stream = device->streams; stream != NULL && !more; stream = stream->next) {
            uint64_t position = atomic_load(&stream->submitted);
            if (!vgpu_stream_reached(stream, position)) {
                list[count] = (pending){stream, position};
                count++;
                more = count == BATCH;
            }
        }
        pthread_mutex_unlock(&device->streams_lock);
        for (size_t i = 0; i < count; i++) {
            vgpu_stream_wait(list[i].stream, list[i].position);
        }
    }
    vgpu_stream_wait(&device->legacy, atomic_load(&device->legacy.submitted));
    vgpu_check_device_wait(number);
}

cudaError_t cudaGetDeviceCount(int *count) {
    if (count == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    const vgpu_settings *settings = vgpu_get_settings();
    *count = settings->status == cudaSuccess ? settings->devices : 0;
    return vgpu_leave(settings->status);
}

cudaError_t cudaSetDevice(int device) {
    if (vgpu_on_stream_thread()) {
        return vgpu_leave(cudaErrorNotPermitted);
    }
    if (vgpu_get_settings()->status != cudaSuccess) {
        return vgpu_leave(vgpu_get_settings()->status);
    }
    if (vgpu_device_get(device) == NULL) {
        return vgpu_leave(cudaErrorInvalidDevice);
    }
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    if (device == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device) {
    if (prop == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    if (!exists(device)) {
        return vgpu_leave(cudaErrorInvalidDevice);
    }
    *prop = (struct cudaDeviceProp){
        .name = "Lockstep virtual GPU",
        .totalGlobalMem = vgpu_get_settings()->memory,
        .sharedMemPerBlock = 48 * 1024,
        .regsPerBlock = 65536,
        .warpSize = 32,
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .major = 9,
        .minor = 0,
        .multiProcessorCount = 1,
        .canMapHostMemory = 1,
        .concurrentKernels = 1,
        .pciBusID = device,
        .asyncEngineCount = vgpu_get_settings()->copies ? 1 : 0,
        .unifiedAddressing = 1,
        .l2CacheSize = 1 << 20,
        .maxThreadsPerMultiProcessor = 2048,
        .streamPrioritiesSupported = 1,
    };
    return cudaSuccess;
}

/* The value of an attribute, or NULL. */
static const int *attribute(const struct cudaDeviceProp *prop, enum cudaDeviceAttr attr) {
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
        return &prop->maxThreadsPerBlock;
    case cudaDevAttrWarpSize:
        return &prop->warpSize;
    case cudaDevAttrMaxRegistersPerBlock:
        return &prop->regsPerBlock;
    case cudaDevAttrMultiProcessorCount:
        return &prop->multiProcessorCount;
    case cudaDevAttrConcurrentKernels:
        return &prop->concurrentKernels;
    case cudaDevAttrAsyncEngineCount:
        return &prop->asyncEngineCount;
    case cudaDevAttrUnifiedAddressing:
        return &prop->unifiedAddressing;
    case cudaDevAttrComputeCapabilityMajor:
        return &prop->major;
    case cudaDevAttrComputeCapabilityMinor:
        return &prop->minor;
    default:
        return NULL;
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device) {
    struct cudaDeviceProp prop;
    if (value == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    cudaError_t status = cudaGetDeviceProperties(&prop, device);
    if (status != cudaSuccess) {
        return status;
    }
    const int *held = attribute(&prop, attr);
    if (held == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    *value = *held;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    VGPU_ENTER();
    cudaError_t refused = vgpu_capture_asked_device(current_device);
    if (refused != cudaSuccess) {
        return vgpu_leave(refused);
    }
    vgpu_device_wait(current_device);
    return vgpu_leave(vgpu_device_error(current_device));
}

cudaError_t cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice) {
    VGPU_ENTER();
    if (canAccessPeer == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    if (!exists(device) || !exists(peerDevice)) {
        return vgpu_leave(cudaErrorInvalidDevice);
    }
    *canAccessPeer = device != peerDevice;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
    VGPU_ENTER();
    if (flags != 0) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    if (!exists(peerDevice) || peerDevice == current_device) {
        return vgpu_leave(cudaErrorInvalidDevice);
    }
    uint64_t bit = (uint64_t)1 << peerDevice;
    uint64_t before = atomic_fetch_or(&vgpu_device_get(current_device)->peers, bit);
    return vgpu_leave(before & bit ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess);
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice) {
    VGPU_ENTER();
    if (!exists(peerDevice)) {
        return vgpu_leave(cudaErrorInvalidDevice);
    }
    uint64_t bit = (uint64_t)1 << peerDevice;
    uint64_t before = atomic_fetch_and(&vgpu_device_get(current_device)->peers, ~bit);
    return vgpu_leave(before & bit ? cudaSuccess : cudaErrorPeerAccessNotEnabled);
}

cudaError_t cudaRuntimeGetVersion(int *runtimeVersion) {
    if (runtimeVersion == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    *runtimeVersion = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *driverVersion) {
    if (driverVersion == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    *driverVersion = CUDART_VERSION;
    return cudaSuccess;
}

static void close_stream_of(void *object, uintptr_t handle, void *device) {
    vgpu_stream *stream = object;
    if (stream->device == *(int *)device) {
        vgpu_stream_close(stream, (cudaStream_t)handle); /* false: destroyed meanwhile, which is as good */
    }
}

cudaError_t cudaDeviceReset(void) {
    if (vgpu_on_stream_thread()) {
        return vgpu_leave(cudaErrorNotPermitted);
    }
    vgpu_device *device = vgpu_device_get(current_device);
    if (device == NULL) {
        return vgpu_leave(vgpu_get_settings()->status);
    }
    int number = current_device;
    vgpu_capture_reset(number);
    vgpu_device_wait(number);
    vgpu_pool_each(&vgpu_streams, close_stream_of, &number);
    vgpu_events_reset(number);
    vgpu_memory_reset(number);
    atomic_store(&device->peers, 0);
    atomic_store(&device->error, cudaSuccess);
    return cudaSuccess;
}
