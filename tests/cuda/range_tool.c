/* A tool that listens to NVTX as Nsight Systems does, loaded by NVTX itself (NVTX_INJECTION64_PATH): what it heard, as text. */
#include <stdio.h>
#include <string.h>

#include <nvtx3/nvToolsExt.h>

#include "tests/cuda/range_tool.h"

static char text[RANGE_TOOL_TEXT];

static void append(const char *more) {
    (void)strncat(text, more, sizeof text - 1 - strlen(text));
}

static nvtxDomainHandle_t NVTX_API create_domain(const char *name) {
    append(name);
    append(": ");
    return (nvtxDomainHandle_t)(void *)text;
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    char number[32] = "";
    append((void *)domain == (void *)text && event->version == NVTX_VERSION && event->size == sizeof *event &&
                   event->messageType == NVTX_MESSAGE_TYPE_ASCII
               ? event->message.ascii
               : "wrong");
    if (event->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64) {
        (void)snprintf(number, sizeof number, " %llu", (unsigned long long)event->payload.ullValue);
    }
    append(number);
    append("(");
    return 0;
}

static int NVTX_API pop(nvtxDomainHandle_t domain) {
    append((void *)domain == (void *)text ? ")" : "wrong");
    return 0;
}

/* What NVTX looks for: puts this tool's functions into its table. 1: it is there. */
__attribute__((visibility("default"))) int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
    const NvtxExportTableCallbacks *callbacks = (const NvtxExportTableCallbacks *)get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned int size = 0;
    if (callbacks == NULL || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
        size <= NVTX_CBID_CORE2_DomainCreateA) {
        return 0;
    }
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create_domain;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}

__attribute__((visibility("default"))) const char *range_tool_text(void) {
    return text;
}
