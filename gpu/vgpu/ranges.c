#include "gpu/vgpu/ranges.h"

#include <nvtx3/nvToolsExt.h>
#include <stdatomic.h>

struct nvtxDomainRegistration_st {
    const char *name;
};

static _Atomic(vgpu_range_listener) listening;
static _Thread_local int open_ranges;

void vgpu_ranges_listen(vgpu_range_listener listener) {
    atomic_store_explicit(&listening, listener, memory_order_release);
}

nvtxDomainHandle_t nvtxDomainCreateA(const char *name) {
    static struct nvtxDomainRegistration_st only;
    static atomic_flag created = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&created)) {
        return NULL;
    }
    only.name = name;
    return &only;
}

int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    vgpu_range_listener listener = atomic_load_explicit(&listening, memory_order_acquire);
    if (listener == NULL || event->version != NVTX_VERSION || event->size != NVTX_EVENT_ATTRIB_STRUCT_SIZE) {
        return NVTX_NO_PUSH_POP_TRACKING;
    }
    vgpu_range_event seen = {.domain = domain->name,
                             .name = event->messageType == NVTX_MESSAGE_TYPE_ASCII ? event->message.ascii : "",
                             .numbered = event->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
                             .depth = open_ranges++};
    seen.number = seen.numbered ? event->payload.ullValue : 0;
    listener(&seen);
    return seen.depth;
}

int nvtxDomainRangePop(nvtxDomainHandle_t domain) {
    vgpu_range_listener listener = atomic_load_explicit(&listening, memory_order_acquire);
    if (listener == NULL) {
        return NVTX_NO_PUSH_POP_TRACKING;
    }
    vgpu_range_event seen = {.domain = domain->name, .depth = open_ranges - 1};
    open_ranges -= open_ranges > 0;
    listener(&seen);
    return seen.depth < 0 ? NVTX_NO_PUSH_POP_TRACKING : seen.depth;
}
