#include <string.h>
#include <time.h>

#include "bench/micro/job.h"
#include "bench/micro/ops.h"
#include "gpu/base/clock.h"

const ls_micro_op *const ls_micro_ops[] = {
    &ls_micro_op_nccl, &ls_micro_op_mpi, &ls_micro_op_memory, &ls_micro_op_fma,
    &ls_micro_op_line, &ls_micro_op_ddp, &ls_micro_op_apart,  NULL,
};

const ls_micro_op *ls_micro_op_find(const char *name) {
    for (size_t i = 0; ls_micro_ops[i] != NULL; i++) {
        if (strcmp(ls_micro_ops[i]->name, name) == 0) {
            return ls_micro_ops[i];
        }
    }
    return NULL;
}

ls_rc ls_micro_time(ls_micro_place *place, void *self, ls_rc (*prepare)(void *self), ls_rc (*run)(void *self),
                    size_t iterations, double *seconds) {
    for (size_t i = 0; i < iterations; i++) {
        if (prepare != NULL) {
            LS_TRY(prepare(self));
        }
        ls_micro_page_barrier(place->page);
        double begin = ls_now_seconds();
        LS_TRY(run(self));
        seconds[i] = ls_now_seconds() - begin;
    }
    return LS_OK;
}

ls_rc ls_micro_stream(ls_micro_place *place) {
    LS_CUDA(cudaSetDevice(place->device));
    if (place->stream == NULL) {
        LS_CUDA(cudaStreamCreateWithFlags(&place->stream, cudaStreamNonBlocking));
    }
    return LS_OK;
}

ls_rc ls_micro_communicator(ls_micro_place *place) {
    LS_TRY(ls_micro_stream(place));
    if (place->comm != NULL) {
        return LS_OK;
    }
    if (place->rank == 0) {
        LS_NCCL(ncclGetUniqueId(&place->page->id));
    }
    ls_micro_page_barrier(place->page);
    LS_NCCL(ncclCommInitRank(&place->comm, (int)place->world, place->page->id, (int)place->rank));
    return LS_OK;
}

void ls_micro_place_close(ls_micro_place *place, bool failed) {
    if (place->comm != NULL) {
        (void)(failed ? ncclCommAbort(place->comm) : ncclCommDestroy(place->comm));
        place->comm = NULL;
    }
    if (place->stream != NULL) {
        (void)cudaStreamDestroy(place->stream);
        place->stream = NULL;
    }
}
