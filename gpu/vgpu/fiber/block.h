/* What the parts of the fiber runtime share: the running block and its threads. */
#ifndef LS_GPU_VGPU_FIBER_BLOCK_H
#define LS_GPU_VGPU_FIBER_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/vgpu/fiber/context.h"
#include "gpu/vgpu/fiber/fiber.h"
#include "gpu/vgpu/fiber/runtime.h"

enum { FIBER_WARP = 32 };

typedef enum fiber_state { FIBER_NEW, FIBER_READY, FIBER_AT_BARRIER, FIBER_IN_WARP, FIBER_ENDED } fiber_state;

typedef struct fiber_thread {
    fiber_state state; /* FIBER_READY: runs or may run */
    fiber_context *context;
    ls_fiber_place place; /* of the barrier or operation in which it waits */
    unsigned barriers;    /* that it has reached */
    /* its warp operation */
    ls_fiber_operation operation;
    unsigned mask;
    uint64_t value; /* brought, then the result */
    int argument, width;
    /* Time since the last barrier, in __syncwarps; knows[l]: everything that lane l did before its time knows[l] is done. */
    uint32_t time;
    uint32_t knows[FIBER_WARP];
} fiber_thread;

typedef struct fiber_block {
    const char *kernel;
    unsigned index, threads;
    unsigned current;  /* the running thread */
    uint64_t number;   /* of blocks since the program's start, this one included */
    uint64_t interval; /* between two barriers, counted likewise */
    fiber_thread thread[LS_FIBER_MAX_THREADS];
} fiber_block;

extern fiber_block fiber_now;

/* block.c */
void fiber_wait(fiber_state state, ls_fiber_place place); /* the running thread waits until fiber_wake */
void fiber_wake(unsigned thread);

/* warp.c: wakes those of the warp that waited for no one but thread, which has ended. */
void fiber_warp_ended(unsigned thread);
const char *fiber_operation_name(ls_fiber_operation operation);

/* shared.c: dynamic shared memory of a launch; false when memory is short. */
bool fiber_dynamic_open(size_t bytes);
void fiber_dynamic_close(void);

/* report.c: a line about the running kernel. place is where it is reported once for. */
void fiber_report(ls_fiber_place place, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fiber_outputs_check(void); /* reports what the launch left unwritten */

#endif
