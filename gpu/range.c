/* Ranges by NVTX, whose header the platform brings: NVIDIA's, or vgpu's of the same name. */
#include "gpu/range.h"

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

static nvtxDomainHandle_t domain; /* NULL: nobody listens */

static void open_domain(void) {
    domain = nvtxDomainCreateA("lockstep");
}

static nvtxDomainHandle_t get_domain(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, open_domain);
    return domain;
}

static const char *push(const char *name, nvtxEventAttributes_t *event) {
    nvtxDomainHandle_t own = get_domain();
    if (own != NULL) {
        event->version = NVTX_VERSION;
        event->size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
        event->messageType = NVTX_MESSAGE_TYPE_ASCII;
        event->message.ascii = name;
        (void)nvtxDomainRangePushEx(own, event); /* how deep it is is the listener's business */
    }
    return name;
}

const char *ls_range_push(const char *name) {
    nvtxEventAttributes_t event = {0};
    return push(name, &event);
}

const char *ls_range_push_numbered(const char *name, uint64_t number) {
    nvtxEventAttributes_t event = {.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64, .payload.ullValue = number};
    return push(name, &event);
}

void ls_range_pop(const char *const *name) {
    nvtxDomainHandle_t own = get_domain();
    (void)name;
    if (own != NULL) {
        (void)nvtxDomainRangePop(own);
    }
}
