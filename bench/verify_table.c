#include "bench/verify_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/results.h"
#include "impls/impl.h"
#include "impls/json_number.h"
#include "impls/run_spec.h"

static const ls_impl *impl_of(const ls_verify_point *point) {
    return ls_impl_find(point->run.impl);
}

static const char *ranks_of(const ls_verify_point *point) {
    unsigned capabilities = impl_of(point)->capabilities;
    if ((capabilities & (LS_CAP_RANK_THREADS | LS_CAP_RANK_PROCESSES | LS_CAP_MPIRUN)) == 0) {
        return "-";
    }
    return point->run.ranks == LS_RANKS_THREADS ? "threads" : "processes";
}

static void bucket_of(const ls_verify_point *point, char *text, size_t size) {
    size_t bytes = point->run.bucket_bytes;
    if ((impl_of(point)->capabilities & LS_CAP_BUCKETS) == 0) {
        snprintf(text, size, "-");
    } else if (bytes % (1024 * 1024) == 0) {
        snprintf(text, size, "%zuMiB", bytes / (1024 * 1024));
    } else if (bytes % 1024 == 0) {
        snprintf(text, size, "%zuKiB", bytes / 1024);
    } else {
        snprintf(text, size, "%zu", bytes);
    }
}

/* "1.9/5", "8.1e-16/1e-12"; exact checks have nothing to measure: "equal". */
static void measured(const ls_finding *finding, char *text, size_t size) {
    if (finding->status == LS_SKIPPED) {
        snprintf(text, size, "-");
    } else if (isnan(finding->bound)) {
        snprintf(text, size, "%s", ls_status_name(finding->status));
    } else if (finding->bound == 0) {
        if (finding->observed == 0) {
            snprintf(text, size, "equal");
        } else {
            snprintf(text, size, "%.0f differ", finding->observed);
        }
    } else if (finding->bound >= 1) {
        snprintf(text, size, finding->observed < 1000 ? "%.2f/%.0f" : "%.1e/%.0f", finding->observed, finding->bound);
    } else {
        snprintf(text, size, "%.1e/%.1e", finding->observed, finding->bound);
    }
}

void ls_verify_print_head(const ls_options *options, size_t cases) {
    printf("%zu cases of %zu steps on %s, ", cases, options->run.steps, options->run.data);
    if (options->run.global_batch > 0) {
        printf("%zu samples a step over all devices", options->run.global_batch);
    } else {
        printf("%zu samples a device and step", options->run.batch);
    }
    printf(" (small: the oracle computes every sample in plain C).\n"
           "`single` comes first on each global batch: its own error against the oracle scales the float32 bounds.\n"
           "Cells: observed/bound, by layer. 0 samples, inputs, initial, 1 bits, protocol, 5 exact: no tolerance. 2 "
           "reduction: "
           "largest\nerror in units of u*mean|g|. 3 (float64) and 4 (float32) oracle: largest relative error of a "
           "tensor's "
           "gradient.\n6 update: of parameters and optimizer state, given the device's own gradient, in units of the "
           "bound; "
           "trajectory: that of its parameters after a step (adaptive optimizers: the largest absolute error "
           "of one);\nbuffers: batchnorm's statistics, in units of the bound. 0 masks: dropout's share "
           "kept, "
           "in standard deviations.\n\n");
    printf("%-6s %-9s %3s %5s %-9s %-7s %-6s  %-7s %-7s %-7s %-7s %-7s %-8s %-9s %-15s %-7s %-7s %-15s %-9s %s\n",
           "impl", "ranks", "dev", "batch", "model", "dtype", "bucket", "samples", "inputs", "initial", "masks", "bits",
           "protocol", "reduction", "oracle", "exact", "update", "trajectory", "buffers", "status");
}

/* Findings by the heading of their check; float64 and float32 share a column. */
static void print_cells(const ls_verdict *verdict) {
    static const int widths[] = {7, 7, 7, 7, 7, 8, 9, 15, 7, 7, 15, 9};
    for (size_t i = 0, column = 0; i < verdict->count; i++) {
        char text[48];
        measured(&verdict->findings[i], text, sizeof text);
        if (ls_checks[i].layer == 3 && verdict->findings[i].status == LS_SKIPPED) {
            continue;
        }
        if (ls_checks[i].layer == 4 && verdict->findings[i].status == LS_SKIPPED) {
            continue;
        }
        printf(" %-*s", widths[column++], text);
    }
}

