/* What can be known before any rank starts. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/nccl_register.h"
#include "impls/devices.h"
#include "impls/launch.h"
#include "impls/rank.h"
#include "impls/rank_restore.h"
#include "reference/dataset.h"
#include "reference/file.h"

/* What a run may ask of the steps of an implementation: which capability it takes, and in words what is wrong without it. */
static const struct wish {
    size_t asked; /* of a bool in ls_run */
    unsigned capability;
    const char *refused; /* said of the implementation alone, before the names of those that can */
    const char *skipped; /* said before its name, where it is one of many */
} wishes[] = {
    {offsetof(ls_run, graph), LS_CAP_GRAPH,
     "--graph: its steps cannot be captured in a CUDA graph; leave it out or use one of",
     "a CUDA graph cannot capture the steps of"},
    {offsetof(ls_run, nccl_register), LS_CAP_NCCL_REGISTER,
     "--nccl-register: NCCL does not reduce its gradients; leave it out or use one of",
     "NCCL does not reduce the gradients of"},
};

/* The first that impl cannot grant; NULL: none. */
static const struct wish *find_refused(const ls_run *run, const ls_impl *impl) {
    for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++) {
        const bool *asked = (const bool *)((const char *)run + wishes[i].asked);
        if (*asked && (impl->capabilities & wishes[i].capability) == 0) {
            return &wishes[i];
        }
    }
    return NULL;
}

/* Whether the ranks of the run can meet where NCCL is how they do; else why not. */
static bool can_meet(const ls_run *run, const ls_impl *impl, char *why, size_t size) {
    bool meet = (impl->capabilities & LS_CAP_NCCL) != 0 && impl->ranks(run->devices) > 1;
    return !meet || ls_platform_has_collectives(why, size);
}

bool ls_run_suits(const ls_run *run, const ls_impl *impl, char *why, size_t size) {
    const struct wish *refused = find_refused(run, impl);
    if (refused != NULL) {
        snprintf(why, size, "%s %s", refused->skipped, impl->name);
    }
    return refused == NULL && can_meet(run, impl, why, size);
}

static ls_rc check_impl(const ls_run *run) {
    const ls_impl *impl = ls_impl_find(run->impl);
    char why[256] = "";
    if (impl == NULL) {
        return ls_fail(LS_BAD_INPUT, "unknown implementation '%s'; `lockstep info` lists them", run->impl);
    }
    if (run->devices > 1 && (impl->capabilities & LS_CAP_MULTI_DEVICE) == 0) {
        return ls_fail(LS_BAD_INPUT, "%s trains on one device, --devices says %zu", impl->name, run->devices);
    }
    if (run->ranks == LS_RANKS_THREADS && (impl->capabilities & LS_CAP_RANK_THREADS) == 0 &&
        (impl->capabilities & (LS_CAP_RANK_PROCESSES | LS_CAP_MPIRUN)) != 0) {
        return ls_fail(LS_BAD_INPUT, "%s has no ranks as threads; leave out --ranks threads", impl->name);
    }
    const struct wish *refused = find_refused(run, impl);
    if (refused != NULL) {
        char able[256];
        ls_impls_with(refused->capability, able, sizeof able);
        return ls_fail(LS_BAD_INPUT, "%s: %s %s", impl->name, refused->refused, able);
    }
    if (run->nccl_register && !ls_nccl_register_available(why, sizeof why)) {
        return ls_fail(LS_BAD_INPUT, "--nccl-register: %s", why);
    }
    if (!can_meet(run, impl, why, sizeof why)) {
        return ls_fail(LS_BAD_INPUT, "%s cannot run on %zu devices: %s", impl->name, run->devices, why);
    }
    if (!ls_impl_available(impl, why, sizeof why)) {
        return ls_fail(LS_BAD_INPUT, "%s cannot run here: %s", impl->name, why);
    }
    return LS_OK;
}

/* A shard smaller than the batch is one short step an epoch; one without a sample is nothing to train on. */
static ls_rc check_shards(const ls_run *run, size_t count) {
    size_t length, batch;
    LS_TRY(ls_run_share(run, count, &length, &batch));
    if (length > 0) {
        return LS_OK;
    }
    return ls_fail(LS_BAD_INPUT,
                   "--drop-last: %s has %zu training samples, fewer than the %zu ranks, so that none is left; leave it "
                   "out or use fewer devices",
                   run->data, count, ls_impl_find(run->impl)->ranks(run->devices));
}

/* By the headers of the files: ranks read and check them completely. */
static ls_rc check_data(const ls_run *run, const ls_model *model) {
    ls_dataset sizes;
    if (!run->evaluate_only) {
        LS_TRY(ls_dataset_shape(run->data, LS_SPLIT_TRAIN, &sizes));
        LS_TRY(ls_run_fits(run, model, &sizes));
        LS_TRY(check_shards(run, sizes.count));
    }
    if (!run->evaluate) {
        return LS_OK;
    }
    LS_TRY(ls_dataset_shape(run->data, LS_SPLIT_TEST, &sizes));
    return ls_run_fits(run, model, &sizes);
}

ls_rc ls_run_check(const ls_run *run) {
    ls_model model;
    ls_normalize normalize;
    size_t local, global;
    LS_TRY(check_impl(run));
    LS_TRY(ls_run_model(run, &model, &normalize));
    LS_TRY(ls_run_batches(run, &local, &global));
    LS_TRY(ls_devices_check(run));
    LS_TRY(check_data(run, &model));
    LS_TRY(ls_restore_check(run));
    return run->json[0] != '\0' && strcmp(run->json, "-") != 0 ? ls_file_check_append("--json", run->json) : LS_OK;
}

static size_t number_in(const char *name) {
    const char *text = getenv(name);
    return text != NULL ? (size_t)strtoull(text, NULL, 10) : 0;
}

/* A task of srun, as opposed to a shell or batch script inside an allocation of several tasks, which may start ranks. */
static bool under_srun(void) {
    if (getenv("SLURM_STEP_NUM_TASKS") != NULL) {
        return number_in("SLURM_STEP_NUM_TASKS") > 1;
    }
    bool script = getenv("SLURM_JOB_ID") != NULL && getenv("SLURM_STEP_ID") == NULL;
    return !script && number_in("SLURM_NTASKS") > 1;
}

ls_rc ls_launch_refuse_nested(const char *command) {
    const char *launcher = NULL;
    if (under_srun()) {
        launcher = "srun";
    } else if (getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMIX_RANK") != NULL) {
        launcher = "mpirun";
    }
    if (launcher == NULL && number_in("WORLD_SIZE") > 1) {
        return ls_fail(LS_BAD_INPUT,
                       "WORLD_SIZE is %zu: only ranks of ddp as processes are started so; this %s starts all that it "
                       "needs itself: unset RANK and WORLD_SIZE",
                       number_in("WORLD_SIZE"), command);
    }
    if (launcher == NULL) {
        return LS_OK;
    }
    return ls_fail(LS_BAD_INPUT, "%s was started under %s; it starts ranks itself: run it directly", command, launcher);
}
