#include "reports/plot.h"

extern const ls_plot ls_plot_throughput, ls_plot_efficiency;

const ls_plot *const ls_plots[] = {
    &ls_plot_throughput,
    &ls_plot_efficiency,
    NULL,
};
