#include "bench/random_outcome.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "bench/results.h"

static ls_status status_of(const json_t *row) {
    const char *name = json_string_value(json_object_get(row, "status"));
    for (ls_status status = LS_SKIPPED; name != NULL && status <= LS_FAILED; status++) {
        if (strcmp(ls_status_name(status), name) == 0) {
            return status;
        }
    }
    return LS_FAILED;
}

/* The worst status of the rows is the case's. */
static void read_rows(const char *path, ls_random_outcome *outcome) {
    size_t index = 0;
    json_t *row = NULL;
    outcome->rows = ls_results_read(path);
    json_array_foreach(outcome->rows, index, row) {
        ls_status status = status_of(row);
        if (index == 0 || status > outcome->status) {
            const char *reason = json_string_value(json_object_get(row, "reason"));
            outcome->status = status;
            snprintf(outcome->reason, sizeof outcome->reason, "%s", reason != NULL ? reason : "");
        }
    }
}

/* The paragraphs about what FAILED: a line "FAILED ..." and those indented behind it. */
static char *read_told(const char *path) {
    FILE *file = fopen(path, "re");
    char *told = NULL, *line = NULL;
    size_t told_size = 0, size = 0;
    FILE *text = open_memstream(&told, &told_size);
    bool inside = false;
    while (file != NULL && text != NULL && getline(&line, &size, file) >= 0) {
        inside = strncmp(line, "FAILED ", 7) == 0 || (inside && strncmp(line, "  ", 2) == 0);
        if (inside) {
            fprintf(text, "  %s", line);
        }
    }
    free(line);
    if (text != NULL) {
        fclose(text);
    }
    if (file != NULL) {
        fclose(file);
    }
    return told;
}

/* The first line of stderr, for a command that did not come to its end. */
static void read_end(int status, const char *path, ls_random_outcome *outcome) {
    char first[384] = "";
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fgets(first, sizeof first, file) != NULL) {
            first[strcspn(first, "\n")] = '\0';
        }
        fclose(file);
    }
    outcome->status = LS_FAILED;
    if (WIFSIGNALED(status)) {
        snprintf(outcome->reason, sizeof outcome->reason, "ended by signal %d: %s", WTERMSIG(status), first);
    } else {
        snprintf(outcome->reason, sizeof outcome->reason, "exit %d: %s", WEXITSTATUS(status), first);
    }
}

void ls_random_outcome_read(int status, const char *out, const char *error, const char *json,
                            ls_random_outcome *outcome) {
    *outcome = (ls_random_outcome){.status = LS_SKIPPED};
    read_rows(json, outcome);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    bool as_said = (code == LS_OK && outcome->status == LS_PASSED) ||
                   (code == LS_CHECK_FAILED && outcome->status != LS_PASSED && json_array_size(outcome->rows) > 0) ||
                   (code == LS_OK && outcome->status == LS_MISTRUSTED);
    if (!as_said) {
        read_end(status, error, outcome);
    }
    if (outcome->status == LS_FAILED) {
        outcome->told = read_told(out);
    }
}

void ls_random_outcome_free(ls_random_outcome *outcome) {
    json_decref(outcome->rows);
    free(outcome->told);
    *outcome = (ls_random_outcome){0};
}
