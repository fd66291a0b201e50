/* Ranks that meet over TCP, as threads here: each has its own sockets, as processes would. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "gpu/base/clock.h"
#include "impls/rendezvous.h"
#include "impls/rendezvous_wire.h"
#include "tests/impls/stderr_capture.h"

enum { MAX_WORLD = 8, BLOB = 128 };

/* A rank to be run, and what became of it. */
typedef struct guest {
    ls_rendezvous meeting;
    unsigned char blob[BLOB];
    ls_rc rc;
    double seconds;
} guest;

static void *run_guest(void *argument) {
    guest *g = argument;
    double start = ls_now_seconds();
    g->rc = ls_rendezvous_share(&g->meeting, g->blob, sizeof g->blob);
    g->seconds = ls_now_seconds() - start;
    return NULL;
}

/* A socket on a port that the kernel chose. Listening only if asked to. */
static int take_port(bool listening, unsigned short *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    if (listening) {
        assert_int_equal(listen(fd, 8), 0);
    }
    *port = ntohs(address.sin_port);
    return fd;
}

static unsigned short free_port(void) {
    unsigned short port = 0;
    (void)close(take_port(false, &port));
    return port;
}

static void prepare(guest *guests, size_t world, const char *host, double timeout) {
    unsigned short port = free_port();
    memset(guests, 0, world * sizeof *guests);
    for (size_t r = 0; r < world; r++) {
        guests[r].meeting = (ls_rendezvous){.host = host,
                                            .port = port,
                                            .rank = r,
                                            .world = world,
                                            .timeout = timeout,
                                            .param_count = 21840,
                                            .fingerprint = 0x1234};
    }
    for (size_t i = 0; i < BLOB; i++) {
        guests[0].blob[i] = (unsigned char)(i * 7 + 1);
    }
}

/* Runs the first `count` of the guests, the highest first so that they have to retry until rank 0 listens. */
static void run_all(guest *guests, size_t count, stderr_capture *capture) {
    pthread_t threads[MAX_WORLD];
    assert_int_equal(stderr_capture_begin(capture), 0);
    for (size_t r = count; r-- > 0;) {
        assert_int_equal(pthread_create(&threads[r], NULL, run_guest, &guests[r]), 0);
    }
    for (size_t r = 0; r < count; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    }
    stderr_capture_end(capture);
}

static void test_good(void **state) {
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "localhost", "::1"};
    for (size_t h = 0; h < 3; h++) {
        for (size_t world = 1; world <= MAX_WORLD; world++) {
            guest guests[MAX_WORLD];
            stderr_capture capture;
            prepare(guests, world, hosts[h], 20.0);
            run_all(guests, world, &capture);
            for (size_t r = 0; r < world; r++) {
                assert_int_equal(guests[r].rc, LS_OK);
                assert_memory_equal(guests[r].blob, guests[0].blob, BLOB);
            }
            assert_string_equal(capture.text, "");
        }
    }
}

static void test_missing_rank(void **state) {
    (void)state;
    guest guests[4];
    stderr_capture capture;
    prepare(guests, 4, "127.0.0.1", 0.5);
    run_all(guests, 2, &capture); /* ranks 2 and 3 never come */
    assert_int_equal(guests[0].rc, LS_DEVICE_FAILED);
    assert_int_equal(guests[1].rc, LS_DEVICE_FAILED);
    assert_int_equal(capture.lines, 1);
    assert_non_null(strstr(capture.text, "rank 2, 3 of 4 did not come"));
}

static void test_missing_rank_0(void **state) {
    (void)state;
    guest guests[2];
    stderr_capture capture;
    prepare(guests, 2, "127.0.0.1", 0.3);
    run_all(guests + 1, 1, &capture);
    assert_int_equal(guests[1].rc, LS_DEVICE_FAILED);
    assert_int_equal(capture.lines, 1);
    assert_non_null(strstr(capture.text, "rank 0 does not answer on 127.0.0.1"));
}

/* Both sides of every contradiction are named, by rank 0 alone; nobody waits for the time limit. */
static void expect_contradiction(void (*spoil)(guest *guests), const char *first, const char *second) {
    guest guests[3];
    stderr_capture capture;
    prepare(guests, 3, "127.0.0.1", 20.0);
    spoil(guests);
    run_all(guests, 3, &capture);
    assert_int_equal(guests[0].rc, LS_BAD_INPUT);
    assert_non_null(strstr(capture.text, first));
    assert_non_null(strstr(capture.text, second));
    for (size_t r = 0; r < 3; r++) {
        assert_int_not_equal(guests[r].rc, LS_OK);
    }
}

static void spoil_world(guest *guests) {
    guests[1].meeting.world = 5;
    guests[2].meeting.timeout = 0.5; /* may come after rank 0 has given up */
}
static void spoil_rank(guest *guests) {
    guests[2].meeting.rank = 1;
}
static void spoil_params(guest *guests) {
    guests[1].meeting.param_count = 14670;
    guests[2].meeting.timeout = 0.5;
}
static void spoil_fingerprint(guest *guests) {
    guests[1].meeting.fingerprint = 0xabcd;
    guests[2].meeting.timeout = 0.5;
}

static void test_contradictions(void **state) {
    (void)state;
    expect_contradiction(spoil_world, "rank 1 has WORLD_SIZE 5", "rank 0 has 3");
    expect_contradiction(spoil_rank, "two processes", "RANK is 1");
    expect_contradiction(spoil_params, "14670 parameters", "one of 21840");
    expect_contradiction(spoil_fingerprint, "000000000000abcd", "0000000000001234");
}

