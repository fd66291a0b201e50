/* Plots: a table, one file each (reports/plot_<name>.c). docs/adding-a-plot.md walks through adding one. */
#ifndef LS_REPORTS_PLOT_H
#define LS_REPORTS_PLOT_H

#include <stdio.h>

#include "reports/rows.h"

typedef struct ls_plot {
    const char *name;  /* of its files: <name>-<group key>.svg */
    const char *title; /* of the y axis, with its unit */
    /* The value of a row; false: this row has no place on this plot. */
    bool (*value)(const json_t *row, ls_report_value *out);
    /* The ideal at a device count, from the row's own base; false: unknown. A plot shows the median over its
     * rows. */
    bool (*ideal)(const json_t *row, size_t devices, double *out);
    const char *ideal_label;
    bool show_oversubscribed; /* as hollow points without a line; else they are left out */
    /* A sentence or two under the plot: what is shown, the base, what is left out and why. */
    void (*caption)(const ls_report_group *group, char *text, size_t size);
} ls_plot;

/* NULL-ended. */
extern const ls_plot *const ls_plots[];

/* Writes <folder>/<name>-<key>.dat and .gp and runs gnuplot there, which makes .svg and .png. */
ls_rc ls_plot_draw(const ls_plot *plot, const ls_report_group *group, const char *folder);

/* "<name>-<key>" into text. */
void ls_plot_stem(const ls_plot *plot, const ls_report_group *group, char *text, size_t size);

/* Whether any point of the group would be on the plot, and whether any point of the group is oversubscribed. */
bool ls_plot_has_points(const ls_plot *plot, const ls_report_group *group);
bool ls_report_has_oversubscribed(const ls_report_group *group);

#endif
