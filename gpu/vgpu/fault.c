#include "gpu/vgpu/fault.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "gpu/base/error.h"
#include "gpu/vgpu/guard.h"
#include "gpu/vgpu/host_guard.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sigaction before[2];
static const int signals[2] = {SIGSEGV, SIGBUS};

/* Runs on the thread that made the access, which was in a kernel or in the program's own code and holds none of our locks. The
 * process ends here, so what is not safe to call in a signal handler is called for the last time. */
static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    if (vgpu_host_guard_explain(info->si_addr) || vgpu_guard_explain(info->si_addr)) {
        _exit(LS_DEVICE_FAILED);
    }
    /* Not ours: with the handler of before, the access that is now repeated ends as it would have. */
    (void)sigaction(number, &before[number == signals[0] ? 0 : 1], NULL);
}

static void catch_faults(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    for (int i = 0; i < 2; i++) {
        (void)sigaction(signals[i], &action, &before[i]);
    }
}

void vgpu_fault_catch(void) {
    (void)pthread_once(&once, catch_faults);
}
