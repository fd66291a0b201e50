/* The barrier and the slot that ranks as threads share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "impls/thread_group.h"
#include "tests/impls/stderr_capture.h"

enum { WORLD = 8, ROUNDS = 200 };

typedef struct member {
    ls_thread_group *group;
    size_t rank;
    double timeout;
    atomic_size_t *arrived; /* of all ranks, over all rounds */
    ls_rc rc;
    size_t wrong;
} member;

/* After round k's barrier every rank has counted k+1 times; before it none has counted k+2 times. */
static void *run_rounds(void *argument) {
    member *m = argument;
    for (size_t k = 0; k < ROUNDS && m->rc == LS_OK; k++) {
        size_t value = m->rank == 0 ? k * 3 + 1 : 0;
        atomic_fetch_add(m->arrived, 1);
        m->rc = ls_thread_group_barrier(m->group, m->rank, m->timeout);
        size_t seen = atomic_load(m->arrived);
        m->wrong += seen < (k + 1) * WORLD || seen > (k + 2) * WORLD;
        if (m->rc == LS_OK) {
            m->rc = ls_thread_group_share(m->group, m->rank, &value, sizeof value, m->timeout);
        }
        m->wrong += value != k * 3 + 1;
    }
    return NULL;
}

static void *run_barrier(void *argument) {
    member *m = argument;
    m->rc = ls_thread_group_barrier(m->group, m->rank, m->timeout);
    return NULL;
}

/* Runs the ranks 0 .. count-1 of a group of WORLD. */
static void run_ranks(ls_thread_group *group, member *members, size_t count, double timeout, void *(*body)(void *)) {
    static atomic_size_t arrived;
    pthread_t threads[WORLD];
    atomic_store(&arrived, 0);
    for (size_t r = 0; r < count; r++) {
        members[r] = (member){.group = group, .rank = r, .timeout = timeout, .arrived = &arrived};
        assert_int_equal(pthread_create(&threads[r], NULL, body, &members[r]), 0);
    }
    for (size_t r = 0; r < count; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    }
}

static void test_rounds(void **state) {
    (void)state;
    ls_thread_group *group = NULL;
    member members[WORLD];
    assert_int_equal(ls_thread_group_open(WORLD, &group), LS_OK);
    run_ranks(group, members, WORLD, 30.0, run_rounds);
    for (size_t r = 0; r < WORLD; r++) {
        assert_int_equal(members[r].rc, LS_OK);
        assert_int_equal(members[r].wrong, 0);
    }
    ls_thread_group_close(group);
}

static void test_missing(void **state) {
    (void)state;
    ls_thread_group *group = NULL;
    member members[WORLD];
    stderr_capture capture;
    assert_int_equal(ls_thread_group_open(WORLD, &group), LS_OK);
    assert_int_equal(stderr_capture_begin(&capture), 0);
    run_ranks(group, members, WORLD - 2, 0.3, run_barrier);
    stderr_capture_end(&capture);
    for (size_t r = 0; r < WORLD - 2; r++) {
        assert_int_equal(members[r].rc, LS_DEVICE_FAILED);
    }
    assert_int_equal(capture.lines, 1);
    assert_non_null(strstr(capture.text, "rank 6, 7 did not come within 0.3 s"));
    assert_int_equal(ls_thread_group_barrier(group, 7, 30.0), LS_DEVICE_FAILED); /* too late */
    ls_thread_group_close(group);
}

static void *cancel(void *argument) {
    ls_thread_group_cancel(argument);
    return NULL;
}

static void test_cancel(void **state) {
    (void)state;
    ls_thread_group *group = NULL;
    pthread_t thread;
    stderr_capture capture;
    assert_int_equal(ls_thread_group_open(2, &group), LS_OK);
    assert_int_equal(stderr_capture_begin(&capture), 0);
    assert_int_equal(pthread_create(&thread, NULL, cancel, group), 0);
    ls_rc rc = ls_thread_group_barrier(group, 0, 60.0); /* far longer than a test may take */
    assert_int_equal(pthread_join(thread, NULL), 0);
    stderr_capture_end(&capture);
    assert_int_equal(rc, LS_DEVICE_FAILED);
    assert_string_equal(capture.text, "");
    ls_thread_group_close(group);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
