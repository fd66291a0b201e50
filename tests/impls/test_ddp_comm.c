/* Communicators of ddp are made within a time limit, and what keeps them from being made is said in one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "gpu/base/clock.h"
#include "impls/ddp_comm.h"
#include "tests/impls/stderr_capture.h"

static void a_missing_peer_is_not_waited_for(void **state) {
    (void)state;
    ls_rank rank = {.rank = 0, .world = 2, .timeout = 0.5};
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    stderr_capture capture;
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    double start = ls_now_seconds();
    assert_int_equal(stderr_capture_begin(&capture), 0);
    ls_rc rc = ls_ddp_comm_open(&rank, id, &comm);
    stderr_capture_end(&capture);
    assert_int_equal(rc, LS_DEVICE_FAILED);
    assert_null(comm);
    assert_true(ls_now_seconds() - start < 30.0);
    assert_int_equal(capture.lines, 1);
    assert_non_null(strstr(capture.text, "NCCL: not all of the 2 ranks have met within 0.5 s\n"));
}

typedef struct member {
    ls_rank rank;
    ncclUniqueId id;
    int device;
    ls_rc rc;
} member;

static void *run_member(void *argument) {
    member *m = argument;
    ncclComm_t comm = NULL;
    m->rc = cudaSetDevice(m->device) == cudaSuccess ? ls_ddp_comm_open(&m->rank, m->id, &comm) : LS_BAD_INPUT;
    if (m->rc == LS_OK) {
        ls_ddp_comm_close(comm, 10.0);
    }
    return NULL;
}

static void run_pair(int second_device, member members[2], stderr_capture *capture) {
    pthread_t threads[2];
    ncclUniqueId id;
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    assert_int_equal(stderr_capture_begin(capture), 0);
    for (size_t r = 0; r < 2; r++) {
        members[r] = (member){{.rank = r, .world = 2, .timeout = 60.0}, id, r == 0 ? 0 : second_device, LS_OK};
        assert_int_equal(pthread_create(&threads[r], NULL, run_member, &members[r]), 0);
    }
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    }
    stderr_capture_end(capture);
}

static void two_ranks_meet_on_two_devices(void **state) {
    (void)state;
    member members[2];
    stderr_capture capture;
    run_pair(1, members, &capture);
    assert_int_equal(members[0].rc, LS_OK);
    assert_int_equal(members[1].rc, LS_OK);
    assert_int_equal(capture.lines, 0);
}

static void two_ranks_on_one_device_are_explained(void **state) {
    (void)state;
    member members[2];
    stderr_capture capture;
    run_pair(0, members, &capture);
    assert_int_equal(members[0].rc, LS_DEVICE_FAILED);
    assert_int_equal(members[1].rc, LS_DEVICE_FAILED);
    assert_int_equal(capture.lines, 2);
    assert_non_null(strstr(capture.text, "Duplicate GPU detected"));
    assert_non_null(strstr(capture.text, "NCCL allows one rank a GPU: give each rank of a host its own LOCAL_RANK"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_peer_is_not_waited_for),
        cmocka_unit_test(two_ranks_meet_on_two_devices),
        cmocka_unit_test(two_ranks_on_one_device_are_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
