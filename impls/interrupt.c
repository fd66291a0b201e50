#include "impls/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { SIGNALS = 4 };
static const int signals[SIGNALS] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
static struct sigaction before[SIGNALS];
static volatile sig_atomic_t came;
static volatile sig_atomic_t wake_fd = -1;

/* A handler, not a signalfd: whichever thread the signal is delivered to, this runs. */
static void on_signal(int number) {
    int saved = errno;
    uint64_t one = 1;
    if (came == 0) {
        came = number;
    }
    ssize_t written = write((int)wake_fd, &one, sizeof one);
    (void)written;
    errno = saved;
}

ls_rc ls_interrupt_begin(void) {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        return ls_fail(LS_DEVICE_FAILED, "eventfd: %s", strerror(errno));
    }
    came = 0;
    wake_fd = fd;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < SIGNALS; i++) {
        sigaction(signals[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) { /* nohup stays nohup */
            sigaction(signals[i], &action, NULL);
        }
    }
    return LS_OK;
}

int ls_interrupt_fd(void) {
    return (int)wake_fd;
}

int ls_interrupt_signal(void) {
    return (int)came;
}

void ls_interrupt_take(int number) {
    if (came == 0) {
        came = number;
    }
}

void ls_interrupt_end(void) {
    for (size_t i = 0; i < SIGNALS; i++) {
        sigaction(signals[i], &before[i], NULL);
    }
    close((int)wake_fd);
    wake_fd = -1;
    if (came != 0 && came != SIGPIPE) {
        ls_notice("the run was interrupted by signal %d (%s)", (int)came, strsignal((int)came));
    }
    if (came != 0) {
        raise((int)came);
    }
}
