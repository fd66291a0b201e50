/* Saving: the bytes of the file, what is refused, and that a failure leaves the old file alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reference/checkpoint/formats.h"
#include "reference/checkpoint/model_state.h"
#include "tests/reference/checkpoint_fixture.h"
#include "tests/reference/folder.h"

static ls_model model;

static int set_up(void **state) {
    return folder_make(state) != 0 || tiny_model(&model) != 0;
}

static size_t entries(void) {
    DIR *list = opendir(folder);
    assert_non_null(list);
    size_t count = 0;
    for (struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        count += entry->d_name[0] != '.';
    }
    closedir(list);
    return count;
}

/* What the format says of this model, written by hand: offsets contiguous in registration order, padded to 8. */
static void check_saved(ls_dtype dtype, const char *header) {
    size_t element = ls_dtype_size(dtype);
    double wide[32];
    float narrow[32];
    assert_true(model.param_count <= 32);
    for (size_t i = 0; i < model.param_count; i++) {
        wide[i] = 0.5 + (double)i;
        narrow[i] = 0.5F + (float)i;
    }
    void *flat = dtype == LS_FLOAT64 ? (void *)wide : (void *)narrow;
    assert_int_equal(ls_state_check_output("--save", folder_path("m.safetensors"), 0), LS_OK);
    assert_int_equal(ls_model_save(folder_path("m.safetensors"), &model, dtype, &(ls_model_values){.params = flat}),
                     LS_OK);
    assert_int_equal(entries(), 1);
    unsigned char bytes[2048];
    size_t size = folder_read("m.safetensors", bytes, sizeof bytes);
    size_t text = strlen(header);
    size_t padded = (text + 7) / 8 * 8;
    assert_int_equal(size, 8 + padded + model.param_count * element);
    const unsigned char length[8] = {(unsigned char)(padded & 0xff), (unsigned char)(padded >> 8)};
    assert_memory_equal(bytes, length, 8);
    assert_memory_equal(bytes + 8, header, text);
    for (size_t i = text; i < padded; i++) {
        assert_int_equal(bytes[8 + i], ' ');
    }
    size_t at = 8 + padded;
    for (size_t p = 0; p < model.param_tensors; p++) {
        size_t count = model.params[p].count * element;
        assert_memory_equal(bytes + at, (const char *)flat + model.params[p].offset * element, count);
        at += count;
    }
}

static void test_bytes_of_the_file(void **state) {
    (void)state;
    check_saved(LS_FLOAT32, "{\"__metadata__\":{\"format\":\"pt\"},"
                            "\"conv1.weight\":{\"dtype\":\"F32\",\"shape\":[3,1,2,2],\"data_offsets\":[0,48]},"
                            "\"conv1.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[48,60]},"
                            "\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[60,84]},"
                            "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[84,92]}}");
    check_saved(LS_FLOAT64, /* over the file that is there */
                "{\"__metadata__\":{\"format\":\"pt\"},"
                "\"conv1.weight\":{\"dtype\":\"F64\",\"shape\":[3,1,2,2],\"data_offsets\":[0,96]},"
                "\"conv1.bias\":{\"dtype\":\"F64\",\"shape\":[3],\"data_offsets\":[96,120]},"
                "\"fc.weight\":{\"dtype\":\"F64\",\"shape\":[2,3],\"data_offsets\":[120,168]},"
                "\"fc.bias\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[168,184]}}");
}

static void test_mode_follows_umask(void **state) {
    (void)state;
    float flat[32] = {0};
    mode_t before = umask(027);
    assert_int_equal(
        ls_model_save(folder_path("mode.safetensors"), &model, LS_FLOAT32, &(ls_model_values){.params = flat}), LS_OK);
    umask(before);
    struct stat info;
    assert_int_equal(stat(folder_path("mode.safetensors"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_equal(unlink(folder_path("mode.safetensors")), 0);
}

static void assert_check_refuses(const char *path, uint64_t bytes, const char *words) {
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    char name[] = "/tmp/lockstep-test-stderr-XXXXXX";
    int file = mkstemp(name);
    assert_true(saved >= 0 && file >= 0);
    dup2(file, STDERR_FILENO);
    ls_rc rc = ls_state_check_output("--save", path, bytes);
    dup2(saved, STDERR_FILENO);
    char text[2048] = {0};
    ssize_t size = pread(file, text, sizeof text - 1, 0);
    close(saved);
    close(file);
    unlink(name);
    assert_int_equal(rc, LS_BAD_INPUT);
    assert_true(size > 0);
    assert_ptr_equal(strchr(text, '\n'), text + size - 1);
    if (strstr(text, words) == NULL) {
        fail_msg("expected '%s' in: %s", words, text);
    }
}

static void test_refused_names(void **state) {
    (void)state;
    assert_check_refuses("model.bin", 0, "ends in .pth, .pt or .safetensors, found 'model.bin'");
    assert_check_refuses("model.safetensors.gz", 0, "ends in .pth");
    assert_check_refuses("", 0, "ends in .pth");
    assert_check_refuses(".safetensors", 0, "ends in .pth");
    assert_check_refuses("/tmp/.pth", 0, "ends in .pth");
    assert_check_refuses("/nowhere/at/all/m.safetensors", 0, "/nowhere/at/all: No such file");
    assert_check_refuses("/proc/m.pth", 0, "folder that can be written, found /proc");
    assert_check_refuses(folder_path("m.pth"), UINT32_MAX, "save as .safetensors"); /* no zip64 */
    assert_int_equal(mkdir(folder_path("folder.safetensors"), 0700), 0);
    assert_check_refuses(folder_path("folder.safetensors"), 0, "found a folder");
    assert_int_equal(rmdir(folder_path("folder.safetensors")), 0);
}

/* A write that fails (here by the limit on a file's size) keeps the old file and removes the new one. */
static void test_failed_write_leaves_the_old_file(void **state) {
    (void)state;
    float flat[32] = {0};
    assert_int_equal(
        ls_model_save(folder_path("m.safetensors"), &model, LS_FLOAT32, &(ls_model_values){.params = flat}), LS_OK);
    unsigned char before[2048];
    unsigned char after[2048];
    size_t size = folder_read("m.safetensors", before, sizeof before);
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct rlimit small = {.rlim_cur = 64, .rlim_max = old.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    flat[0] = 1.0F;
    ls_rc rc = ls_model_save(folder_path("m.safetensors"), &model, LS_FLOAT32, &(ls_model_values){.params = flat});
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(rc, LS_BAD_INPUT);
    assert_int_equal(folder_read("m.safetensors", after, sizeof after), size);
    assert_memory_equal(before, after, size);
    assert_int_equal(entries(), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_of_the_file),
        cmocka_unit_test(test_mode_follows_umask),
        cmocka_unit_test(test_refused_names),
        cmocka_unit_test(test_failed_write_leaves_the_old_file),
    };
    return cmocka_run_group_tests(tests, set_up, folder_remove);
}
