/* One plot: its data, its gnuplot script, and running gnuplot on it. */
#include "reports/plot.h"

#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

void ls_plot_stem(const ls_plot *plot, const ls_report_group *group, char *text, size_t size) {
    snprintf(text, size, "%s-%s", plot->name, group->key);
}

bool ls_report_has_oversubscribed(const ls_report_group *group) {
    for (size_t s = 0; s < group->count; s++) {
        for (size_t p = 0; p < group->series[s].count; p++) {
            if (group->series[s].points[p].oversubscribed) {
                return true;
            }
        }
    }
    return false;
}

static bool on_plot(const ls_plot *plot, const ls_report_point *point, ls_report_value *value) {
    return (plot->show_oversubscribed || !point->oversubscribed) && plot->value(point->row, value);
}

bool ls_plot_has_points(const ls_plot *plot, const ls_report_group *group) {
    ls_report_value value;
    for (size_t s = 0; s < group->count; s++) {
        for (size_t p = 0; p < group->series[s].count; p++) {
            if (on_plot(plot, &group->series[s].points[p], &value)) {
                return true;
            }
        }
    }
    return false;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The ideal at a device count by the rows of all points: each has measured the same base in its own turn, some of them at a moment
 * when the machine was slow, so the median counts. values: room for as many as the group has points. False: unknown. */
static bool ideal_at(const ls_plot *plot, const ls_report_group *group, size_t devices, double *values, double *out) {
    size_t count = 0;
    for (size_t s = 0; s < group->count; s++) {
        for (size_t p = 0; p < group->series[s].count; p++) {
            count += plot->ideal(group->series[s].points[p].row, devices, &values[count]);
        }
    }
    if (count == 0) {
        return false;
    }
    qsort(values, count, sizeof values[0], ascending);
    *out = 0.5 * (values[(count - 1) / 2] + values[count / 2]);
    return true;
}

static ls_rc write_ideal(const ls_plot *plot, const ls_report_group *group, size_t last, FILE *out) {
    size_t points = 1;
    for (size_t s = 0; s < group->count; s++) {
        points += group->series[s].count;
    }
    double *values = ls_calloc(points, sizeof values[0], "the ideals of a plot");
    if (values == NULL) {
        return LS_DEVICE_FAILED;
    }
    fprintf(out, "\n\n# %s\n", plot->ideal_label);
    for (size_t devices = 1; devices <= last; devices++) {
        double ideal = 0;
        if (ideal_at(plot, group, devices, values, &ideal)) {
            fprintf(out, "%zu %.10g\n", devices, ideal);
        } else {
            fprintf(out, "%zu NaN\n", devices);
        }
    }
    free(values);
    return LS_OK;
}

/* The most devices of any point on the plot, or of any that is scaling: beyond those an ideal would promise nothing. */
static size_t most_devices(const ls_plot *plot, const ls_report_group *group, bool scaling_only) {
    size_t most = 1;
    ls_report_value value;
    for (size_t s = 0; s < group->count; s++) {
        for (size_t p = 0; p < group->series[s].count; p++) {
            const ls_report_point *point = &group->series[s].points[p];
            bool counts = on_plot(plot, point, &value) && !(scaling_only && point->oversubscribed);
            most = counts && point->devices > most ? point->devices : most;
        }
    }
    return most;
}

/* Blocks for gnuplot's index: for each series its points, then its oversubscribed points; last the ideal. */
static ls_rc write_data(const ls_plot *plot, const ls_report_group *group, FILE *out) {
    fprintf(out, "# %s\n# %s\n# columns: devices, median, low, high\n", plot->title, group->title);
    for (size_t s = 0; s < group->count; s++) {
        for (int hollow = 0; hollow < 2; hollow++) {
            fprintf(out, "\n\n# %s%s\n", group->series[s].label, hollow ? ", oversubscribed" : "");
            size_t written = 0;
            for (size_t p = 0; p < group->series[s].count; p++) {
                const ls_report_point *point = &group->series[s].points[p];
                ls_report_value value;
                if (point->oversubscribed == (hollow == 1) && on_plot(plot, point, &value)) {
                    fprintf(out, "%zu %.10g %.10g %.10g\n", point->devices, value.median, value.low, value.high);
                    written++;
                }
            }
            if (written == 0) {
                fprintf(out, "NaN NaN NaN NaN\n"); /* an empty block would move the index of those behind it */
            }
        }
    }
    return write_ideal(plot, group, most_devices(plot, group, true), out);
}

/* Okabe and Ito's colours, told apart by colour-blind readers too; shapes differ as well. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};
static const int filled[] = {7, 5, 9, 11, 13, 15, 7};
static const int hollow_shapes[] = {6, 4, 8, 10, 12, 14, 6};
enum { STYLES = sizeof filled / sizeof filled[0] };

/* Several series at one device count stand side by side, so that no interval hides another. */
static double dodge(const ls_plot *plot, const ls_report_group *group, size_t s) {
    double step = 0.015 * (double)most_devices(plot, group, false);
    return step * ((double)s - ((double)group->count - 1) / 2);
}

static void write_curves(const ls_plot *plot, const ls_report_group *group, const char *stem, FILE *out) {
    fprintf(out, "plot '%s.dat' index %zu using 1:2 with lines lc rgb '#888888' dt 2 lw 1.5 title '%s'", stem,
            2 * group->count, plot->ideal_label);
    for (size_t s = 0; s < group->count; s++) {
        size_t style = s % STYLES;
        fprintf(
            out,
            ", \\\n  '' index %zu using ($1+%.3f):2:3:4 with yerrorlines lc rgb '%s' pt %d ps 0.9 lw 1.5 title '%s'",
            2 * s, dodge(plot, group, s), colours[style], filled[style], group->series[s].label);
        bool any = false;
        for (size_t p = 0; p < group->series[s].count; p++) {
            any = any || group->series[s].points[p].oversubscribed;
        }
        if (plot->show_oversubscribed && any) {
            fprintf(out, ", \\\n  '' index %zu using ($1+%.3f):2:3:4 with yerrorbars lc rgb '%s' pt %d ps 0.9 notitle",
                    2 * s + 1, dodge(plot, group, s), colours[style], hollow_shapes[style]);
        }
    }
    fprintf(out, "\n");
}

static void write_tics(const ls_plot *plot, const ls_report_group *group, FILE *out) {
    size_t last = most_devices(plot, group, false);
    double margin = 0.08 * (double)(last > 4 ? last : 4);
    size_t step = (last + 15) / 16; /* at most 16 labels */
    fprintf(out, "set xrange [%.2f:%.2f]\nset xtics 1, %zu\n", 1 - margin, (double)last + margin, step);
}

static void write_script(const ls_plot *plot, const ls_report_group *group, const char *stem, FILE *out) {
    fprintf(out,
            "# gnuplot %s.gp makes %s.svg and %s.png from %s.dat\n"
            "set encoding utf8\nset termoption noenhanced\n"
            "set title \"%s\" noenhanced\nset xlabel 'devices'\nset ylabel '%s' noenhanced\n"
            "set grid ytics lc rgb '#dddddd'\nset border 3\nset tics nomirror\nset key outside right top "
            "vertical Left reverse noenhanced\n"
            "set yrange [0:*]\nset bars 0.6\n",
            stem, stem, stem, stem, group->title, plot->title);
    write_tics(plot, group, out);
    fprintf(out,
            "set terminal svg size 860,420 dynamic enhanced font 'sans-serif,13' background rgb 'white'\n"
            "set output '%s.svg'\n",
            stem);
    write_curves(plot, group, stem, out);
    fprintf(out,
            "set terminal pngcairo size 1290,630 enhanced font 'sans-serif,18' background rgb 'white'\n"
            "set output '%s.png'\nreplot\n",
            stem);
}

static ls_rc write_file(const char *folder, const char *stem, const char *ending, const ls_plot *plot,
                        const ls_report_group *group) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s", folder, stem, ending);
    FILE *out = fopen(path, "we");
    if (out == NULL) {
        return ls_fail(LS_BAD_INPUT, "cannot write '%s': %s", path, strerror(errno));
    }
    ls_rc rc = LS_OK;
    if (strcmp(ending, "dat") == 0) {
        rc = write_data(plot, group, out);
    } else {
        write_script(plot, group, stem, out);
    }
    bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) {
        return ls_fail(LS_BAD_INPUT, "cannot write '%s': %s", path, strerror(errno));
    }
    return rc;
}

