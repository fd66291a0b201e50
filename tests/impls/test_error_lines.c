/* Ranks' messages on their way through the launcher. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "impls/error_lines.h"
#include "tests/impls/stderr_capture.h"

static void say(ls_error_lines *lines, const char *text) {
    assert_int_equal(write(ls_error_lines_writer(lines), text, strlen(text)), strlen(text));
    ls_error_lines_read(lines);
}

static ls_error_lines *begin(bool mpirun, stderr_capture *errors) {
    ls_error_lines *lines = NULL;
    assert_int_equal(ls_error_lines_open(mpirun, &lines), LS_OK);
    assert_int_equal(stderr_capture_begin(errors), 0);
    return lines;
}

static void end(ls_error_lines *lines, stderr_capture *errors) {
    ls_error_lines_close(lines);
    stderr_capture_end(errors);
}

static void same_message_of_several_ranks_is_shown_once(void **state) {
    (void)state;
    stderr_capture errors;
    ls_error_lines *lines = begin(false, &errors);
    say(lines, "lockstep: rank 1 device 1: bad fi");
    say(lines, "le\nlockstep: rank 0 device 0: bad file\nlockstep: rank 2 device 2: other\n");
    ls_error_lines_show(lines);
    end(lines, &errors);
    assert_string_equal(errors.text, "lockstep: rank 1 device 1: bad file\nlockstep: rank 2 device 2: other\n");
}

static void foreign_lines_pass_at_once(void **state) {
    (void)state;
    stderr_capture errors;
    ls_error_lines *lines = begin(true, &errors);
    say(lines, "==12==ERROR: AddressSanitizer\n");
    end(lines, &errors);
    assert_string_equal(errors.text, "==12==ERROR: AddressSanitizer\n");
}

static void settling_keeps_the_guilty_ranks_lines(void **state) {
    (void)state;
    stderr_capture errors;
    char text[64];
    ls_error_lines *lines = begin(false, &errors);
    say(lines, "lockstep: rank 0 device 0: peer gone\nlockstep: rank 1 device 1: broken\nlockstep: no rank\n");
    bool found = ls_error_lines_settle(lines, 1, false, text, sizeof text);
    end(lines, &errors);
    assert_true(found);
    assert_string_equal(text, "broken");
    assert_string_equal(errors.text, "lockstep: rank 1 device 1: broken\n");
}

static void line_shown_before_still_explains(void **state) {
    (void)state;
    stderr_capture errors;
    char text[64] = "";
    ls_error_lines *lines = begin(false, &errors);
    say(lines, "lockstep: rank 1 device 1: broken\nlockstep: rank 0 device 0: broken\n");
    ls_error_lines_tick(lines);
    bool none_yet = errors.lines == 0;
    ls_error_lines_tick(lines);
    bool found = ls_error_lines_settle(lines, 0, false, text, sizeof text);
    bool other = ls_error_lines_settle(lines, 2, false, text, sizeof text);
    end(lines, &errors);
    assert_true(none_yet && found);
    assert_false(other);
    assert_string_equal(text, "broken");
    assert_int_equal(errors.lines, 1);
}

static void mpiruns_own_words_are_left_out(void **state) {
    (void)state;
    stderr_capture errors;
    ls_error_lines *lines = begin(true, &errors);
    char hint[64];
    say(lines, "----------------------------------------\nThere are not enough slots\nin the system.\n"
               "----------------------------------------\n[host:123] noise\nmpirun: killing job\n\nrank's own\n");
    snprintf(hint, sizeof hint, "%s", ls_error_lines_hint(lines));
    end(lines, &errors);
    assert_string_equal(hint, "There are not enough slots");
    assert_string_equal(errors.text, "rank's own\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_message_of_several_ranks_is_shown_once),
        cmocka_unit_test(foreign_lines_pass_at_once),
        cmocka_unit_test(settling_keeps_the_guilty_ranks_lines),
        cmocka_unit_test(line_shown_before_still_explains),
        cmocka_unit_test(mpiruns_own_words_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
