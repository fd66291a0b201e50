/* --nccl-register: which NCCL can, and that a rank leaves no memory behind, however it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu/nccl_register.h"
#include "tests/impls/stderr_capture.h"
#include "tests/impls/training.h"

enum { BATCH = 16 };

static ls_model model;
static ls_dataset data;

static int open_data(void **state) {
    (void)state;
    training_resolve("seed-conv", &model);
    return ls_dataset_open("synthetic:64", LS_SPLIT_TRAIN, &data) == LS_OK ? 0 : -1;
}

static int close_data(void **state) {
    (void)state;
    ls_dataset_close(&data);
    return 0;
}

static void old_versions_are_refused(void **state) {
    (void)state;
    char why[160] = "";
    assert_true(ls_nccl_register_versions(21900, 21900, why, sizeof why));
    assert_true(ls_nccl_register_versions(21903, 22809, why, sizeof why));
    assert_string_equal(why, "");
    assert_false(ls_nccl_register_versions(21805, 22809, why, sizeof why));
    assert_string_equal(why, "expected NCCL 2.19 or later, found a program built with NCCL 2.18.5: build it again");
    assert_false(ls_nccl_register_versions(22809, 21805, why, sizeof why));
    assert_string_equal(why, "expected NCCL 2.19 or later, found NCCL 2.18.5: install a later one");
    assert_true(ls_nccl_register_available(why, sizeof why));
}

/* How rank 1 ends; rank 0 takes two steps. */
typedef enum ending { BOTH_STEP, STANDS_STILL, FAILS } ending;

typedef struct member {
    size_t rank;
    ending ending;
    double timeout;
    ls_thread_group *group, *test;
    ls_rc opened, stepped;
    size_t free_before, free_after;
} member;

static ls_rc run_step(const ls_impl *impl, void *self, size_t count) {
    ls_batch batch = {.count = count, .pixels = data.pixels, .labels = data.labels};
    ls_rc rc = impl->step(self, &batch, (size_t)2 * BATCH);
    return rc == LS_OK ? impl->synchronize(self) : rc;
}

static ls_rc two_steps(const member *m, const ls_impl *impl, void **self) {
    LS_TRY(run_step(impl, *self, BATCH));
    if (m->rank == 1 && m->ending == STANDS_STILL) {
        return LS_OK;
    }
    ls_rc rc = run_step(impl, *self, m->rank == 1 && m->ending == FAILS ? BATCH + 1 : BATCH);
    if (rc != LS_OK && m->rank == 1) { /* ends what its peer waits for */
        impl->close(*self);
        *self = NULL;
    }
    return rc;
}

static void *run_member(void *argument) {
    member *m = argument;
    const ls_impl *impl = ls_impl_find("ddp");
    void *self = NULL;
    size_t total = 0;
    ls_run run;
    ls_rank rank = {.rank = m->rank,
                    .world = 2,
                    .local_rank = m->rank,
                    .device = (int)m->rank,
                    .timeout = m->timeout,
                    .shared = m->group};
    training_run(&run, "ddp", 2, LS_FLOAT32);
    run.nccl_register = true;
    m->opened = LS_DEVICE_FAILED;
    if (cudaSetDevice((int)m->rank) == cudaSuccess && cudaMemGetInfo(&m->free_before, &total) == cudaSuccess) {
        m->opened = impl->open(&run, &rank, &model, BATCH, &self);
    }
    m->stepped = m->opened == LS_OK ? two_steps(m, impl, &self) : LS_DEVICE_FAILED;
    (void)ls_thread_group_barrier(m->test, m->rank, 60.0);
    if (self != NULL) {
        impl->close(self);
    }
    (void)cudaMemGetInfo(&m->free_after, &total); /* 0 after an error */
    (void)cudaDeviceReset();
    return NULL;
}

static void run_pair(ending way, double timeout, member members[2], stderr_capture *capture) {
    pthread_t threads[2];
    ls_thread_group *group = NULL, *test = NULL;
    assert_int_equal(ls_thread_group_open(2, &group), LS_OK);
    assert_int_equal(ls_thread_group_open(2, &test), LS_OK);
    assert_int_equal(stderr_capture_begin(capture), 0);
    for (size_t r = 0; r < 2; r++) {
        members[r] = (member){.rank = r, .ending = way, .timeout = timeout, .group = group, .test = test};
        assert_int_equal(pthread_create(&threads[r], NULL, run_member, &members[r]), 0);
    }
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    }
    stderr_capture_end(capture);
    ls_thread_group_close(group);
    ls_thread_group_close(test);
}

static void a_run_leaves_nothing(void **state) {
    (void)state;
    member members[2];
    stderr_capture capture;
    run_pair(BOTH_STEP, 60.0, members, &capture);
    assert_string_equal(capture.text, "");
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(members[r].stepped, LS_OK);
        assert_int_equal(members[r].free_after, members[r].free_before);
    }
}

/* Rank 0 aborts its communicator after the time limit, rank 1 when it closes. */
static void a_peer_that_stands_still_leaves_nothing(void **state) {
    (void)state;
    member members[2];
    stderr_capture capture;
    run_pair(STANDS_STILL, 4.0, members, &capture); /* enough for the good step on a busy machine */
    assert_int_equal(members[0].stepped, LS_DEVICE_FAILED);
    assert_int_equal(members[1].stepped, LS_OK);
    assert_non_null(strstr(capture.text, "a collective has not finished within 4 s"));
    assert_null(strstr(capture.text, "regist"));
    assert_null(strstr(capture.text, "ncclMemFree"));
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(members[r].free_after, members[r].free_before);
    }
}

/* Rank 1 fails by itself and aborts. Rank 0's device has failed then and is not asked for its memory. */
static void a_rank_that_fails_leaves_nothing(void **state) {
    (void)state;
    member members[2];
    stderr_capture capture;
    run_pair(FAILS, 60.0, members, &capture);
    assert_int_equal(members[0].stepped, LS_DEVICE_FAILED);
    assert_int_equal(members[1].stepped, LS_BAD_INPUT);
    assert_null(strstr(capture.text, "regist"));
    assert_null(strstr(capture.text, "ncclMemFree"));
    assert_int_equal(members[1].free_after, members[1].free_before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_versions_are_refused),
        cmocka_unit_test(a_run_leaves_nothing),
        cmocka_unit_test(a_peer_that_stands_still_leaves_nothing),
        cmocka_unit_test(a_rank_that_fails_leaves_nothing),
    };
    return cmocka_run_group_tests_name("ddp register", tests, open_data, close_data);
}
