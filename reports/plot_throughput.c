/* Samples per second against devices. */
#include "reports/plot.h"

extern const ls_plot ls_plot_throughput;

static bool value(const json_t *row, ls_report_value *out) {
    return ls_report_statistic(row, "samples_per_second", out);
}

/* devices times the throughput of the base, measured in turn with this very row. */
static bool ideal(const json_t *row, size_t devices, double *out) {
    ls_report_value base;
    if (!ls_report_statistic(row, "base_step_seconds", &base)) {
        return false;
    }
    bool weak = ls_report_text(row, "scaling")[0] == 'w';
    *out = (double)devices * ls_report_number(row, weak ? "local_batch" : "global_batch") / base.median;
    return true;
}

static void caption(const ls_report_group *group, char *text, size_t size) {
    snprintf(text, size,
             "Median over rounds (fresh processes; a round's median step) with its interval of 95 %% or more; a step "
             "lasts until its slowest rank is done. Ideal: "
             "devices times the throughput of the base, the plain single-device trainer on the same %s batch, measured "
             "in turn with each point; of these the median.%s",
             group->weak ? "local" : "global",
             ls_report_has_oversubscribed(group)
                 ? " Hollow points are oversubscribed: more devices than cores take part, so they share cores and say "
                   "nothing about scaling."
                 : "");
}

const ls_plot ls_plot_throughput = {
    .name = "throughput",
    .title = "throughput, samples/s",
    .value = value,
    .ideal = ideal,
    .ideal_label = "ideal: devices x base",
    .show_oversubscribed = true,
    .caption = caption,
};
