/* Runs this program again as one scenario, with settings of its own in the environment: a mode is chosen once a process, and a
 * finding may end it. */
#ifndef LS_TESTS_GPU_SCENARIO_H
#define LS_TESTS_GPU_SCENARIO_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/gpu/runtime.h"

/* What a run ended with: exit code (128 + the signal after one), and what it wrote to stderr. */
typedef struct ending {
    int code;
    size_t lines;
    char text[4096];
} ending;

/* settings: NAME=VALUE, NULL at the end. variant is handed to the scenario. */
static inline ending run_scenario(const char *name, const char *variant, const char *const *settings) {
    ending e = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        for (size_t i = 0; settings[i] != NULL; i++) {
            putenv((char *)(uintptr_t)settings[i]);
        }
        execl("/proc/self/exe", "test", name, variant, (char *)NULL);
        _exit(99);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t got = 0;
    while ((got = read(ends[0], e.text + used, sizeof e.text - 1 - used)) > 0) {
        used += (size_t)got;
    }
    close(ends[0]);
    for (size_t i = 0; i < used; i++) {
        e.lines += e.text[i] == '\n';
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    e.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return e;
}

/* One line that has all the words, and the exit code of a failed device. */
static inline void expect_finding(ending e, const char *const *words) {
    if (e.code != 3 || e.lines != 1) {
        fail_msg("exit %d, %zu lines: %s", e.code, e.lines, e.text);
    }
    for (size_t i = 0; words[i] != NULL; i++) {
        if (strstr(e.text, words[i]) == NULL) {
            fail_msg("no '%s' in: %s", words[i], e.text);
        }
    }
}

static inline void expect_silence(ending e) {
    if (e.code != 0 || e.lines != 0) {
        fail_msg("exit %d: %s", e.code, e.text);
    }
}

/* In the scenario: a failed call ends it at once with the exit code of a failed device. Notes the place, as LS_CUDA does. */
#define DO(call)                           \
    do {                                   \
        LS_NOTE_PLACE(__FILE__, __LINE__); \
        if ((int)(call) != 0) {            \
            _exit(3);                      \
        }                                  \
    } while (0)

#endif
