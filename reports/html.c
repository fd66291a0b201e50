#include "reports/html.h"

#include <string.h>

#include "reports/plot.h"

static void escaped(FILE *out, const char *text) {
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
    }
}

static void cell(FILE *out, const char *class, const char *text) {
    fprintf(out, "<td class=\"%s\">", class);
    escaped(out, text);
    fputs("</td>", out);
}

static void statistic_cell(FILE *out, const json_t *row, const char *key, double factor, int digits) {
    ls_report_value value;
    char text[96] = "";
    if (ls_report_statistic(row, key, &value)) {
        snprintf(text, sizeof text, "%.*f [%.*f, %.*f]", digits, value.median * factor, digits, value.low * factor,
                 digits, value.high * factor);
    }
    cell(out, "n", text);
}

static void write_head(FILE *out) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Lockstep report</title>\n"
          "<style>\n"
          "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}\n"
          "h1{margin-bottom:0}h2{margin-top:2.2em;border-bottom:1px solid #ccc}\n"
          "table{border-collapse:collapse;font-size:14px;margin:1em 0}\n"
          "th,td{padding:.25em .7em;text-align:left;border-bottom:1px solid #ddd;vertical-align:top}\n"
          "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\n"
          "figure{margin:1.5em 0}figure img{max-width:100%;height:auto}figcaption{font-size:14px;color:#444}\n"
          ".PASSED{color:#006d2c}.FAILED{color:#b30000;font-weight:bold}.SKIPPED,.MISTRUSTED{color:#8a6d00}\n"
          "code{font-size:13px;overflow-wrap:anywhere}.over{color:#777}\n"
          "</style></head><body>\n",
          out);
}

static void fact(FILE *out, const char *name, const char *value) {
    if (value[0] != '\0') {
        fprintf(out, "<tr><th>%s</th>", name);
        cell(out, "", value);
        fputs("</tr>\n", out);
    }
}

/* Of equal times the one further down in the file. A repeated row stands where the first of its tuple stood. */
static const json_t *latest(const json_t *list) {
    const json_t *found = json_array_get(list, 0);
    for (size_t i = 1; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        found = strcmp(ls_report_text(row, "time"), ls_report_text(found, "time")) >= 0 ? row : found;
    }
    return found;
}

/* What all rows say of the machine, from the last one measured. */
static void write_machine(FILE *out, const ls_report_rows *rows) {
    const json_t *row = latest(json_array_size(rows->sweep) > 0 ? rows->sweep : rows->verify);
    const json_t *environment = json_object_get(row, "environment");
    char text[512];
    fputs("<table>\n", out);
    snprintf(text, sizeof text, "%s, %.0f cores, %.1f GiB", ls_report_text(environment, "cpu"),
             ls_report_number(environment, "cores"), ls_report_number(environment, "memory_bytes") / 1073741824.0);
    fact(out, "machine", text);
    snprintf(text, sizeof text, "%s: %s", ls_report_text(row, "platform"), ls_report_text(row, "device"));
    fact(out, "platform", text);
    fact(out, "layer math", ls_report_text(environment, "math"));
    fact(out, "system", ls_report_text(environment, "os"));
    fact(out, "lockstep", ls_report_text(environment, "lockstep"));
    fact(out, "last measured", ls_report_text(row, "time"));
    fputs("</table>\n", out);
}

static void write_plots(FILE *out, const ls_report_group *group) {
    for (size_t i = 0; ls_plots[i] != NULL; i++) {
        if (!ls_plot_has_points(ls_plots[i], group)) {
            continue;
        }
        char stem[2 * LS_REPORT_TEXT], caption[1024];
        ls_plot_stem(ls_plots[i], group, stem, sizeof stem);
        ls_plots[i]->caption(group, caption, sizeof caption);
        fprintf(out, "<figure><img src=\"%s.svg\" alt=\"", stem);
        escaped(out, ls_plots[i]->title);
        fputs(" against devices\">\n<figcaption>", out);
        escaped(out, caption);
        fprintf(out,
                " <a href=\"%s.svg\">svg</a> <a href=\"%s.png\">png</a> <a href=\"%s.dat\">data</a> "
                "<a href=\"%s.gp\">script</a></figcaption></figure>\n",
                stem, stem, stem, stem);
    }
}

