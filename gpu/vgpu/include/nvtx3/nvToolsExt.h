/* NVTX for virtual GPUs: the subset of NVIDIA's nvtx3/nvToolsExt.h that Lockstep uses, with the same names, layout and numeric
 * values. Nobody listens but a test (gpu/vgpu/ranges.h). */
#ifndef NVTOOLSEXT_H_
#define NVTOOLSEXT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NVTX_VERSION                     3
#define NVTX_NO_PUSH_POP_TRACKING        ((int)-2)
#define NVTX_PAYLOAD_UNKNOWN             0
#define NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 1
#define NVTX_MESSAGE_UNKNOWN             0
#define NVTX_MESSAGE_TYPE_ASCII          1

typedef struct nvtxDomainRegistration_st *nvtxDomainHandle_t;
typedef struct nvtxStringRegistration_st *nvtxStringHandle_t;

typedef union nvtxMessageValue_t {
    const char *ascii;
    const wchar_t *unicode;
    nvtxStringHandle_t registered;
} nvtxMessageValue_t;

typedef struct nvtxEventAttributes_v2 {
    uint16_t version; /* NVTX_VERSION */
    uint16_t size;    /* NVTX_EVENT_ATTRIB_STRUCT_SIZE */
    uint32_t category;
    int32_t colorType;
    uint32_t color;
    int32_t payloadType;
    int32_t reserved0;
    union payload_t {
        uint64_t ullValue;
        int64_t llValue;
        double dValue;
        uint32_t uiValue;
        int32_t iValue;
        float fValue;
    } payload;
    int32_t messageType;
    nvtxMessageValue_t message;
} nvtxEventAttributes_t;
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)sizeof(nvtxEventAttributes_t))

/* A program has one domain here: NULL when there is one. name stays the caller's and must stay as it is. */
nvtxDomainHandle_t nvtxDomainCreateA(const char *name);

/* The depth of the range that begins or ends, 0 for the outermost of the thread; NVTX_NO_PUSH_POP_TRACKING when nobody listens, or
 * none is open. */
int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event);
int nvtxDomainRangePop(nvtxDomainHandle_t domain);

#ifdef __cplusplus
}
#endif
#endif
