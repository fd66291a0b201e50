/* The generated faults of ordering: each call of a training run that records, awaits or synchronises is left out, one at a time.
 * LOCKSTEP_VGPU_SCHED=check ends the run at the first pair of conflicting operations that is then no longer ordered, without luck;
 * a call that it does not miss orders nothing that the others do not order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/selftest.h"
#include "gpu/base/error.h"

/* Batchnorm has buffers to broadcast, and small buckets overlap with backward. Between two losses nothing waits for the device,
 * so that steps overlap and the two batches in memory are used again. */
#define NETWORK "conv 2 k5 s3; batchnorm; relu; maxpool 2; flatten; linear 10"
#define OPTIONS "--steps 8 --log-every 4 --no-baseline"

enum { MOST_SITES = 256 };

typedef struct site {
    char mutant[160]; /* "drop:impls/ddp.c:212" */
    char call[64];
} site;

typedef struct family {
    const char *name;
    unsigned impl;
    bool copies; /* batches are copied on a stream of their own */
    size_t count;
    site sites[MOST_SITES];
} family;

/* Calls that order nothing which others do not order, and why they stay; by file, since lines move. What is neither missed nor
 * listed here has either lost its use or is no longer looked at: it fails the self-test. */
static const struct {
    const char *impl; /* NULL: all */
    const char *file, *call, *reason;
    size_t most; /* of these calls that may stay; 0: all */
} kept[] = {
    {NULL, "reference/replica_read.c", "cudaStreamSynchronize",
     "pageable copies end before they return, which CUDA does not promise", 0},
    {NULL, "reference/replica_buffers.c", "cudaStreamSynchronize",
     "pageable copies end before they return, which CUDA does not promise", 0},
    {NULL, "reference/replica.c", "cudaStreamSynchronize", "failures of set-up and of the last step are met here", 0},
    {"dp", "impls/dp.c", "cudaStreamSynchronize", "the end of a run, and of a timed step", 0},
    {"ddp", "impls/ddp.c", "cudaStreamSynchronize",
     "pageable copies end before they return, which CUDA does not promise", 0},
    {"ddp", "impls/ddp_watch.c", "cudaEventRecord", "shows the watch that a peer is alive", 0},
    {"ddp", "impls/ddp_watch.c", "cudaStreamSynchronize", "names the peer that has failed", 0},
    {"ddp", "impls/ddp_overlap.c", "cudaEventRecord", "takes the time", 0},
    {"mpi", "impls/mpi.c", "cudaStreamSynchronize", "the end of a run, and of a timed step", 0},
    {"mpi", "reference/batcher.c", "cudaEventRecord", "mpi waits for its device in every step; others do not", 0},
    {"mpi", "reference/batcher.c", "cudaEventSynchronize", "mpi waits for its device in every step; others do not", 0},
    {"mpi", "reference/upload.c", "cudaStreamWaitEvent", "mpi waits for its device in every step; others do not", 1},
    {"mpi", "reference/upload.c", "cudaEventRecord", "mpi waits for its device in every step; others do not", 1},
};

enum { KEPT = sizeof kept / sizeof kept[0] };

/* "impls/ddp.c:212" is in impls/ddp.c, and so it is when a compiler's cache has left a longer path to it. */
static bool is_in(const char *place, const char *file) {
    const char *at = strstr(place, file);
    return at != NULL && (at == place || at[-1] == '/') && at[strlen(file)] == ':';
}

/* stayed: [KEPT], of each line the calls that have stayed so far; counted on. */
static const char *reason_to_keep(const char *impl, const site *s, size_t *stayed) {
    const char *place = s->mutant + strlen("drop:");
    for (size_t i = 0; i < KEPT; i++) {
        if ((kept[i].impl == NULL || strcmp(kept[i].impl, impl) == 0) && strcmp(kept[i].call, s->call) == 0 &&
            is_in(place, kept[i].file)) {
            stayed[i]++;
            return kept[i].most == 0 || stayed[i] <= kept[i].most ? kept[i].reason : NULL;
        }
    }
    return NULL;
}

static ls_selftest_job job_of(unsigned impl, bool copies, const char *mutant) {
    return (ls_selftest_job){.mutant = mutant,
                             .sched = "check",
                             .impls = impl,
                             .model = NETWORK,
                             .options = OPTIONS,
                             .train = true,
                             .copies = copies,
                             .one_case = true};
}

static bool ended_well(const ls_selftest_job *job) {
    return WIFEXITED(job->status) && WEXITSTATUS(job->status) == LS_OK;
}

/* Whether this platform has the mode: one that does refuses what is no mode. */
static ls_rc probe(const ls_selftest *test, bool *has_check) {
    ls_selftest_job *job = ls_calloc(1, sizeof *job, "a verification");
    if (job == NULL) {
        return LS_DEVICE_FAILED;
    }
    *job = job_of(LS_MUTANT_DP, false, "");
    job->sched = "no-such-mode";
    ls_rc rc = ls_selftest_jobs_run(test, job, 1, NULL);
    *has_check = rc == LS_OK && !ended_well(job);
    ls_selftest_jobs_close(job, 1);
    return rc;
}

