/* lockstep selftest: the verifier must catch every fault that it is shown. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/cmd.h"
#include "bench/flags.h"
#include "bench/results.h"
#include "bench/selftest.h"
#include "gpu/base/clock.h"
#include "impls/devices.h"
#include "impls/impl.h"
#include "impls/interrupt.h"
#include "impls/launch.h"
#include "impls/run_dir.h"

static void print_list(void) {
    printf("%-24s %-4s %-22s %s\n", "mutant", "row", "to be caught by", "fault");
    for (const ls_mutant *m = ls_mutants; m->name != NULL; m++) {
        printf("%-24s %-4s %-22s %s%s%s%s\n", m->name, m->fault, m->checks, m->summary,
               m->waits != NULL ? " (waits for " : "", m->waits != NULL ? m->waits : "", m->waits != NULL ? ")" : "");
    }
}

static ls_rc check_name(const char *only) {
    const ls_mutant *m = ls_mutants;
    while (m->name != NULL && strcmp(m->name, only) != 0) {
        m++;
    }
    return m->name != NULL
               ? LS_OK
               : ls_fail(LS_BAD_INPUT, "option '--only': no mutant '%s'; `lockstep selftest --list` lists them", only);
}

/* The mutant build beside this program. */
static ls_rc find_program(ls_selftest *test) {
    char self[LS_PATH_SIZE];
    LS_TRY(ls_launch_self(self, sizeof self));
    char *name = strrchr(self, '/');
    *name = '\0'; /* a link of /proc is absolute */
    int length = snprintf(test->program, sizeof test->program, "%s/lockstep-mutants", self);
    if (length < 0 || (size_t)length >= sizeof test->program || access(test->program, X_OK) != 0) {
        return ls_fail(LS_BAD_INPUT,
                       "the program with the faults is missing: %s/lockstep-mutants; it is built beside lockstep "
                       "(cmake --build %s --target lockstep-mutants)",
                       self, self);
    }
    return LS_OK;
}

/* The implementations that run here. With shared devices those that cannot share are left out where they are too many. */
static ls_rc find_impls(ls_selftest *test) {
    static const struct {
        const char *name;
        unsigned bit;
    } names[] = {{"single", LS_MUTANT_SINGLE}, {"dp", LS_MUTANT_DP}, {"ddp", LS_MUTANT_DDP}, {"mpi", LS_MUTANT_MPI}};
    ls_run run = {.devices = test->quick ? 2 : 4, .share_devices = test->share};
    char why[256] = "";
    size_t present = 0;
    LS_TRY(ls_platform_device_count(&present));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const ls_impl *impl = ls_impl_find(names[i].name);
        bool runs = impl != NULL && ls_impl_available(impl, why, sizeof why);
        bool fits = runs && ls_run_suits(&run, impl, why, sizeof why) &&
                    ((impl->capabilities & LS_CAP_MULTI_DEVICE) == 0 || !test->share ||
                     ls_devices_suffice(&run, impl, present, why, sizeof why));
        test->impls |= fits ? names[i].bit : 0;
        if (runs && !fits) {
            printf("Without %s: %s\n", names[i].name, why);
        }
    }
    return LS_OK;
}

ls_rc ls_selftest_row(const ls_selftest *test, json_t *fields) {
    if (fields == NULL) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for a result row");
    }
    json_object_set_new(fields, "schema", json_integer(1));
    json_object_set_new(fields, "kind", json_string("selftest"));
    ls_rc rc = test->json != NULL ? ls_results_append(test->json, fields) : LS_OK;
    json_decref(fields);
    return rc;
}

static ls_rc conclude(const ls_selftest_sum *listed, const ls_selftest_sum *family, double seconds) {
    printf("\n%zu listed mutants: %zu caught, %zu survived, %zu skipped; %zu more wait for their feature\n",
           listed->caught + listed->survived + listed->skipped, listed->caught, listed->survived, listed->skipped,
           listed->waiting);
    if (family->caught + family->survived + family->skipped + family->waiting > 0) {
        printf("family: %zu generated faults, %zu caught, %zu survived, %zu without effect, %zu waiting\n",
               family->caught + family->survived + family->skipped + family->waiting, family->caught, family->survived,
               family->skipped, family->waiting);
    }
    printf("%.0f s\n", seconds);
    if (listed->caught + family->caught == 0) {
        printf("nothing was caught: nothing is shown\n");
        return LS_CHECK_FAILED;
    }
    return listed->survived + family->survived > 0 ? LS_CHECK_FAILED : LS_OK;
}

static ls_rc run(ls_selftest *test, const char *only) {
    ls_selftest_sum listed = {0}, family = {0};
    double start = ls_now_seconds();
    LS_TRY(ls_selftest_listed(test, only, &listed));
    if (only == NULL) {
        LS_TRY(ls_selftest_terms(test, &family));
        LS_TRY(ls_selftest_calls(test, &family));
    }
    return conclude(&listed, &family, ls_now_seconds() - start);
}

static ls_rc run_in_folder(ls_selftest *test, const char *only) {
    ls_outcome folder = {0};
    LS_TRY(ls_run_dir_make(test->program, &folder));
    (void)snprintf(test->folder, sizeof test->folder, "%s", folder.run_dir);
    ls_rc rc = run(test, only);
    ls_outcome_release(&folder);
    return rc;
}

ls_rc ls_command_selftest(int argc, char **argv) {
    ls_selftest test = {0};
    const char *only = NULL;
    bool list = false, help = false;
    const ls_flag flags[] = {
        {"--list", NULL, LS_FLAG_SWITCH, &list, 0, 0, "list the mutants, run nothing"},
        {"--only", "NAME", LS_FLAG_TEXT, &only, 0, 0, "this mutant only, without the generated ones"},
        {"--quick", NULL, LS_FLAG_SWITCH, &test.quick, 0, 0, "one implementation and device count a mutant"},
        {"--share-devices", NULL, LS_FLAG_SWITCH, &test.share, 0, 0, "several devices of a case on one of the host"},
        {"--json", "FILE", LS_FLAG_TEXT, &test.json, 0, 0, "append a row for each case"},
        {0}};
    ls_flag_words words;
    LS_TRY(ls_flags_parse(flags, "lockstep selftest [options]", argc, argv, 0, &words, &help));
    if (help) {
        return LS_OK;
    }
    if (list) {
        print_list();
        return LS_OK;
    }
    LS_TRY(ls_launch_refuse_nested("selftest"));
    LS_TRY(only != NULL ? check_name(only) : LS_OK);
    LS_TRY(find_program(&test));
    LS_TRY(test.json != NULL ? ls_results_check(test.json) : LS_OK);
    LS_TRY(find_impls(&test));
    LS_TRY(ls_interrupt_begin());
    ls_rc rc = run_in_folder(&test, only);
    ls_interrupt_end();
    return rc;
}
