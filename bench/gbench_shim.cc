#include "bench/gbench_shim.h"

#include <benchmark/benchmark.h>

struct ls_gbench_state {
    benchmark::State *state;
};

static ls_rc worst = LS_OK;

void ls_gbench_register(const char *name, ls_gbench_clock clock, void (*run)(ls_gbench_state *, void *),
                        void *argument) {
    benchmark::internal::Benchmark *added =
        benchmark::RegisterBenchmark(name, [run, argument](benchmark::State &state) {
            ls_gbench_state wrapped = {&state};
            run(&wrapped, argument);
        });
    if (clock == LS_GBENCH_MANUAL) {
        added->UseManualTime();
    } else {
        added->UseRealTime();
        added->MeasureProcessCPUTime(); /* the work is done by threads of the devices */
    }
}

uint64_t ls_gbench_iterations(const ls_gbench_state *state) {
    return static_cast<uint64_t>(state->state->max_iterations);
}

bool ls_gbench_next(ls_gbench_state *state, uint64_t count) {
    return state->state->KeepRunningBatch(static_cast<benchmark::IterationCount>(count));
}

void ls_gbench_add_seconds(ls_gbench_state *state, double seconds) {
    /* the library takes the last value as that of the iteration and adds it up */
    state->state->SetIterationTime(seconds);
}

void ls_gbench_counter(ls_gbench_state *state, const char *name, ls_gbench_kind kind, double value) {
    state->state->counters[name] = benchmark::Counter(
        value, kind == LS_GBENCH_RATE ? benchmark::Counter::kIsIterationInvariantRate : benchmark::Counter::kDefaults);
}

void ls_gbench_bytes(ls_gbench_state *state, double bytes) {
    state->state->SetBytesProcessed(static_cast<int64_t>(bytes * static_cast<double>(state->state->iterations())));
}

void ls_gbench_fail(ls_gbench_state *state, ls_rc rc, const char *message) {
    worst = rc;
    state->state->SkipWithError(message);
}

void ls_gbench_context(const char *key, const char *value) {
    benchmark::AddCustomContext(key, value);
}

void ls_gbench_print_flags(void) {
    benchmark::PrintDefaultHelp();
}

ls_rc ls_gbench_run(int argc, char **argv) {
    benchmark::Initialize(&argc, argv);
    if (argc > 1) {
        return ls_fail(LS_BAD_INPUT,
                       "unknown option '%s', or its value is not of the kind that it takes; `lockstep micro --help` "
                       "lists the options",
                       argv[1]);
    }
    if (benchmark::RunSpecifiedBenchmarks() == 0) {
        worst = LS_BAD_INPUT; /* the library has said that nothing matches */
    }
    benchmark::Shutdown();
    return worst;
}