/* The lines "impls/ddp.c:212 cudaEventRecord" that processes have left; several have come by the same site. */
static void read_sites(const char *path, family *f) {
    FILE *file = fopen(path, "re");
    char place[128], call[64];
    while (file != NULL && f->count < MOST_SITES && fscanf(file, "%127s %63s", place, call) == 2) {
        site *s = &f->sites[f->count];
        size_t i = 0;
        (void)snprintf(s->mutant, sizeof s->mutant, "drop:%s", place);
        (void)snprintf(s->call, sizeof s->call, "%s", call);
        while (strcmp(f->sites[i].mutant, s->mutant) != 0) {
            i++;
        }
        f->count += i == f->count ? 1 : 0;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

/* Runs without a fault, which must pass, and notes the sites that it comes by. */
static ls_rc find_sites(const ls_selftest *test, bool has_check, family *f) {
    char path[LS_PATH_SIZE + 64];
    ls_selftest_job *job = ls_calloc(1, sizeof *job, "a verification");
    if (job == NULL) {
        return LS_DEVICE_FAILED;
    }
    (void)snprintf(path, sizeof path, "%s/sites-%s%s", test->folder, f->name, f->copies ? "-copies" : "");
    *job = job_of(f->impl, f->copies, "");
    job->sched = has_check ? "check" : NULL;
    job->sites = path;
    ls_rc rc = ls_selftest_jobs_run(test, job, 1, NULL);
    if (rc == LS_OK && !ended_well(job)) {
        printf("  %s does not pass without a fault (LOCKSTEP_VGPU_SCHED=check lockstep-mutants train)\n", f->name);
        rc = LS_CHECK_FAILED;
    }
    read_sites(path, f);
    ls_selftest_jobs_close(job, 1);
    return rc;
}

/* A rank that finds a race ends the run. */
static bool caught(const ls_selftest_job *job) {
    return WIFEXITED(job->status) && WEXITSTATUS(job->status) == LS_DEVICE_FAILED;
}

/* The settings that find what is left out. */
static const char *checks_of(const family *f) {
    return f->copies ? "LOCKSTEP_VGPU_SCHED=check LOCKSTEP_VGPU_COPY_ENGINES=1" : "LOCKSTEP_VGPU_SCHED=check";
}

/* Prints, writes and counts what came of a call that was left out. stayed: see reason_to_keep. */
static ls_rc report_call(const ls_selftest *test, const family *f, const site *s, bool missed, size_t *stayed,
                         ls_selftest_sum *sum) {
    const char *reason = missed ? NULL : reason_to_keep(f->name, s, stayed);
    const char *status = missed ? "CAUGHT" : reason != NULL ? "KEPT" : "SURVIVED";
    if (!missed) {
        printf("  %s: %s: %s %s%s%s\n", f->name, reason != NULL ? "not missed" : status, s->mutant + strlen("drop:"),
               s->call, reason != NULL ? ": " : "", reason != NULL ? reason : "");
    }
    sum->caught += missed ? 1 : 0;
    sum->skipped += reason != NULL ? 1 : 0;
    sum->survived += !missed && reason == NULL ? 1 : 0;
    return ls_selftest_row(test,
                           json_pack("{s:s, s:s, s:s, s:s, s:s, s:s*}", "mutant", s->mutant, "summary", s->call, "impl",
                                     f->name, "checks", checks_of(f), "status", status, "reason", reason));
}

static ls_rc drop_each(const ls_selftest *test, const family *f, ls_selftest_sum *sum) {
    ls_selftest_job *jobs = ls_calloc(f->count, sizeof *jobs, "verifications");
    if (jobs == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < f->count; i++) {
        jobs[i] = job_of(f->impl, f->copies, f->sites[i].mutant);
    }
    ls_selftest_sum own = {0};
    size_t stayed[KEPT] = {0};
    ls_rc rc = ls_selftest_jobs_run(test, jobs, f->count, NULL);
    for (size_t i = 0; i < f->count && rc == LS_OK; i++) {
        rc = report_call(test, f, &f->sites[i], caught(&jobs[i]), stayed, &own);
    }
    printf("%-4s %zu calls that order streams and threads%s: %zu left out are reported, %zu are not missed, %zu "
           "survived\n",
           f->name, f->count, f->copies ? " where a device has copy engines" : "", own.caught, own.skipped,
           own.survived);
    sum->caught += own.caught;
    sum->skipped += own.skipped;
    sum->survived += own.survived;
    ls_selftest_jobs_close(jobs, f->count);
    return rc;
}

static ls_rc run_family(const ls_selftest *test, bool has_check, family *f, ls_selftest_sum *sum) {
    LS_TRY(find_sites(test, has_check, f));
    if (!has_check) {
        printf("%-4s %zu calls that order streams and threads: waiting for LOCKSTEP_VGPU_SCHED=check\n", f->name,
               f->count);
        sum->waiting += f->count;
        return LS_OK;
    }
    return drop_each(test, f, sum);
}

ls_rc ls_selftest_calls(const ls_selftest *test, ls_selftest_sum *sum) {
    static const family families[] = {
        {.name = "dp", .impl = LS_MUTANT_DP},   {.name = "dp", .impl = LS_MUTANT_DP, .copies = true},
        {.name = "ddp", .impl = LS_MUTANT_DDP}, {.name = "ddp", .impl = LS_MUTANT_DDP, .copies = true},
        {.name = "mpi", .impl = LS_MUTANT_MPI}, {.name = "mpi", .impl = LS_MUTANT_MPI, .copies = true},
    };
    bool has_check = false;
    printf("\nEach event record, event wait and synchronisation in turn:\n");
    LS_TRY(probe(test, &has_check));
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        bool slow = families[i].impl == LS_MUTANT_MPI;
        bool again = families[i].copies && !has_check; /* a real GPU has what it has */
        if ((test->impls & families[i].impl) == 0 || (slow && test->quick) || again) {
            continue;
        }
        family *f = ls_calloc(1, sizeof *f, "the calls of an implementation");
        if (f == NULL) {
            return LS_DEVICE_FAILED;
        }
        *f = families[i];
        ls_rc rc = run_family(test, has_check, f, sum);
        free(f);
        LS_TRY(rc);
    }
    return LS_OK;
}
