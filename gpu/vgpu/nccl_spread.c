/* Ranks that share a core while others have none. The scheduler puts a thread that it wakes beside the one that woke it, and
 * leaves it there for many steps; two ranks on one core then take turns in every collective, at ten times its cost, and in
 * all that they compute. A rank that waits has nothing to lose: it moves away. */
#include <sched.h>

#include "gpu/vgpu/nccl_internal.h"

/* A move costs some 10 us: this keeps it below 1 % where the scheduler undoes every one. */
enum { MOVE_EVERY_NS = 1000000 };

unsigned nccl_core(void) {
    int core = sched_getcpu();
    return core >= 0 && core < CPU_SETSIZE ? (unsigned)core + 1 : 0;
}

static unsigned core_of(const nccl_operation *o, int rank) {
    const nccl_slot *slot = &o->comm->clique->control->slots[rank];
    return atomic_load_explicit(&slot->core, memory_order_relaxed);
}

bool nccl_shares_core(const nccl_operation *o, int peer) {
    unsigned core = nccl_core();
    return core != 0 && core == core_of(o, peer);
}

void nccl_spread(const nccl_operation *o) {
    ncclComm_t comm = o->comm;
    unsigned long long now = vgpu_now_ns();
    if (now < comm->move_after_ns) {
        return;
    }
    comm->move_after_ns = now + MOVE_EVERY_NS;
    cpu_set_t taken;
    CPU_ZERO(&taken);
    for (int rank = 0; rank < comm->ranks; rank++) {
        unsigned core = core_of(o, rank);
        if (rank != comm->rank && core > 0 && core <= CPU_SETSIZE) {
            CPU_SET(core - 1, &taken);
        }
    }
    vgpu_leave_cores(&taken);
}