static void write_point_row(FILE *out, const ls_report_series *series, const ls_report_point *point) {
    const json_t *row = point->row;
    char text[64];
    fprintf(out, "<tr class=\"%s\">", point->oversubscribed ? "over" : "");
    cell(out, "", series->label);
    snprintf(text, sizeof text, "%zu%s", point->devices, point->oversubscribed ? " (oversubscribed)" : "");
    cell(out, "n", text);
    snprintf(text, sizeof text, "%.0f / %.0f", ls_report_number(row, "local_batch"),
             ls_report_number(row, "global_batch"));
    cell(out, "n", text);
    statistic_cell(out, row, "step_seconds", 1e3, 3);
    statistic_cell(out, row, "samples_per_second", 1, 0);
    if (point->oversubscribed) {
        cell(out, "n", "not scaling");
        cell(out, "n", "");
    } else {
        statistic_cell(out, row, "speedup", 1, 2);
        statistic_cell(out, row, "efficiency", 1, 3);
    }
    cell(out, ls_report_text(row, "verification"), ls_report_text(row, "verification"));
    fputs("</tr>\n", out);
}

static void write_group(FILE *out, const ls_report_group *group) {
    fputs("<h2>", out);
    escaped(out, group->title);
    fputs("</h2>\n", out);
    write_plots(out, group);
    fputs("<table><thead><tr><th>implementation</th><th class=\"n\">devices</th><th class=\"n\">local / global "
          "batch</th><th class=\"n\">ms a step</th><th class=\"n\">samples/s</th><th class=\"n\">speed-up</th>"
          "<th class=\"n\">efficiency</th><th>verified</th></tr></thead><tbody>\n",
          out);
    for (size_t s = 0; s < group->count; s++) {
        for (size_t p = 0; p < group->series[s].count; p++) {
            write_point_row(out, &group->series[s], &group->series[s].points[p]);
        }
    }
    fputs("</tbody></table>\n", out);
}

/* Everything that did not pass, of both kinds: failures are results too. */
static void write_exceptions(FILE *out, const json_t *list, const char *title) {
    size_t index = 0, passed = 0;
    json_t *row = NULL;
    json_array_foreach(list, index, row) {
        passed += strcmp(ls_report_text(row, "status"), "PASSED") == 0;
    }
    if (json_array_size(list) == 0) {
        return;
    }
    fprintf(out, "<h2>%s: %zu of %zu passed</h2>\n", title, passed, json_array_size(list));
    if (passed == json_array_size(list)) {
        return;
    }
    fputs("<table><thead><tr><th>status</th><th>reason</th><th>command</th></tr></thead><tbody>\n", out);
    json_array_foreach(list, index, row) {
        const char *status = ls_report_text(row, "status");
        if (strcmp(status, "PASSED") != 0) {
            fputs("<tr>", out);
            cell(out, status, status);
            cell(out, "", ls_report_text(row, "reason"));
            fputs("<td><code>", out);
            escaped(out, ls_report_text(row, "command"));
            fputs("</code></td></tr>\n", out);
        }
    }
    fputs("</tbody></table>\n", out);
}

/* What a reader would not see from the figures alone. */
static void write_reservations(FILE *out, const ls_report_rows *rows) {
    if (rows->repeated > 0) {
        fprintf(
            out,
            "<p>Rows left out as repeated: %zu. Of rows of the file that are alike in implementation and its options, "
            "devices, batch, network, data, element type, scaling and platform, the last one is shown.</p>\n",
            rows->repeated);
    }
    if (rows->pooled > 0) {
        fprintf(out,
                "<p>Points measured by an earlier version: %zu. Their figures of a step and of samples/s are over all "
                "timed steps, as if those of one process were independent: their brackets are too narrow.</p>\n",
                rows->pooled);
    }
}

void ls_html_write(FILE *out, const ls_report_rows *rows, const char *source) {
    write_head(out);
    fputs("<h1>Lockstep report</h1>\n<p>From <code>", out);
    escaped(out, source);
    fputs(
        "</code>. A figure is the median over rounds; a round is a fresh start of all processes and counts once, a "
        "step's "
        "time by the median of its timed steps. Brackets cover that median with at least 95 %: they take rounds to be "
        "independent and assume no distribution. \"Verified\" means that a replay of the same steps passed every check "
        "and ended with the same bits of all parameters.</p>\n",
        out);
    write_reservations(out, rows);
    write_machine(out, rows);
    for (size_t g = 0; g < rows->count; g++) {
        write_group(out, &rows->groups[g]);
    }
    write_exceptions(out, rows->sweep, "Measured points");
    write_exceptions(out, rows->verify, "Verified cases");
    fputs("</body></html>\n", out);
}
