/* What MPI does with device pointers: what the library says, and whether it is so. */
#include <mpi.h>
#include <stdlib.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include "gpu/gpu.h"
#include "impls/launch_mpi_buffers.h"
#include "impls/mpi_check.h"

enum { MANY = 1 << 16, FEW = 8 }; /* values of the probe: libraries move small and large messages in different ways */

/* On virtual GPUs device memory is the process's own: any does. */
bool ls_mpi_takes_device_pointers(void) {
    if (ls_platform_memory_is_host()) {
        return true;
    }
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    return MPIX_Query_cuda_support() == 1;
#else
    return false;
#endif
}

ls_rc ls_mpi_buffers_of_rank(const ls_run *run, bool *on_device) {
    *on_device = run->mpi_buffers == LS_MPI_BUFFERS_DEVICE;
    if (*on_device && !ls_mpi_takes_device_pointers()) {
        return ls_fail(LS_BAD_INPUT, "--mpi-buffers device: this MPI library does not take device pointers "
                                     "(MPIX_Query_cuda_support); use host");
    }
    return LS_OK;
}

/* The sum over ranks r of (r + 1) * (i % 7 + 1), in device memory: exact in float32. */
static ls_rc sum_on_device(const ls_mpi_world *world, size_t count, float *device, float *host) {
    for (size_t i = 0; i < count; i++) {
        host[i] = (float)((world->rank + 1) * (i % 7 + 1));
    }
    LS_CUDA(cudaMemcpy(device, host, count * sizeof *host, cudaMemcpyHostToDevice));
    LS_CUDA(cudaDeviceSynchronize()); /* MPI knows nothing of streams */
    LS_MPI(MPI_Allreduce(MPI_IN_PLACE, device, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
    LS_CUDA(cudaMemcpy(host, device, count * sizeof *host, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++) {
        size_t expected = world->size * (world->size + 1) / 2 * (i % 7 + 1);
        if (host[i] != (float)expected) {
            return ls_fail(LS_DEVICE_FAILED, "mpi-probe: value %zu of %zu is %g, expected %zu", i, count,
                           (double)host[i], expected);
        }
    }
    return LS_OK;
}

static ls_rc run_probe(const ls_mpi_world *world) {
    size_t present = 0;
    float *device = NULL;
    LS_TRY(ls_platform_device_count(&present));
    LS_CUDA(cudaSetDevice((int)(world->local_rank % present)));
    LS_CUDA(cudaMalloc(&device, MANY * sizeof *device));
    float *host = ls_calloc(MANY, sizeof *host, "the probe");
    ls_rc rc = host != NULL ? sum_on_device(world, FEW, device, host) : LS_DEVICE_FAILED;
    rc = rc == LS_OK ? sum_on_device(world, MANY, device, host) : rc;
    free(host);
    (void)cudaFree(device);
    return rc;
}

ls_rc ls_mpi_probe_main(int argc, char **argv) {
    (void)argv;
    ls_mpi_world world;
    if (argc != 0) {
        return ls_fail(LS_BAD_INPUT, "mpi-probe takes no arguments; the launcher starts it");
    }
    LS_TRY(ls_mpi_start(&world));
    ls_rc rc = run_probe(&world);
    ls_mpi_stop(rc != LS_OK);
    return rc;
}
