#include "impls/ddp_overlap.h"

#include <stdlib.h>
#include <string.h>

ls_rc ls_ddp_overlap_open(ls_ddp_overlap *overlap) {
    *overlap = (ls_ddp_overlap){0};
    for (size_t i = 0; i < LS_OVERLAP_SLOTS; i++) {
        LS_CUDA(cudaEventCreate(&overlap->slots[i].reduction));
        LS_CUDA(cudaEventCreate(&overlap->slots[i].backward));
    }
    return LS_OK;
}

void ls_ddp_overlap_close(ls_ddp_overlap *overlap) {
    for (size_t i = 0; i < LS_OVERLAP_SLOTS; i++) {
        if (overlap->slots[i].reduction != NULL) {
            (void)cudaEventDestroy(overlap->slots[i].reduction);
        }
        if (overlap->slots[i].backward != NULL) {
            (void)cudaEventDestroy(overlap->slots[i].backward);
        }
    }
    *overlap = (ls_ddp_overlap){0};
}

/* Takes the measurement of a slot if both events have passed. */
static void collect(ls_ddp_overlap *overlap, size_t slot) {
    float lead = 0;
    if (!overlap->slots[slot].recorded || cudaEventQuery(overlap->slots[slot].reduction) != cudaSuccess ||
        cudaEventQuery(overlap->slots[slot].backward) != cudaSuccess ||
        cudaEventElapsedTime(&lead, overlap->slots[slot].reduction, overlap->slots[slot].backward) != cudaSuccess) {
        return;
    }
    overlap->slots[slot].recorded = false;
    overlap->leads[overlap->measured % LS_OVERLAP_KEPT] = lead;
    overlap->measured++;
    overlap->steps += lead > 0;
}

void ls_ddp_overlap_begin(ls_ddp_overlap *overlap) {
    collect(overlap, overlap->next);
    overlap->measuring = !overlap->slots[overlap->next].recorded;
}

void ls_ddp_overlap_end(ls_ddp_overlap *overlap) {
    if (overlap->measuring) {
        overlap->slots[overlap->next].recorded = true;
        overlap->next = (overlap->next + 1) % LS_OVERLAP_SLOTS;
        overlap->measuring = false;
    }
}

ls_rc ls_ddp_overlap_reduction(ls_ddp_overlap *overlap, cudaStream_t stream) {
    if (overlap->measuring) {
        LS_CUDA(cudaEventRecord(overlap->slots[overlap->next].reduction, stream));
    }
    return LS_OK;
}

ls_rc ls_ddp_overlap_backward(ls_ddp_overlap *overlap, cudaStream_t stream) {
    if (overlap->measuring) {
        LS_CUDA(cudaEventRecord(overlap->slots[overlap->next].backward, stream));
    }
    return LS_OK;
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void ls_ddp_overlap_read(ls_ddp_overlap *overlap, ls_counters *out) {
    for (size_t i = 0; i < LS_OVERLAP_SLOTS; i++) {
        collect(overlap, i);
    }
    out->overlap_steps = overlap->steps;
    out->overlap_measured = overlap->measured;
    out->overlap_lead = 0.0;
    size_t kept = overlap->measured < LS_OVERLAP_KEPT ? (size_t)overlap->measured : LS_OVERLAP_KEPT;
    if (kept > 0) {
        float sorted[LS_OVERLAP_KEPT];
        memcpy(sorted, overlap->leads, kept * sizeof sorted[0]);
        qsort(sorted, kept, sizeof sorted[0], compare);
        out->overlap_lead = (kept % 2 ? sorted[kept / 2] : 0.5f * (sorted[kept / 2 - 1] + sorted[kept / 2])) * 1e-3f;
    }
}
