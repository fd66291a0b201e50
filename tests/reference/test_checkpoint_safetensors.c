/* Reading safetensors: what is written comes back, and every way in which a file can be wrong is one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/reference/checkpoint_fixture.h"

/* A file of this header and so many bytes of data, which count up. */
static void make_file(builder *b, const char *header, size_t data) {
    b->size = 0;
    put_number(b, 8, strlen(header));
    put_words(b, header);
    for (size_t i = 0; i < data; i++) {
        put_byte(b, (unsigned)i & 0xff);
    }
}

static void test_kinds(void **state) {
    (void)state;
    static builder b;
    const char *header = "{\"__metadata__\":{\"format\":\"pt\",\"who\":\"me\"},"
                         "\"f64\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[10,18]},"
                         "\"f16\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[0,6]},"
                         "\"bf16\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[6,10]},"
                         "\"i64\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[18,26]},"
                         "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[26,26]}}   ";
    make_file(&b, header, 0);
    put_number(&b, 2, 0x3c00); /* 1 */
    put_number(&b, 2, 0x8001); /* -2^-24, the smallest subnormal */
    put_number(&b, 2, 0x7bff); /* 65504, the largest */
    put_number(&b, 2, 0x3fc0); /* 1.5 */
    put_number(&b, 2, 0xc000); /* -2 */
    double wide = 0.1;
    put(&b, &wide, sizeof wide);
    put_number(&b, 8, (uint64_t)-3);
    ls_state read = {0};
    expect_good(ls_safetensors_read, b.data, b.size, &read);
    assert_int_equal(read.count, 5);
    assert_string_equal(read.tensors[0].name, "f64"); /* in the header's order */
    expect_values(&read, "f64", 1, (double[]){0.1});
    expect_values(&read, "f16", 3, (double[]){1, -1.0 / (1 << 24), 65504});
    expect_values(&read, "bf16", 2, (double[]){1.5, -2});
    expect_values(&read, "i64", 1, (double[]){-3});
    assert_int_equal(ls_state_find(&read, "i64")->dims, 0);
    assert_int_equal(ls_state_find(&read, "empty")->count, 0);
    assert_string_equal(ls_state_text_of(&read, "who"), "me");
    ls_state_free(&read);
}

static void test_half_infinities(void **state) {
    (void)state;
    uint16_t halves[3] = {0x7c00, 0xfc00, 0x8000};
    float wide[3];
    ls_state_element_widen(LS_ELEMENT_FLOAT16, 3, halves, wide);
    assert_true(wide[0] > 3.4e38F && wide[1] < -3.4e38F && wide[2] == 0 && 1 / wide[2] < 0);
}

static void test_bad_headers(void **state) {
    (void)state;
    static builder b;
    const struct {
        const char *header;
        size_t data;
        const char *words;
    } cases[] = {
        {"[]", 0, "expected the header to start with '{'"},
        {"{\"a\":", 0, "expected a JSON header"},
        {"{\"a\n\x1b[31m\":1}", 0, "expected a JSON header"},
        {"{} x", 0, "expected a JSON header"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "duplicate object key"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,99999999999999999999]}}", 4, "too big integer"},
        {"{\"a\":1}", 0, "'a': expected dtype, shape and data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"offsets\":[0,4]}}", 4, "two numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4, "nothing else"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "found U8"},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "found none"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,4]}}", 4, "a list of at most 8 sizes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "at most 8 sizes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "sizes of 0 or more"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "sizes of 0 or more"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4, "larger than any"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "larger than"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "do not decrease"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "do not decrease"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 8, "two numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "ends at 8, the file has 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "expected 8 bytes for F32 [2]"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
         "expected its data at 0, found 4 (a gap)"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "'b': expected its data at 8, found 4 (it overlaps another)"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, "expected 4 bytes of data"},
        {"{\"__metadata__\":1}", 0, "expected an object of texts"},
        {"{\"__metadata__\":{\"epoch\":1}}", 0, "'epoch': expected a text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make_file(&b, cases[i].header, cases[i].data);
        expect_bad(ls_safetensors_read, b.data, b.size, cases[i].words);
    }
}

static void test_bad_lengths(void **state) {
    (void)state;
    static builder b;
    make_file(&b, "{}", 0);
    ls_state read = {0};
    expect_good(ls_safetensors_read, b.data, b.size, &read);
    assert_int_equal(read.count, 0);
    for (size_t size = 1; size < b.size; size++) {
        expect_bad(ls_safetensors_read, b.data, size, size == 9 ? "found 9 bytes" : "found");
    }
    const uint64_t lengths[] = {0, 1, 3, 100000000, UINT64_C(1) << 40, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        b.size = 0;
        put_number(&b, 8, lengths[i]);
        put_words(&b, "{}");
        expect_bad(ls_safetensors_read, b.data, b.size,
                   lengths[i] == 3 ? "truncated" : "byte 0: expected the header's");
    }
    b.size = 0; /* as deep as jansson lets it be, and deeper */
    put_number(&b, 8, 8002);
    put_words(&b, "{\"a\":");
    for (size_t i = 0; i < 8002 - 5; i++) {
        put_byte(&b, '[');
    }
    expect_bad(ls_safetensors_read, b.data, b.size, "maximum parsing depth");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_half_infinities),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_bad_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
