/* The reader of pickles through the older stream of torch.save: what a state_dict may hold, and everything else refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/reference/checkpoint_fixture.h"

#define BYTES(text) (text), sizeof(text) - 1

/* The three pickles in front: magic number, version, machine. */
static void put_front(builder *b) {
    b->size = 0;
    put(b, BYTES("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."));
    put(b, BYTES("\x80\x02M\xe9\x03."));
    put(b, BYTES("\x80\x02}(X\x0d\0\0\0little_endian\x88u."));
}

static void put_text(builder *b, const char *text) {
    put_byte(b, 'X');
    put_number(b, 4, strlen(text));
    put_words(b, text);
}

static void put_integer(builder *b, uint64_t value) {
    put(b, BYTES("\x8a\x08"));
    put_number(b, 8, value);
}

/* torch._utils._rebuild_tensor_v2 of a storage of `count` elements under `key`. */
static void put_tensor(builder *b, const char *type, const char *key, uint64_t count, uint64_t offset, size_t dims,
                       const uint64_t *shape, const uint64_t *stride) {
    put_words(b, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_text(b, "storage");
    put_words(b, "ctorch\n");
    put_words(b, type);
    put_words(b, "\n");
    put_text(b, key);
    put_text(b, "cuda:0");
    put_integer(b, count);
    put_words(b, "NtQ");
    put_integer(b, offset);
    const uint64_t *parts[2] = {shape, stride};
    for (size_t part = 0; part < 2; part++) {
        put_byte(b, '(');
        for (size_t d = 0; d < dims; d++) {
            put_integer(b, parts[part][d]);
        }
        put_byte(b, 't');
    }
    put(b, BYTES("\x89"
                 "ccollections\nOrderedDict\n)RtR"));
}

/* The list of storages with one key, and its floats 0, 1, 2, ... */
static void put_floats(builder *b, const char *key, size_t count) {
    put(b, BYTES("\x80\x02]("));
    put_text(b, key);
    put_words(b, "e.");
    put_number(b, 8, count);
    for (size_t i = 0; i < count; i++) {
        float value = (float)i;
        put(b, &value, sizeof value);
    }
}

/* A state_dict of one tensor 'w' over 12 floats. */
static void make_view(builder *b, uint64_t offset, size_t dims, const uint64_t *shape, const uint64_t *stride) {
    put_front(b);
    put(b, BYTES("\x80\x02}("));
    put_text(b, "w");
    put_tensor(b, "FloatStorage", "0", 12, offset, dims, shape, stride);
    put_words(b, "u.");
    put_floats(b, "0", 12);
}

static void test_views(void **state) {
    (void)state;
    static builder b;
    ls_state read = {0};
    make_view(&b, 0, 2, (uint64_t[]){3, 4}, (uint64_t[]){4, 1});
    expect_good(ls_pth_read, b.data, b.size, &read);
    expect_values(&read, "w", 12, (double[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    assert_int_equal(read.tensors[0].shape[1], 4);
    ls_state_free(&read);
    make_view(&b, 0, 2, (uint64_t[]){4, 3}, (uint64_t[]){1, 4}); /* transposed */
    expect_good(ls_pth_read, b.data, b.size, &read);
    expect_values(&read, "w", 12, (double[]){0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
    ls_state_free(&read);
    make_view(&b, 5, 1, (uint64_t[]){3}, (uint64_t[]){2}); /* w[5::2][:3] */
    expect_good(ls_pth_read, b.data, b.size, &read);
    expect_values(&read, "w", 3, (double[]){5, 7, 9});
    ls_state_free(&read);
    make_view(&b, 11, 0, NULL, NULL); /* a scalar */
    expect_good(ls_pth_read, b.data, b.size, &read);
    expect_values(&read, "w", 1, (double[]){11});
    ls_state_free(&read);
    make_view(&b, 12, 2, (uint64_t[]){0, 4}, (uint64_t[]){4, 1}); /* nothing, at the end */
    expect_good(ls_pth_read, b.data, b.size, &read);
    assert_int_equal(read.tensors[0].count, 0);
    ls_state_free(&read);
    make_view(&b, 0, 1, (uint64_t[]){4}, (uint64_t[]){0}); /* expanded, but no larger than its storage */
    expect_good(ls_pth_read, b.data, b.size, &read);
    expect_values(&read, "w", 4, (double[]){0, 0, 0, 0});
    ls_state_free(&read);
}

static void test_bad_views(void **state) {
    (void)state;
    static builder b;
    const uint64_t huge = UINT64_C(1) << 62;
    const struct {
        uint64_t offset;
        size_t dims;
        uint64_t shape[2], stride[2];
        const char *words;
    } cases[] = {
        {0, 1, {13}, {1}, "[13] reaches beyond its storage of 12 elements"},
        {10, 1, {3}, {1}, "reaches beyond"},
        {0, 1, {3}, {6}, "reaches beyond"},
        {12, 0, {0}, {0}, "reaches beyond"},
        {0, 2, {1000, 1000}, {0, 0}, "or repeats it"},
        {0, 2, {huge, huge}, {1, 1}, "reaches beyond"},
        {0, 1, {2}, {huge}, "reaches beyond"},
        {huge, 1, {1}, {1}, "reaches beyond"},
        {13, 1, {0}, {1}, "reaches beyond"},
        {(uint64_t)-1, 1, {1}, {1}, "found other arguments"},
        {0, 1, {(uint64_t)-1}, {1}, "expected a size of numbers"},
        {0, 1, {1}, {(uint64_t)-1}, "expected a stride of numbers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make_view(&b, cases[i].offset, cases[i].dims, cases[i].shape, cases[i].stride);
        expect_bad(ls_pth_read, b.data, b.size, cases[i].words);
    }
}

/* Many tensors over one storage would take far more memory than the file. */
static void test_shared_storages_are_bounded(void **state) {
    (void)state;
    static builder b;
    put_front(&b);
    put(&b, BYTES("\x80\x02}("));
    for (size_t i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%zu", i);
        put_text(&b, name);
        if (i == 0) {
            put_tensor(&b, "FloatStorage", "0", 4000, 0, 1, (uint64_t[]){4000}, (uint64_t[]){1});
            put(&b, BYTES("q\0"));
        } else {
            put(&b, BYTES("h\0"));
        }
    }
    put_words(&b, "u.");
    put_floats(&b, "0", 4000);
    expect_bad(ls_pth_read, b.data, b.size, "they share the same storages");
}

static void test_bad_pickles(void **state) {
    (void)state;
    static builder b;
    const struct {
        const char *bytes;
        size_t size;
        const char *words;
    } cases[] = {
        {BYTES("\x80\x02"
               "cos\nsystem\nX\x02\0\0\0id\x85R."),
         "the name os.system is not among"},
        {BYTES("\x80\x02"
               "cbuiltins\neval\n."),
         "the name builtins.eval is not among"},
        {BYTES("\x80\x04X\x02\0\0\0osX\x06\0\0\0system\x93."), "the name os.system is not among"},
        {BYTES("\x80\x02"
               "c__main__\nNet\n)\x81}b."),
         "class __main__.Net: a whole pickled module"},
        {BYTES("\x80\x02"
               "ctorch.nn.modules.linear\nLinear\n)\x81."),
         "a whole pickled module"},
        {BYTES("\x80\x02"
               "ctorch\nIntStorage\n."),
         "found torch.IntStorage"},
        {BYTES("\x80\x02"
               "ccollections\nOrderedDict"),
         "(truncated)"},
        {BYTES("\x80\x02)\x81."), "opcode 0x81 is not among"},          /* NEWOBJ */
        {BYTES("\x80\x02(ios\nsystem\n."), "opcode 0x69 is not among"}, /* INST */
        {BYTES("\x80\x02(o."), "opcode 0x6f is not among"},             /* OBJ */
        {BYTES("\x80\x02\x82\x01."), "opcode 0x82 is not among"},       /* EXT1 */
        {BYTES("\x80\x02P0\n."), "opcode 0x50 is not among"},           /* PERSID */
        {BYTES("\x80\x02I1\n."), "opcode 0x49 is not among"},           /* INT: protocol 0 */
        {BYTES("\x80\x00."), "expected pickle protocol 2 to 5, found 0"},
        {BYTES("\x80\x02."), "wants more values than there are"},
        {BYTES("\x80\x02(."), "wants more values"},
        {BYTES("\x80\x02t."), "wants a mark"},
        {BYTES("\x80\x02NN."), "ends with values left over"},
        {BYTES("\x80\x02NR."), "wants more values"},
        {BYTES("\x80\x02N)R."), "None is called with a tuple"},
        {BYTES("\x80\x02"
               "ctorch\nFloatStorage\n)R."),
         "it only names a type"},
        {BYTES("\x80\x02"
               "ccollections\nOrderedDict\nK\x01\x85R."),
         "of nothing or of a list of pairs"},
        {BYTES("\x80\x02"
               "ctorch._utils\n_rebuild_tensor_v2\n)R."),
         "found other arguments"},
        {BYTES("\x80\x02"
               "ctorch._utils\n_rebuild_parameter\n)R."),
         "a parameter made of a tensor"},
        {BYTES("\x80\x02NQ."), "found another persistent id"},
        {BYTES("\x80\x02h\x05."), "value 5 is used before it is there"},
        {BYTES("\x80\x02Nr\xff\xff\xff\xff."), "expected at most 1048576 remembered values"},
        {BYTES("\x80\x02NNs."), "wants more values"},
        {BYTES("\x80\x02](NNu."), "expected a dict to put values into, found a list"},
        {BYTES("\x80\x02}(Nu."), "a key of a dict has no value"},
        {BYTES("\x80\x02}Na."), "expected a list to put values into"},
        {BYTES("\x80\x02(u."), "expected a dict to put values into, found nothing"},
        {BYTES("\x80\x02]}b."), "attributes are set on a list"},
        {BYTES("\x80\x02X\xff\xff\xff\x7f"
               "abc."),
         "expected 2147483647 more bytes"},
        {BYTES("\x80\x02\x8a\x30"
               "abc."),
         "expected 48 more bytes"},
        {BYTES("\x80\x02G\0\0."), "expected 8 more bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_front(&b);
        put(&b, cases[i].bytes, cases[i].size);
        expect_bad(ls_pth_read, b.data, b.size, cases[i].words);
    }
}

/* Whole pickles of what is no state_dict. */
static void test_other_objects(void **state) {
    (void)state;
    static builder b;
    const struct {
        const char *bytes;
        size_t size;
        const char *words;
    } cases[] = {
        {BYTES("\x80\x02]."), "expected a state_dict, found a list"},
        {BYTES("\x80\x02K\x05."), "expected a state_dict, found an integer"},
        {BYTES("\x80\x02}(X\x05\0\0\0state}X\x0c\0\0\0param_groups]u."), "found an optimizer's"},
        {BYTES("\x80\x02}(X\x05\0\0\0epochK\x03X\x05\0\0\0model}u."), "a dict of several parts; 'model' may be one"},
        {BYTES("\x80\x02}(X\x05\0\0\0epochK\x03u."), "expected a tensor as value of 'epoch', found an integer"},
        {BYTES("\x80\x02}(X\x01\0\0\0aG\0\0\0\0\0\0\0\0u."), "found a float"},
        {BYTES("\x80\x02}(K\x01]u."), "expected names as keys of a state_dict, found an integer"},
        {BYTES("\x80\x02}(X\x03\0\0\0a\0b]u."), "with a zero byte"},
        {BYTES("\x80\x02}(X\x0b\0\0\0two\nlines\x1b[]u."), "value of 'two?lines?['"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_front(&b);
        put(&b, cases[i].bytes, cases[i].size);
        put(&b, BYTES("\x80\x02].")); /* no storages */
        expect_bad(ls_pth_read, b.data, b.size, cases[i].words);
    }
}

static void test_bad_streams(void **state) {
    (void)state;
    static builder b, cut;
    const uint64_t shape[1] = {12}, stride[1] = {1};
    make_view(&b, 0, 1, shape, stride);
    for (size_t size = 14; size < b.size; size++) { /* every truncation */
        expect_bad(ls_pth_read, b.data, size, "(truncated)");
    }
    put_byte(&b, 0);
    expect_bad(ls_pth_read, b.data, b.size, "expected the end after the storages, found 1 more bytes");

    put_front(&cut); /* a storage that no tensor uses, one named twice, one missing, one of another length */
    put(&cut, BYTES("\x80\x02}."));
    put_floats(&cut, "0", 1);
    expect_bad(ls_pth_read, cut.data, cut.size, "one that no tensor uses");
    make_view(&b, 0, 1, shape, stride);
    size_t list = b.size - 12 * 4 - 8 - 6 - 6; /* where put_floats began */
    cut = b;
    cut.size = list;
    put(&cut, BYTES("\x80\x02]."));
    expect_bad(ls_pth_read, cut.data, cut.size, "storage '0' is missing");
    cut.size = list;
    put_floats(&cut, "0", 11);
    expect_bad(ls_pth_read, cut.data, cut.size, "expected the 12 elements of storage '0', found 11");
    cut.size = list;
    put(&cut, BYTES("\x80\x02}."));
    expect_bad(ls_pth_read, cut.data, cut.size, "expected the list of storages, found a dict");
    put_front(&cut);
    cut.data[18] = 0; /* the version */
    expect_bad(ls_pth_read, cut.data, cut.size, "expected version 1001");
    expect_bad(ls_pth_read, BYTES("<html>"), "a web page?");
    expect_bad(ls_pth_read, BYTES("\x80\x02}."), "a pickle, but not one of torch.save");
}

/* Python 2 wrote OrderedDict([[key, value], ...]); protocol 4 uses other opcodes; a parameter is its tensor. */
static void test_dialects(void **state) {
    (void)state;
    static builder b;
    ls_state read = {0};
    put_front(&b);
    put(&b, BYTES("\x80\x02"
                  "ccollections\nOrderedDict\n](](U\x01w"));
    put_tensor(&b, "FloatStorage", "0", 2, 0, 1, (uint64_t[]){2}, (uint64_t[]){1});
    put_words(&b, "ee\x85R.");
    put_floats(&b, "0", 2);
    expect_good(ls_pth_read, b.data, b.size, &read);
    expect_values(&read, "w", 2, (double[]){0, 1});
    ls_state_free(&read);
    put_front(&b);
    put(&b, BYTES("\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x0b"
                  "collections\x94\x8c\x0b"
                  "OrderedDict\x94\x93\x94)R\x94(\x8c\x01w\x94"));
    put(&b, BYTES("ctorch._utils\n_rebuild_parameter\n"));
    put_tensor(&b, "FloatStorage", "0", 2, 0, 1, (uint64_t[]){2}, (uint64_t[]){1});
    put(&b, BYTES("\x88h\x02)R\x87Ru."));
    put_floats(&b, "0", 2);
    expect_good(ls_pth_read, b.data, b.size, &read);
    expect_values(&read, "w", 2, (double[]){0, 1});
    ls_state_free(&read);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_bad_views),
        cmocka_unit_test(test_shared_storages_are_bounded),
        cmocka_unit_test(test_bad_pickles),
        cmocka_unit_test(test_other_objects),
        cmocka_unit_test(test_bad_streams),
        cmocka_unit_test(test_dialects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
