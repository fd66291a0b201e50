/* gpu/range.c with NVIDIA's NVTX: a tool hears every range; without one nothing happens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/range.h"
#include "tests/cuda/range_tool.h"

static void work(void) {
    LS_RANGE_NUMBERED("step", 7);
    { LS_RANGE("forward"); }
    LS_RANGE("update");
}

/* NVTX looks for a tool once, so each case is a process. */
static int exit_code(void (*body)(void)) {
    int status = -1;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void with_tool(void) {
    if (setenv("NVTX_INJECTION64_PATH", RANGE_TOOL, 1) != 0) {
        _exit(2);
    }
    work();
    void *tool = dlopen(RANGE_TOOL, RTLD_LAZY | RTLD_NOLOAD);
    if (tool == NULL) {
        _exit(3); /* NVTX has not loaded it */
    }
    const char *(*text)(void) = NULL;
    *(void **)&text = dlsym(tool, "range_tool_text");
    if (text == NULL || strcmp(text(), "lockstep: step 7(forward()update())") != 0) {
        _exit(4);
    }
}

static void without_tool(void) {
    if (unsetenv("NVTX_INJECTION64_PATH") != 0) {
        _exit(2);
    }
    work();
}

static void test_tool(void **state) {
    (void)state;
    assert_int_equal(exit_code(with_tool), 0);
}

static void test_none(void **state) {
    (void)state;
    assert_int_equal(exit_code(without_tool), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tool), cmocka_unit_test(test_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
