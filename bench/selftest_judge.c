/* What a row of verify says about a fault. */
#include <stdio.h>
#include <string.h>

#include "bench/selftest.h"
#include "verify/check.h"

const char *ls_selftest_verdict_name(ls_selftest_verdict verdict) {
    static const char *const names[] = {[LS_SELFTEST_CAUGHT] = "CAUGHT",
                                        [LS_SELFTEST_SKIPPED] = "SKIPPED",
                                        [LS_SELFTEST_ELSEWHERE] = "WRONG CHECK",
                                        [LS_SELFTEST_SURVIVED] = "SURVIVED"};
    return names[verdict];
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* The short name of a check. */
static const char *heading_of(const char *name) {
    for (const ls_check *check = ls_checks; check->name != NULL; check++) {
        if (strcmp(check->name, name) == 0) {
            return check->heading;
        }
    }
    return name;
}

/* The failed checks of a row; "run" when it has none because the run failed. */
static void list_failed(const json_t *row, char *by, size_t size) {
    const json_t *layers = json_object_get(json_object_get(row, "verification"), "layers");
    size_t index = 0;
    const json_t *layer = NULL;
    size_t used = 0;
    by[0] = '\0';
    if (!json_is_array(layers)) {
        (void)snprintf(by, size, "run");
        return;
    }
    json_array_foreach(layers, index, layer) {
        if (strcmp(text_of(layer, "status"), "FAILED") == 0 && used < size) {
            used += (size_t)snprintf(by + used, size - used, "%s%s", used > 0 ? " " : "",
                                     heading_of(text_of(layer, "name")));
        }
    }
}

ls_selftest_verdict ls_selftest_judge(const char *checks, const json_t *row, char *by, size_t size) {
    const char *status = text_of(row, "status");
    by[0] = '\0';
    if (strcmp(status, "SKIPPED") == 0) {
        return LS_SELFTEST_SKIPPED;
    }
    if (strcmp(status, "FAILED") != 0) {
        return LS_SELFTEST_SURVIVED;
    }
    list_failed(row, by, size);
    for (const char *at = checks; *at != '\0'; at += strspn(at, " ")) {
        char word[32];
        size_t length = strcspn(at, " ");
        (void)snprintf(word, sizeof word, "%.*s", (int)length, at);
        const char *heading = strcmp(word, "oracle") == 0 ? text_of(row, "dtype") : word;
        if (!ls_mutant_names(by, heading)) {
            return LS_SELFTEST_ELSEWHERE;
        }
        at += length;
    }
    return LS_SELFTEST_CAUGHT;
}
