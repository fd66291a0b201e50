/* Files as users name them: what a path means, what is replaced, and what stays as it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/base/path.h"
#include "reference/file.h"
#include "reference/raw.h"
#include "tests/impls/stderr_capture.h"
#include "tests/reference/folder.h"

/* An empty folder for each test. */
static int clear(void **state) {
    return folder_remove(state) != 0 || folder_make(state) != 0;
}

/* folder_path with memory of its own; two of them at once. */
static const char *at(const char *name) {
    static char paths[2][256];
    static size_t turn;
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s", folder_path(name));
    return path;
}

static mode_t kind_of(const char *name) {
    struct stat info;
    return lstat(at(name), &info) == 0 ? info.st_mode & S_IFMT : 0;
}

static ls_rc write_word(const char *path) {
    ls_file_writer *writer = NULL;
    LS_TRY(ls_file_create(path, &writer));
    ls_file_write(writer, "word", 4);
    return ls_file_finish(writer);
}

static void assert_word(const char *name) {
    char bytes[16];
    assert_int_equal(kind_of(name), S_IFREG);
    assert_int_equal(folder_read(name, bytes, sizeof bytes), 4);
    assert_memory_equal(bytes, "word", 4);
}

static ls_rc write_raw(const char *path) {
    uint8_t pixels[4] = {0};
    int32_t labels[1] = {0};
    ls_dataset none = {0}, one = {.count = 1, .channels = 1, .height = 2, .width = 2, .classes = 1};
    one.pixels = pixels;
    one.labels = labels;
    return ls_raw_write(path, &one, &none);
}

static ls_rc check_replaced(const char *path) {
    return ls_file_check_output("--save", path);
}

static ls_rc check_appended(const char *path) {
    return ls_file_check_append("--json", path);
}

static void expect_refusal(ls_rc (*call)(const char *), const char *path, const char *words) {
    stderr_capture errors;
    assert_int_equal(stderr_capture_begin(&errors), 0);
    ls_rc rc = call(path);
    stderr_capture_end(&errors);
    assert_int_equal(rc, LS_BAD_INPUT);
    assert_int_equal(errors.lines, 1);
    if (strstr(errors.text, words) == NULL) {
        fail_msg("expected '%s' in: %s", words, errors.text);
    }
}

static void a_link_stays_and_its_target_is_replaced(void **state) {
    (void)state;
    assert_int_equal(mkdir(at("deep"), 0700), 0);
    folder_write("deep/old", "old", 3);
    assert_int_equal(symlink("deep/second", at("first")), 0);
    assert_int_equal(symlink("old", at("deep/second")), 0); /* from its own folder */
    assert_int_equal(check_replaced(at("first")), LS_OK);
    assert_int_equal(write_word(at("first")), LS_OK);
    assert_int_equal(kind_of("first"), S_IFLNK);
    assert_int_equal(kind_of("deep/second"), S_IFLNK);
    assert_word("deep/old");
    assert_int_equal(symlink(at("deep/new"), at("dangling")), 0);
    assert_int_equal(write_word(at("dangling")), LS_OK);
    assert_int_equal(kind_of("dangling"), S_IFLNK);
    assert_word("deep/new");
    assert_int_equal(write_raw(at("first")), LS_OK);
    assert_int_equal(kind_of("first"), S_IFLNK);
    assert_int_equal(symlink("round", at("round")), 0);
    expect_refusal(write_word, at("round"), "symbolic links that lead nowhere");
}

static void only_files_are_replaced(void **state) {
    (void)state;
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    assert_int_equal(symlink("pipe", at("link")), 0);
    assert_int_equal(mkdir(at("folder"), 0700), 0);
    ls_rc (*const calls[])(const char *) = {write_word, write_raw, check_replaced};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        expect_refusal(calls[i], at("pipe"), "expected a file, found a device, pipe or socket");
        expect_refusal(calls[i], at("link"), "expected a file, found a device, pipe or socket");
        expect_refusal(calls[i], at("folder"), "expected a file, found a folder");
    }
    assert_int_equal(kind_of("pipe"), S_IFIFO);
    assert_int_equal(kind_of("link"), S_IFLNK);
}

static void a_check_leaves_nothing(void **state) {
    (void)state;
    assert_int_equal(check_replaced(at("new")), LS_OK);
    assert_int_equal(check_appended(at("new")), LS_OK);
    assert_int_equal(rmdir(folder), 0); /* it is empty */
    expect_refusal(check_appended, at("new"), "No such file or directory");
    assert_int_equal(mkdir(folder, 0700), 0);
    expect_refusal(check_appended, folder, "found a folder");
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    assert_int_equal(check_appended(at("pipe")), LS_OK); /* rows go into a pipe; nobody waits for its reader */
}

static ls_rc read_all(const char *path) {
    ls_file_bytes bytes;
    return ls_file_read(path, &bytes);
}

static ls_rc open_regular(const char *path) {
    int file;
    struct stat info;
    ls_rc rc = ls_path_open_regular(path, &file, &info);
    assert_int_equal(file, -1);
    return rc;
}

static void only_files_are_read(void **state) {
    (void)state;
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    ls_rc (*const calls[])(const char *) = {read_all, open_regular};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        expect_refusal(calls[i], at("pipe"), "expected a file, found a device, pipe or socket");
        expect_refusal(calls[i], folder, "expected a file, found a folder");
        expect_refusal(calls[i], at("none"), "cannot be opened: No such file");
    }
}

static void paths_are_compared_by_what_they_mean(void **state) {
    (void)state;
    assert_int_equal(mkdir(at("folder"), 0700), 0);
    assert_int_equal(symlink("folder", at("other")), 0);
    folder_write("folder/there", "x", 1);
    folder_write("folder/twin", "x", 1);
    assert_int_equal(link(at("folder/there"), at("hard")), 0);
    assert_int_equal(symlink("folder/there", at("soft")), 0);
    assert_int_equal(symlink("folder/new", at("to-new")), 0);
    assert_true(ls_path_same(at("folder/there"), at("other/there")));
    assert_true(ls_path_same(at("folder/there"), at("hard")));
    assert_true(ls_path_same(at("soft"), at("other/../folder/there")));
    assert_true(ls_path_same(at("folder/new"), at("other/new"))); /* neither is there yet */
    assert_true(ls_path_same(at("to-new"), at("other/new")));
    assert_true(ls_path_same("/nowhere/at/all", "/nowhere/at/all"));
    assert_false(ls_path_same(at("folder/there"), at("folder/twin")));
    assert_false(ls_path_same(at("folder/there"), at("folder/new")));
    assert_false(ls_path_same(at("folder/new"), at("new")));
    assert_false(ls_path_same(at("new"), at("old")));
    assert_int_equal(chdir(folder), 0);
    assert_true(ls_path_same("new", at("new")));
    assert_true(ls_path_same("./new", "new"));
    assert_int_equal(chdir("/"), 0);
}

static void what_cannot_be_synchronised_is_no_failure(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(ls_path_sync(ends[1]), 0);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(ls_path_sync(ends[1]), -1);
    assert_int_equal(errno, EBADF);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_link_stays_and_its_target_is_replaced, clear),
        cmocka_unit_test_setup(only_files_are_replaced, clear),
        cmocka_unit_test_setup(a_check_leaves_nothing, clear),
        cmocka_unit_test_setup(only_files_are_read, clear),
        cmocka_unit_test_setup(paths_are_compared_by_what_they_mean, clear),
        cmocka_unit_test(what_cannot_be_synchronised_is_no_failure),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
