/* Scaling efficiency against devices. */
#include "reports/plot.h"

extern const ls_plot ls_plot_efficiency;

static bool value(const json_t *row, ls_report_value *out) {
    return ls_report_statistic(row, "efficiency", out);
}

static bool ideal(const json_t *row, size_t devices, double *out) {
    (void)row;
    (void)devices;
    *out = 1;
    return true;
}

static void caption(const ls_report_group *group, char *text, size_t size) {
    snprintf(
        text, size,
        "Efficiency: throughput over devices times the throughput of the base, the plain single-device trainer on "
        "the same %s batch; the median of the ratios of rounds measured in turn, with its interval of 95 %% or more.%s",
        group->weak ? "local" : "global",
        ls_report_has_oversubscribed(group)
            ? " Oversubscribed points are left out: with more devices than cores a device is not a device, and "
              "the ratio would measure the sharing of cores."
            : "");
}

const ls_plot ls_plot_efficiency = {
    .name = "efficiency",
    .title = "scaling efficiency",
    .value = value,
    .ideal = ideal,
    .ideal_label = "ideal: 1",
    .show_oversubscribed = false,
    .caption = caption,
};
