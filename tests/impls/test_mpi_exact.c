/* The sum of mpi over real ranks against whole numbers, whose sums are exact: rank and index show in each value, so that a
 * value that is moved, missing, taken twice or of another rank cannot hide. This program starts itself under mpirun. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* See test_mpi.c. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0";
}

#include "impls/impl.h"
#include "impls/mpi_check.h"

extern char **environ;

enum { MOST = 1025, MARGIN = 4, GUARD = -77 };

static double input(size_t rank, size_t i) {
    return (double)((i * 31 + rank * 7) % 1021);
}

/* count values from an offset that need not be aligned to anything but an element, in parts of at most `most`. */
static int check(const ls_mpi_world *world, size_t count, size_t offset, size_t most, bool wide) {
    float narrow[MOST + 2 * MARGIN];
    double values[MOST + 2 * MARGIN];
    for (size_t i = 0; i < MOST + 2 * MARGIN; i++) {
        bool inside = i >= offset && i < offset + count;
        values[i] = inside ? input(world->rank, i - offset) : GUARD;
        narrow[i] = (float)values[i];
    }
    void *from = wide ? (void *)(values + offset) : (void *)(narrow + offset);
    if (ls_mpi_sum(from, count, wide ? MPI_DOUBLE : MPI_FLOAT, most) != LS_OK) {
        return 1;
    }
    for (size_t i = 0; i < MOST + 2 * MARGIN; i++) {
        double due = GUARD;
        if (i >= offset && i < offset + count) {
            due = 0;
            for (size_t rank = 0; rank < world->size; rank++) {
                due += input(rank, i - offset);
            }
        }
        double found = wide ? values[i] : (double)narrow[i];
        if (found != due) {
            fprintf(stderr, "rank %zu of %zu, count %zu, offset %zu, parts of %zu: value %zu is %g, expected %g\n",
                    world->rank, world->size, count, offset, most, i, found, due);
            return 1;
        }
    }
    return 0;
}

static int run_rank(size_t size) {
    static const size_t counts[] = {0, 1, 2, 3, 7, 63, 64, 65, 1023, 1024, MOST};
    ls_mpi_world world;
    if (ls_mpi_start(&world) != LS_OK || world.size != size) {
        return 1;
    }
    int wrong = 0;
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (size_t offset = 0; offset < MARGIN; offset++) {
            wrong += check(&world, counts[c], offset, INT_MAX, false);
            wrong += check(&world, counts[c], offset, 64, true);
        }
    }
    ls_mpi_stop(wrong);
    return wrong == 0 ? 0 : 1;
}

static int under_mpirun(const char *size) {
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = '\0';
    const char *words[] = {"mpirun", "-n", size, "--oversubscribe", "--bind-to", "none", self, size, NULL};
    pid_t child = 0;
    int status = 0;
    assert_int_equal(posix_spawnp(&child, words[0], NULL, NULL, (char **)words, environ), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void sums_are_exact(void **state) {
    (void)state;
    char why[256];
    if (!ls_impl_find("mpi")->available(why, sizeof why)) {
        skip();
    }
    assert_int_equal(setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1), 0);
    assert_int_equal(setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1), 0);
    assert_int_equal(setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1), 0);
    assert_int_equal(under_mpirun("2"), 0);
    assert_int_equal(under_mpirun("3"), 0);
}

int main(int argc, char **argv) {
    if (argc == 2) {
        return run_rank(strtoul(argv[1], NULL, 10));
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
