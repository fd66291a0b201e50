#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reports/plot.h"
#include "reports/report.h"
#include "reports/rows.h"
#include "tests/impls/stderr_capture.h"

static char folder[256], results[300];

static int make_folder(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/report-test-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    snprintf(results, sizeof results, "%s/results.jsonl", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* A sweep row: throughput and efficiency follow from the step's seconds, the base's seconds and the device count. */
static void row(FILE *out, const char *impl, size_t devices, double step, double base, bool oversubscribed,
                const char *status) {
    double speedup = (double)devices * base / step;
    fprintf(out,
            "{\"schema\":1,\"kind\":\"sweep\",\"impl\":\"%s\",\"ranks\":null,\"world\":1,\"devices\":%zu,\"local_"
            "batch\":64,"
            "\"global_batch\":%zu,\"model\":\"seed-cnn\",\"data\":\"synthetic:<100>\",\"dtype\":\"float32\","
            "\"bucket_bytes\":null,\"scaling\":\"weak\",\"platform\":\"vgpu\",\"device\":\"2 virtual devices\","
            "\"clock\":\"real\",\"link\":null,\"oversubscribed\":%s,\"status\":\"%s\",\"reason\":%s,"
            "\"verification\":\"PASSED\",\"command\":\"lockstep sweep & more\"",
            impl, devices, 64 * devices, oversubscribed ? "true" : "false", status,
            strcmp(status, "PASSED") == 0 ? "null" : "\"a rank <died>\"");
    if (strcmp(status, "PASSED") == 0) {
        const char *keys[] = {"step_seconds", "samples_per_second", "base_step_seconds", "speedup", "efficiency"};
        fprintf(out, ",\"timed_steps\":60");
        double values[] = {step, 64 * (double)devices / step, base, speedup, speedup / (double)devices};
        for (size_t i = 0; i < 5; i++) {
            fprintf(out, ",\"%s\":{\"median\":%.17g,\"low\":%.17g,\"high\":%.17g,\"confidence\":0.95}", keys[i],
                    values[i], values[i] * 0.9, values[i] * 1.1);
        }
    }
    fprintf(out, "}\n");
}

static FILE *open_results(void) {
    FILE *out = fopen(results, "w");
    assert_non_null(out);
    return out;
}

static void write_good(void) {
    FILE *out = open_results();
    row(out, "single", 1, 0.008, 0.008, false, "PASSED"); /* measured again below: the later row counts */
    row(out, "dp", 4, 0.010, 0.004, true, "PASSED");
    row(out, "dp", 2, 0.005, 0.004, false, "PASSED");
    row(out, "mpi", 2, 0, 0, false, "FAILED");
    row(out, "single", 1, 0.004, 0.008, false, "PASSED"); /* its base alone was slow: the ideal is that of most rows */
    assert_int_equal(fclose(out), 0);
}

static char *read_all(const char *name) {
    char path[700];
    snprintf(path, sizeof path, "%s/out/%s", folder, name);
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    char *text = calloc(1, 65536);
    assert_non_null(text);
    assert_true(fread(text, 1, 65535, in) > 0);
    assert_int_equal(fclose(in), 0);
    return text;
}

static void assert_contains(const char *text, const char *expected) {
    if (strstr(text, expected) == NULL) {
        fail_msg("'%s' is not in:\n%s", expected, text);
    }
}

static void rows_are_grouped_and_sorted(void **state) {
    (void)state;
    write_good();
    ls_report_rows rows;
    assert_int_equal(ls_report_rows_read(results, &rows), LS_OK);
    assert_int_equal(json_array_size(rows.sweep), 4);
    assert_int_equal(rows.repeated, 1);
    assert_int_equal(rows.pooled, 0);
    assert_int_equal(rows.count, 1);
    assert_int_equal(rows.groups[0].count, 2);
    assert_string_equal(rows.groups[0].series[1].label, "dp");
    assert_int_equal(rows.groups[0].series[1].points[0].devices, 2);
    assert_int_equal(rows.groups[0].series[1].points[1].devices, 4);
    ls_report_value value;
    assert_true(ls_report_statistic(rows.groups[0].series[0].points[0].row, "step_seconds", &value));
    assert_float_equal(value.median, 0.004, 0);
    ls_report_rows_free(&rows);
}

/* A row of the good file; a new reference. */
static json_t *good_row(void) {
    write_good();
    ls_report_rows rows;
    assert_int_equal(ls_report_rows_read(results, &rows), LS_OK);
    json_t *good = json_deep_copy(rows.groups[0].series[0].points[0].row);
    ls_report_rows_free(&rows);
    return good;
}

/* A results file of count rows: the good one with the members of each of these objects in place of its own. */
static void write_changed(const char *const *changes, size_t count) {
    json_t *good = good_row();
    FILE *out = open_results();
    for (size_t i = 0; i < count; i++) {
        json_t *changed = json_deep_copy(good), *change = json_loads(changes[i], 0, NULL);
        assert_int_equal(json_object_update(changed, change), 0);
        assert_int_equal(json_dumpf(changed, out, JSON_COMPACT), 0);
        fputc('\n', out);
        json_decref(changed);
        json_decref(change);
    }
    assert_int_equal(fclose(out), 0);
    json_decref(good);
}

/* Modes of the layer math are never on one plot, and what was not verified says so in the title. */
static void modes_are_apart(void **state) {
    (void)state;
    static const char *const modes[] = {"{\"math\":\"exact\",\"verification\":\"PASSED\"}",
                                        "{\"math\":\"fast\",\"verification\":\"none\"}",
                                        "{\"math\":\"im2col\",\"verification\":\"PASSED\"}"};
    ls_report_rows rows;
    write_changed(modes, sizeof modes / sizeof modes[0]);
    assert_int_equal(ls_report_rows_read(results, &rows), LS_OK);
    assert_int_equal(rows.count, 3);
    assert_int_equal(strncmp(rows.groups[0].title, "seed-cnn, ", 10), 0);
    assert_int_equal(strncmp(rows.groups[1].title, "fast math, NOT VERIFIED: seed-cnn, ", 35), 0);
    assert_int_equal(strncmp(rows.groups[2].title, "im2col math: seed-cnn, ", 23), 0);
    assert_true(strcmp(rows.groups[0].key, rows.groups[1].key) != 0);
    ls_report_rows_free(&rows);
}

/* A row with an option of its own stands beside the one without, in its own series or, of graphs, on its own plot. */
static void options_are_apart(void **state) {
    (void)state;
    static const char *const options[] = {"{}", "{\"graph\":false,\"mpi_buffers\":\"host\",\"nccl_register\":null}",
                                          "{\"mpi_buffers\":\"device\"}", "{\"nccl_register\":true}",
                                          "{\"graph\":true}"};
    ls_report_rows rows;
    write_changed(options, sizeof options / sizeof options[0]);
    assert_int_equal(ls_report_rows_read(results, &rows), LS_OK);
    assert_int_equal(rows.repeated, 1); /* the second says of the first what it did not say */
    assert_int_equal(rows.count, 2);
    assert_int_equal(rows.groups[0].count, 3);
    assert_string_equal(rows.groups[0].series[1].label, "single, device buffers");
    assert_string_equal(rows.groups[0].series[2].label, "single, registered");
    assert_int_equal(strncmp(rows.groups[1].title, "CUDA graphs: seed-cnn, ", 23), 0);
    assert_true(strcmp(rows.groups[0].key, rows.groups[1].key) != 0);
    ls_report_rows_free(&rows);
}

static void a_report_has_plots_with_data_and_script(void **state) {
    (void)state;
    write_good();
    char output[300], index[600];
    snprintf(output, sizeof output, "%s/out", folder);
    assert_int_equal(ls_report_generate(results, output, index, sizeof index), LS_OK);
    assert_int_equal(index[0], '/');
    assert_int_equal(access(index, R_OK), 0);

    char *data = read_all("throughput-seed-cnn-float32-weak-b64-synthetic--100--vgpu.dat");
    assert_contains(data, "# single\n1 16000 14400 17600\n");
    assert_contains(data, "# dp\n2 25600 23040 28160\n");
    assert_contains(data, "# dp, oversubscribed\n4 25600 23040 28160\n");
    assert_contains(data, "# ideal: devices x base\n1 16000\n2 32000\n"); /* ends where scaling ends */
    assert_null(strstr(data, "3 48000"));
    free(data);
    data = read_all("efficiency-seed-cnn-float32-weak-b64-synthetic--100--vgpu.dat");
    assert_contains(data, "# dp\n2 0.8 0.72 0.88\n");
    assert_contains(data, "# dp, oversubscribed\nNaN"); /* left out */
    free(data);
    char *picture = read_all("throughput-seed-cnn-float32-weak-b64-synthetic--100--vgpu.svg");
    assert_contains(picture, "<svg");
    assert_contains(picture, "ideal: devices x base");
    free(picture);
    picture = read_all("efficiency-seed-cnn-float32-weak-b64-synthetic--100--vgpu.png");
    assert_memory_equal(picture, "\x89PNG", 4);
    free(picture);

    char *page = read_all("index.html");
    assert_contains(page, "synthetic:&lt;100&gt;");
    assert_contains(page, "a rank &lt;died&gt;");
    assert_contains(page, "lockstep sweep &amp; more");
    assert_contains(page, "Oversubscribed points are left out");
    assert_contains(page, "3 of 4 passed");
    assert_contains(page, "left out as repeated: 1. ");
    assert_null(strstr(page, "earlier version"));
    free(page);
    snprintf(output, sizeof output, "%s/out", folder);
    assert_int_equal(ls_report_generate(results, output, index, sizeof index), LS_OK); /* again over the first */
}

/* Rows without timed_steps have intervals over steps, not over rounds: they are read, and the page says so. */
static void an_earlier_form_is_told(void **state) {
    (void)state;
    write_good();
    ls_report_rows rows;
    assert_int_equal(ls_report_rows_read(results, &rows), LS_OK);
    json_t *good = json_deep_copy(rows.groups[0].series[0].points[0].row);
    ls_report_rows_free(&rows);
    assert_int_equal(json_object_del(good, "timed_steps"), 0);
    FILE *out = open_results();
    assert_int_equal(json_dumpf(good, out, JSON_COMPACT), 0);
    assert_int_equal(fclose(out), 0);
    json_decref(good);
    char output[300], index[600];
    snprintf(output, sizeof output, "%s/out", folder);
    assert_int_equal(ls_report_generate(results, output, index, sizeof index), LS_OK);
    char *page = read_all("index.html");
    assert_contains(page, "measured by an earlier version: 1. ");
    assert_null(strstr(page, "repeated"));
    free(page);
}

static void refused(const char *line, const char *before) {
    FILE *out = open_results();
    fprintf(out, "%s", before);
    if (before[0] == '\0') {
        row(out, "single", 1, 0.004, 0.004, false, "PASSED");
    }
    fprintf(out, "%s\n", line);
    assert_int_equal(fclose(out), 0);
    ls_report_rows rows;
    assert_int_equal(ls_report_rows_read(results, &rows), LS_BAD_INPUT);
}

static void broken_files_are_refused(void **state) {
    (void)state;
    refused("{\"schema\":1,\"kind\":\"sweep\"", "\n");                /* cut, and nothing else there */
    refused("word", "");                                              /* no row */
    refused("[1]", "");                                               /* not an object */
    refused("{\"schema\":2,\"kind\":\"sweep\"}", "");                 /* another schema */
    refused("{\"schema\":1,\"kind\":\"sweep\",\"impl\":\"dp\"}", ""); /* fields missing */
    refused("{\"schema\":1,\"schema\":1}", "");                       /* a key twice */
    refused("", "\n");                                                /* no rows */
    ls_report_rows rows;
    assert_int_equal(ls_report_rows_read("/nonexistent/results.jsonl", &rows), LS_BAD_INPUT);
    assert_int_equal(ls_report_rows_read(folder, &rows), LS_BAD_INPUT); /* a folder */
}

/* A cut row, a cut row with a whole one behind it in its line, and two whole ones in a line: each line is named and left out. */
static void broken_rows_are_left_out(void **state) {
    (void)state;
    FILE *out = open_results();
    row(out, "single", 1, 0.004, 0.004, false, "PASSED");
    fprintf(out, "{\"schema\":1,\"kind\":\"sw");
    row(out, "dp", 2, 0.005, 0.004, false, "PASSED");
    fprintf(out, "{}");
    row(out, "dp", 4, 0.005, 0.004, false, "PASSED");
    row(out, "ddp", 2, 0.005, 0.004, false, "PASSED");
    fprintf(out, "{\"schema\":1,\"kind\":\"sweep\"");
    assert_int_equal(fclose(out), 0);
    ls_report_rows rows;
    stderr_capture errors;
    assert_int_equal(stderr_capture_begin(&errors), 0);
    ls_rc rc = ls_report_rows_read(results, &rows);
    stderr_capture_end(&errors);
    assert_int_equal(rc, LS_OK);
    assert_int_equal(json_array_size(rows.sweep), 2);
    ls_report_rows_free(&rows);
    assert_int_equal(errors.lines, 3);
    assert_contains(errors.text, "line 2 is left out");
    assert_contains(errors.text, "line 3 is left out");
    assert_contains(errors.text, "line 5 is left out");
}

/* What has no lines is not read for ever. */
static void a_line_has_a_limit(void **state) {
    (void)state;
    ls_report_rows rows;
    stderr_capture errors;
    assert_int_equal(stderr_capture_begin(&errors), 0);
    ls_rc rc = ls_report_rows_read("/dev/zero", &rows);
    stderr_capture_end(&errors);
    assert_int_equal(rc, LS_BAD_INPUT);
    assert_int_equal(errors.lines, 1);
    assert_contains(errors.text, "line 1 is longer than");
}

/* A pipe in the report's folder stays one. */
static void only_files_give_way_to_a_report(void **state) {
    (void)state;
    write_good();
    char output[300], index[600];
    snprintf(output, sizeof output, "%s/taken", folder);
    snprintf(index, sizeof index, "%s/taken/index.html", folder);
    assert_int_equal(mkdir(output, 0700), 0);
    assert_int_equal(mkfifo(index, 0600), 0);
    assert_int_equal(ls_report_generate(results, output, index, sizeof index), LS_BAD_INPUT);
    snprintf(index, sizeof index, "%s/taken/index.html", folder);
    struct stat info;
    assert_int_equal(stat(index, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    char command[400];
    snprintf(command, sizeof command, "test -z \"$(find '%s' -name '.making*')\"", output);
    assert_int_equal(system(command), 0);
}

static void a_failed_report_leaves_the_earlier_one(void **state) {
    (void)state;
    write_good();
    char output[300], index[600], path[700];
    snprintf(output, sizeof output, "%s/out", folder);
    assert_int_equal(ls_report_generate(results, output, index, sizeof index), LS_OK);
    struct stat before, after;
    assert_int_equal(stat(index, &before), 0);
    char *search = strdup(getenv("PATH"));
    assert_non_null(search);
    assert_int_equal(setenv("PATH", folder, 1), 0); /* no gnuplot there */
    assert_int_equal(ls_report_generate(results, output, path, sizeof path), LS_BAD_INPUT);
    assert_int_equal(setenv("PATH", search, 1), 0);
    free(search);
    assert_int_equal(stat(index, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    char command[400];
    snprintf(command, sizeof command, "test -z \"$(find '%s' -name '.making*')\"", output);
    assert_int_equal(system(command), 0);
    assert_int_equal(ls_report_generate(results, "/dev/null/report", path, sizeof path), LS_BAD_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_grouped_and_sorted),
        cmocka_unit_test(modes_are_apart),
        cmocka_unit_test(options_are_apart),
        cmocka_unit_test(a_report_has_plots_with_data_and_script),
        cmocka_unit_test(an_earlier_form_is_told),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(broken_rows_are_left_out),
        cmocka_unit_test(a_line_has_a_limit),
        cmocka_unit_test(only_files_give_way_to_a_report),
        cmocka_unit_test(a_failed_report_leaves_the_earlier_one),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