static ls_rc run_gnuplot(const char *folder, const char *stem) {
    char script[4096];
    snprintf(script, sizeof script, "%s.gp", stem);
    char *arguments[] = {"gnuplot", script, NULL};
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory to start gnuplot");
    }
    pid_t child = 0;
    int status = posix_spawn_file_actions_addchdir_np(&actions, folder);
    if (status == 0) {
        status = posix_spawnp(&child, "gnuplot", &actions, NULL, arguments, environ);
    }
    posix_spawn_file_actions_destroy(&actions);
    if (status != 0) {
        return ls_fail(LS_BAD_INPUT,
                       "gnuplot cannot be started: %s; it comes with Debian's package gnuplot-nox: "
                       "apt-get install gnuplot-nox",
                       strerror(status));
    }
    int result = 0;
    while (waitpid(child, &result, 0) < 0) {
        if (errno != EINTR) {
            return ls_fail(LS_DEVICE_FAILED, "waiting for gnuplot: %s", strerror(errno));
        }
    }
    if (!WIFEXITED(result) || WEXITSTATUS(result) != 0) {
        return ls_fail(LS_DEVICE_FAILED, "gnuplot failed on %s (its own message is above)", script);
    }
    return LS_OK;
}

ls_rc ls_plot_draw(const ls_plot *plot, const ls_report_group *group, const char *folder) {
    char stem[2 * LS_REPORT_TEXT];
    ls_plot_stem(plot, group, stem, sizeof stem);
    LS_TRY(write_file(folder, stem, "dat", plot, group));
    LS_TRY(write_file(folder, stem, "gp", plot, group));
    return run_gnuplot(folder, stem);
}