void ls_verify_print_row(const ls_verify_point *point, const ls_verify_result *result) {
    const ls_run *run = &point->run;
    char bucket[32];
    bucket_of(point, bucket, sizeof bucket);
    size_t batch = run->global_batch > 0 ? run->global_batch / run->devices : run->batch;
    char label[16];
    printf("%-6s %-9s %3zu %5zu %-9s %-7s %-6s ", run->impl, ranks_of(point), run->devices, batch,
           ls_run_model_label(run, label), ls_dtype_name(run->dtype), bucket);
    if (result->checked) {
        print_cells(&result->verdict);
    }
    bool explain = result->status == LS_SKIPPED || result->status == LS_MISTRUSTED;
    printf(" %s%s%s%s\n", ls_status_name(result->status), explain ? "(" : "", explain ? result->reason : "",
           explain ? ")" : "");
    fflush(stdout);
}

static void reproducing_line(const ls_run *run, char *text, size_t size) {
    ls_run plain = *run;
    plain.run_dir[0] = '\0';
    ls_options_line("lockstep", LS_COMMAND_VERIFY, &plain, text, size);
}

void ls_verify_print_failure(const ls_verify_point *point, const ls_verify_result *result) {
    const ls_run *run = &point->run;
    char command[4096];
    char bucket[32];
    reproducing_line(run, command, sizeof command);
    bucket_of(point, bucket, sizeof bucket);
    printf("\nFAILED %s, ranks %s, %zu devices, %s, %s, bucket %s\n", run->impl, ranks_of(point), run->devices,
           run->model, ls_dtype_name(run->dtype), bucket);
    if (!result->checked) {
        printf("  %s\n", result->reason);
    }
    for (size_t i = 0; result->checked && i < result->verdict.count; i++) {
        const ls_finding *finding = &result->verdict.findings[i];
        if (finding->status == LS_FAILED) {
            printf("  layer %d, %s: %s\n", ls_checks[i].layer, ls_checks[i].name, finding->detail);
            if (finding->cause[0] != '\0') {
                printf("    likely cause: %s\n", finding->cause);
            }
            if (finding->tensors[0] != '\0') {
                printf("    tensors: %s\n", finding->tensors);
            }
        }
    }
    printf("  reproduce: %s\n", command);
}

static json_t *text_or_null(const char *text) {
    return text[0] != '\0' ? json_string(text) : json_null();
}

static json_t *verification_json(const ls_verdict *verdict) {
    json_t *layers = json_array();
    const char *cause = "";
    for (size_t i = 0; i < verdict->count; i++) {
        const ls_finding *finding = &verdict->findings[i];
        const char *detail = finding->status == LS_FAILED ? finding->detail : finding->reason;
        json_array_append_new(layers,
                              json_pack("{s:i, s:s, s:s, s:o, s:o, s:o, s:o}", "layer", ls_checks[i].layer, "name",
                                        ls_checks[i].name, "status", ls_status_name(finding->status), "observed",
                                        ls_json_number(finding->observed), "bound", ls_json_number(finding->bound),
                                        "detail", text_or_null(detail), "tensors", text_or_null(finding->tensors)));
        if (cause[0] == '\0' && finding->status == LS_FAILED) {
            cause = finding->cause;
        }
    }
    return json_pack("{s:o, s:o}", "layers", layers, "cause", text_or_null(cause));
}

json_t *ls_verify_json(const ls_verify_point *point, const ls_verify_result *result) {
    char command[4096];
    reproducing_line(&point->run, command, sizeof command);
    json_t *row = ls_result_row("verify", &point->run, command);
    if (row == NULL) {
        return NULL;
    }
    json_object_set_new(row, "status", json_string(ls_status_name(result->status)));
    json_object_set_new(row, "reason", text_or_null(result->status == LS_PASSED ? "" : result->reason));
    if (result->checked) {
        json_object_set_new(row, "verification", verification_json(&result->verdict));
    }
    json_object_set_new(row, "param_hash", text_or_null(result->param_hash));
    if (result->counters != NULL) {
        json_object_set(row, "counters", result->counters);
    }
    return row;
}