/* In a shell of its own a rank says that it was refused, and by whom: rank 0's line is elsewhere. */
static void test_refused_by_hand(void **state) {
    (void)state;
    guest guests[2];
    stderr_capture capture;
    prepare(guests, 2, "127.0.0.1", 20.0);
    guests[0].meeting.by_hand = guests[1].meeting.by_hand = true;
    guests[1].meeting.fingerprint = 0xabcd;
    run_all(guests, 2, &capture);
    assert_int_equal(guests[0].rc, LS_BAD_INPUT);
    assert_int_equal(guests[1].rc, LS_BAD_INPUT);
    assert_int_equal(capture.lines, 2);
    assert_non_null(strstr(capture.text, "has ended the rendezvous; its line says why"));
}

static void test_port_in_use(void **state) {
    (void)state;
    guest guests[2];
    stderr_capture capture;
    char expected[64];
    prepare(guests, 2, "127.0.0.1", 20.0);
    int holder = take_port(true, &guests[0].meeting.port);
    run_all(guests, 1, &capture);
    (void)close(holder);
    (void)snprintf(expected, sizeof expected, "port %u on 127.0.0.1 is in use", guests[0].meeting.port);
    assert_int_equal(guests[0].rc, LS_BAD_INPUT);
    assert_int_equal(capture.lines, 1);
    assert_non_null(strstr(capture.text, expected));
    assert_true(guests[0].seconds < 10.0);
}

/* Someone else answers on the port: says nothing sensible, or hangs up. */
static void *answer_nonsense(void *argument) {
    int listener = *(int *)argument;
    char bytes[64] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    int fd = accept(listener, NULL, NULL);
    if (fd >= 0) {
        (void)ls_wire_send(fd, bytes, sizeof bytes, ls_now_seconds() + 5.0);
        (void)ls_wire_receive(fd, bytes, LS_HELLO_WORDS * sizeof(uint64_t), ls_now_seconds() + 5.0);
        (void)close(fd);
    }
    return NULL;
}

static void test_not_a_lockstep(void **state) {
    (void)state;
    guest guests[2];
    stderr_capture capture;
    pthread_t thread;
    prepare(guests, 2, "127.0.0.1", 20.0);
    int listener = take_port(true, &guests[1].meeting.port);
    assert_int_equal(pthread_create(&thread, NULL, answer_nonsense, &listener), 0);
    run_all(guests + 1, 1, &capture);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(listener);
    assert_int_equal(guests[1].rc, LS_BAD_INPUT);
    assert_int_equal(capture.lines, 1);
    assert_non_null(strstr(capture.text, "is not rank 0 of this program"));
}

/* Strangers that connect to rank 0, with nonsense or in silence, do not disturb the ranks. */
static void *disturb(void *argument) {
    const guest *g = argument;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(g->meeting.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char nonsense[LS_HELLO_WORDS * sizeof(uint64_t)] = "GET / HTTP/1.1\r\n\r\n";
    double deadline = ls_now_seconds() + 10.0;
    size_t done = 0;
    int silent[8];
    while (done < 8 && ls_now_seconds() < deadline) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
            (void)close(fd);
            continue;
        }
        if (done % 2 == 0) {
            (void)ls_wire_send(fd, nonsense, sizeof nonsense, deadline);
        }
        silent[done++] = fd;
    }
    for (size_t i = 0; i < done; i++) {
        (void)close(silent[i]);
    }
    return (void *)(uintptr_t)done;
}

static void test_strangers(void **state) {
    (void)state;
    guest guests[2];
    stderr_capture capture;
    pthread_t rank_0;
    pthread_t stranger;
    void *connected = NULL;
    prepare(guests, 2, "127.0.0.1", 20.0);
    assert_int_equal(pthread_create(&rank_0, NULL, run_guest, &guests[0]), 0);
    assert_int_equal(pthread_create(&stranger, NULL, disturb, &guests[0]), 0);
    assert_int_equal(pthread_join(stranger, &connected), 0);
    run_all(guests + 1, 1, &capture);
    assert_int_equal(pthread_join(rank_0, NULL), 0);
    assert_int_equal((uintptr_t)connected, 8);
    assert_int_equal(guests[0].rc, LS_OK);
    assert_int_equal(guests[1].rc, LS_OK);
    assert_memory_equal(guests[1].blob, guests[0].blob, BLOB);
}

static void test_bad_arguments(void **state) {
    (void)state;
    guest guests[1];
    stderr_capture capture;
    prepare(guests, 1, "127.0.0.1", 1.0);
    guests[0].meeting.rank = 3;
    run_all(guests, 1, &capture);
    assert_int_equal(guests[0].rc, LS_BAD_INPUT);
    assert_non_null(strstr(capture.text, "RANK is 3, expected 0 to 0"));
    prepare(guests, 1, "no.such.host.invalid", 1.0);
    guests[0].meeting.world = 2;
    run_all(guests, 1, &capture);
    assert_int_equal(guests[0].rc, LS_BAD_INPUT);
    assert_int_equal(capture.lines, 1);
    assert_non_null(strstr(capture.text, "MASTER_ADDR 'no.such.host.invalid' does not resolve"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_missing_rank),
        cmocka_unit_test(test_missing_rank_0),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_refused_by_hand),
        cmocka_unit_test(test_port_in_use),
        cmocka_unit_test(test_not_a_lockstep),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
