#include "impls/ddp_register.h"

#include "gpu/nccl_register.h"

static ls_rc allocate(void **pointer, size_t bytes) {
    *pointer = NULL;
    ncclResult_t status = LS_AT(ls_nccl_mem_alloc(pointer, bytes));
    if (status == ncclSuccess) {
        return LS_OK;
    }
    const char *words = ncclGetLastError(NULL);
    bool known = words != NULL && words[0] != '\0';
    const char *code = ncclGetErrorString(status);
    return ls_fail(LS_DEVICE_FAILED, "NCCL: ncclMemAlloc of %zu bytes for gradients: %s%s%s", bytes, code,
                   known ? ": " : "", known ? words : "");
}

static void release(void *pointer, ls_rc *rc) {
    ncclResult_t status = pointer == NULL ? ncclSuccess : LS_AT(ls_nccl_mem_free(pointer));
    if (*rc == LS_OK) {
        *rc = ls_nccl_check(status, "ncclMemFree", __FILE__, __LINE__);
    }
}

const ls_device_memory ls_ddp_register_memory = {allocate, release};

ls_rc ls_ddp_register_open(ls_ddp_watch *watch, void *memory, size_t bytes, void **handle) {
    *handle = NULL;
    LS_TRY(ls_ddp_watch_begin(watch));
    ls_rc rc = ls_ddp_watch_check(watch, ls_nccl_register(watch->comm, memory, bytes, handle), "ncclCommRegister",
                                  __FILE__, __LINE__);
    ls_ddp_watch_end(watch);
    LS_TRY(rc);
    if (*handle == NULL) {
        return ls_fail(LS_BAD_INPUT, "--nccl-register: NCCL has not registered the gradients: unset "
                                     "NCCL_LOCAL_REGISTER and NCCL_P2P_USE_CUDA_MEMCPY, or leave the option out");
    }
    return LS_OK;
}

void ls_ddp_register_close(ls_ddp_watch *watch, cudaStream_t stream, void *handle) {
    if (handle == NULL || ls_ddp_watch_wait(watch, stream) != LS_OK || ls_ddp_watch_begin(watch) != LS_OK) {
        return; /* the cause has been printed; the abort has deregistered */
    }
    (void)ls_ddp_watch_check(watch, ls_nccl_deregister(watch->comm, handle), "ncclCommDeregister", __FILE__, __LINE__);
    ls_ddp_watch_end(watch);
}
