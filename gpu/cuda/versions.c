#include "gpu/cuda/versions.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#if __has_include(<cudnn_version.h>)
#include <cudnn_version.h>
#endif

/* A version as major * major_unit + minor * minor_unit + patch. */
typedef struct version {
    const char *name, *file; /* file: of the library, the number behind it is its major version */
    long long built, found, major_unit, minor_unit;
} version;

static bool fits(const version *v) {
    return v->found / v->major_unit == v->built / v->major_unit && v->found >= v->built;
}

static ls_rc refuse(const version *v) {
    return ls_fail(
        LS_DEVICE_FAILED,
        "%s here is %lld.%lld, this program was built with %lld.%lld: expected that or a newer one of the same "
        "major version; put the folder of such a %s first in LD_LIBRARY_PATH, or build with what is here",
        v->name, v->found / v->major_unit, v->found % v->major_unit / v->minor_unit, v->built / v->major_unit,
        v->built % v->major_unit / v->minor_unit, v->file);
}

static ls_rc check(version v, long long found) {
    v.found = found;
    return fits(&v) ? LS_OK : refuse(&v);
}

static ls_rc check_all(void) {
    int runtime = 0, nccl = 0;
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess || ncclGetVersion(&nccl) != ncclSuccess) {
        return ls_fail(LS_DEVICE_FAILED, "the CUDA runtime and NCCL do not say their versions: they are damaged");
    }
    LS_TRY(check((version){"the CUDA runtime", "libcudart.so", CUDART_VERSION, 0, 1000, 10}, runtime));
    LS_TRY(check((version){"NCCL", "libnccl.so", NCCL_VERSION_CODE, 0, 10000, 100}, nccl));
#ifdef CUDNN_VERSION
    /* by name: a program without cuDNN is built with other sources, not with another version of this one */
    size_t (*cudnn)(void) = NULL;
    *(void **)&cudnn = dlsym(RTLD_DEFAULT, "cudnnGetVersion");
    if (cudnn != NULL) {
        LS_TRY(check((version){"cuDNN", "libcudnn.so", CUDNN_VERSION, 0, 10000, 100}, (long long)cudnn()));
    }
#endif
    return LS_OK;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ls_rc verdict = LS_OK;

static void look(void) {
    verdict = check_all();
}

ls_rc ls_versions_check(void) {
    return pthread_once(&once, look) == 0 ? verdict : LS_DEVICE_FAILED;
}
