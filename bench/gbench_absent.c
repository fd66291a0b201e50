/* In place of gbench_shim.cc where the program is built without Google Benchmark. */
#include <stdio.h>

#include "bench/gbench_shim.h"

void ls_gbench_register(const char *name, ls_gbench_clock clock, void (*run)(ls_gbench_state *state, void *argument),
                        void *argument) {
    (void)name;
    (void)clock;
    (void)run;
    (void)argument;
}

uint64_t ls_gbench_iterations(const ls_gbench_state *state) {
    (void)state;
    return 0;
}

bool ls_gbench_next(ls_gbench_state *state, uint64_t count) {
    (void)state;
    (void)count;
    return false;
}

void ls_gbench_add_seconds(ls_gbench_state *state, double seconds) {
    (void)state;
    (void)seconds;
}

void ls_gbench_counter(ls_gbench_state *state, const char *name, ls_gbench_kind kind, double value) {
    (void)state;
    (void)name;
    (void)kind;
    (void)value;
}

void ls_gbench_bytes(ls_gbench_state *state, double bytes) {
    (void)state;
    (void)bytes;
}

void ls_gbench_fail(ls_gbench_state *state, ls_rc rc, const char *message) {
    (void)state;
    (void)rc;
    (void)message;
}

void ls_gbench_context(const char *key, const char *value) {
    (void)key;
    (void)value;
}

void ls_gbench_print_flags(void) {
    printf("This program was built without Google Benchmark: no --benchmark_* flags.\n");
}

ls_rc ls_gbench_run(int argc, char **argv) {
    (void)argc;
    (void)argv;
    return ls_fail(LS_BAD_INPUT,
                   "this program was built without Google Benchmark, which comes with Debian's package "
                   "libbenchmark-dev: install it and build again; the tables of collectives (--allreduce) "
                   "and --peers do without");
}
