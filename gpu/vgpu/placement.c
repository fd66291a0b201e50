/* Where a device's threads start. The scheduler tends to start all ranks of a run on one core and needs tens of milliseconds
 * to spread them, as long as a whole short measurement. */
#include <sched.h>

#include "gpu/vgpu/runtime.h"

/* Moves the calling thread to a core now; from then on the scheduler is free, so that several programs share the machine
 * fairly. */
static void move_to(int cpu, const cpu_set_t *allowed) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0) {
        sched_setaffinity(0, sizeof *allowed, allowed);
    }
}

void vgpu_place_thread(int device) {
    cpu_set_t allowed;
    if (device < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return; /* a hint only: without it the scheduler finds its own way */
    }
    int cores = CPU_COUNT(&allowed), seen = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && cores > 1; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && seen++ == device % cores) {
            move_to(cpu, &allowed);
            return;
        }
    }
}

void vgpu_leave_cores(const cpu_set_t *taken) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return;
    }
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && !CPU_ISSET(cpu, taken)) {
            move_to(cpu, &allowed);
            return;
        }
    }
}
