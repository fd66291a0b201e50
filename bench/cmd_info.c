/* lockstep info: what is here to run on. */
#include <stdio.h>
#include <string.h>

#include "bench/cmd.h"
#include "bench/results.h"
#include "gpu/gpu.h"
#include "gpu/layer_math.h"
#include "impls/impl.h"
#include "impls/mpi_world.h"
#include "impls/options.h"
#include "reference/model.h"

static json_t *implementations(void) {
    json_t *list = json_array();
    for (size_t i = 0; ls_impls[i] != NULL; i++) {
        char why[256] = "";
        bool available = ls_impl_available(ls_impls[i], why, sizeof why);
        json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:s}", "name", ls_impls[i]->name, "summary",
                                              ls_impls[i]->summary, "available", available, "reason", why));
    }
    return list;
}

static json_t *networks(void) {
    json_t *list = json_array();
    for (size_t i = 0; ls_zoo[i] != NULL; i++) {
        ls_model model;
        char error[256] = "";
        if (ls_model_resolve(ls_zoo[i], &model, error, sizeof error) != 0) {
            continue;
        }
        json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I}", "name", ls_zoo[i]->name, "summary",
                                              ls_zoo[i]->summary, "parameters", (json_int_t)model.param_count,
                                              "tensors", (json_int_t)model.param_tensors));
    }
    return list;
}

static json_t *libraries(void) {
    int runtime = 0, nccl = 0;
    char mpi[128] = "";
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess || ncclGetVersion(&nccl) != ncclSuccess ||
        ls_mpi_describe(mpi, sizeof mpi) != LS_OK) {
        return NULL;
    }
    return json_pack("{s:i, s:i, s:s, s:s}", "cuda_runtime_api", runtime, "nccl_api", nccl, "mpi", mpi, "jansson",
                     JANSSON_VERSION);
}

static void print_table(const char *title, const json_t *list, const char *detail) {
    printf("%s\n", title);
    size_t index = 0;
    json_t *entry = NULL;
    json_array_foreach(list, index, entry) {
        const char *reason = json_string_value(json_object_get(entry, "reason"));
        printf("  %-10s %s", json_string_value(json_object_get(entry, "name")),
               json_string_value(json_object_get(entry, "summary")));
        if (detail != NULL) {
            printf(" (%lld %s)", (long long)json_integer_value(json_object_get(entry, detail)), detail);
        }
        printf("%s%s\n", reason != NULL && reason[0] != '\0' ? " -- not here: " : "", reason != NULL ? reason : "");
    }
}

ls_rc ls_command_info(int argc, char **argv) {
    ls_options options;
    bool help = false;
    LS_TRY(ls_options_parse(LS_COMMAND_INFO, argc, argv, &options, &help));
    if (help) {
        return LS_OK;
    }
    size_t devices = 0;
    char device[256] = "";
    LS_TRY(ls_platform_device_count(&devices));
    LS_TRY(ls_platform_describe(device, sizeof device));
    json_t *info =
        json_pack("{s:i, s:s, s:s, s:s, s:I, s:s, s:o, s:o, s:o}", "schema", 1, "kind", "info", "version",
                  LOCKSTEP_VERSION, "platform", ls_platform_name(), "devices", (json_int_t)devices, "device", device,
                  "implementations", implementations(), "networks", networks(), "libraries", libraries());
    if (info == NULL) {
        return ls_fail(LS_DEVICE_FAILED,
                       "the description of this machine could not be made: a library gave no version");
    }
    printf("lockstep %s\nplatform     %s: %s\nlayer math   %s\n", LOCKSTEP_VERSION, ls_platform_name(), device,
           ls_math_description());
    const json_t *found = json_object_get(info, "libraries");
    printf("libraries    CUDA runtime API %lld, NCCL API %lld, %s, jansson %s\n",
           (long long)json_integer_value(json_object_get(found, "cuda_runtime_api")),
           (long long)json_integer_value(json_object_get(found, "nccl_api")),
           json_string_value(json_object_get(found, "mpi")), json_string_value(json_object_get(found, "jansson")));
    print_table("implementations", json_object_get(info, "implementations"), NULL);
    print_table("networks", json_object_get(info, "networks"), "parameters");
    ls_rc rc = options.run.json[0] != '\0' ? ls_results_append(options.run.json, info) : LS_OK;
    json_decref(info);
    return rc;
}
