#include "bench/gbench_shim.h"
#include "bench/micro/micro.h"
#include "bench/micro/peak.h"
#include "gpu/layer_math.h"

#include <stdio.h>

/* Every benchmark. A new one is a line in its family's table; a new family is a line here. */
const ls_micro_family ls_micro_families[] = {
    {"kernel", ls_micro_add_kernels, ls_micro_end_kernels},
    {"layer", ls_micro_add_layers, ls_micro_end_layers},
    {"step", ls_micro_add_steps, ls_micro_end_steps},
    {"collective", ls_micro_add_collectives, ls_micro_end_collectives},
    {NULL, NULL, NULL},
};

ls_rc ls_micro_benchmarks(const ls_micro_options *options) {
    char device[256] = "";
    LS_TRY(ls_platform_describe(device, sizeof device));
    ls_gbench_context("platform", ls_platform_name());
    ls_gbench_context("device", device);
    ls_gbench_context("math", ls_math_description());
    ls_gbench_context("fma", ls_micro_fma_name());
    ls_gbench_context("clock", options->clock == LS_MICRO_CLOCK_STREAM ? "stream" : "host");
    for (size_t i = 0; ls_micro_families[i].name != NULL; i++) {
        LS_TRY(ls_micro_families[i].add(options));
    }
    return LS_OK;
}

void ls_micro_benchmarks_end(void) {
    for (size_t i = 0; ls_micro_families[i].name != NULL; i++) {
        if (ls_micro_families[i].end != NULL) {
            ls_micro_families[i].end();
        }
    }
}
