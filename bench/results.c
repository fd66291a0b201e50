#include "bench/results.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "gpu/base/path.h"
#include "gpu/gpu.h"
#include "gpu/layer_math.h"
#include "impls/impl.h"
#include "impls/launch_mpi_buffers.h"
#include "impls/mpi_world.h"
#include "impls/rank.h"
#include "reference/file.h"

/* The processor's name as the kernel tells it. */
static void read_cpu_name(char *name, size_t size) {
    snprintf(name, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) {
        return;
    }
    char line[512];
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL) {
            snprintf(name, size, "%s", strchr(line, ':') + 2);
            name[strcspn(name, "\n")] = '\0';
            break;
        }
    }
    fclose(file);
}

/* Only what is listed here is recorded of the machine: no user names, host names or paths. */
static json_t *environment(void) {
    char cpu[256], os[256] = "unknown";
    read_cpu_name(cpu, sizeof cpu);
    struct utsname system;
    if (uname(&system) == 0) {
        snprintf(os, sizeof os, "%.60s %.60s %.60s", system.sysname, system.release, system.machine);
    }
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE), cores = sysconf(_SC_NPROCESSORS_ONLN);
    int runtime = 0, nccl = 0; /* major * 1000 + minor * 10; major * 10000 + minor * 100 + patch */
    (void)cudaRuntimeGetVersion(&runtime);
    (void)ncclGetVersion(&nccl);
    char versions[2][32], mpi[128] = "unknown";
    (void)ls_mpi_describe(mpi, sizeof mpi); /* starts nothing */
    (void)snprintf(versions[0], sizeof versions[0], "%d.%d", runtime / 1000, runtime % 1000 / 10);
    (void)snprintf(versions[1], sizeof versions[1], "%d.%d.%d", nccl / 10000, nccl / 100 % 100, nccl % 100);
    /* NCCL chooses an algorithm for each call, unless these say which */
    const char *algorithm = getenv("NCCL_ALGO"), *protocol = getenv("NCCL_PROTO");
    return json_pack("{s:s, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s?, s:s?}", "cpu", cpu, "cores",
                     (json_int_t)cores, "memory_bytes", (json_int_t)pages * (json_int_t)page, "os", os, "lockstep",
                     LOCKSTEP_VERSION, "math", ls_math_description(), "mpi", mpi, "cuda_runtime", versions[0], "nccl",
                     versions[1], "nccl_algo", algorithm, "nccl_proto", protocol);
}

static void set_time(json_t *row) {
    char text[32] = "";
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) != NULL) {
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    }
    json_object_set_new(row, "time", json_string(text));
}

json_t *ls_result_row(const char *kind, const ls_run *run, const char *command) {
    const ls_impl *impl = ls_impl_find(run->impl);
    bool has_ranks = impl != NULL && (impl->capabilities & LS_CAP_RANK_THREADS) != 0;
    bool buckets = impl != NULL && (impl->capabilities & LS_CAP_BUCKETS) != 0;
    size_t local = 0, global = 0;
    if (ls_run_batches(run, &local, &global) != LS_OK) {
        return NULL;
    }
    char device[256] = "";
    if (ls_platform_describe(device, sizeof device) != LS_OK) {
        return NULL;
    }
    size_t cores = ls_platform_shared_cores(), present = 0;
    if (ls_platform_device_count(&present) != LS_OK) {
        return NULL;
    }
    bool crowded = (cores > 0 && run->devices > cores) || (run->share_devices && run->devices > present);
    json_t *row = json_pack(
        "{s:i, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:o, s:b, s:n, s:s, s:s, s:s, s:n, s:b}",
        "schema", 1, "kind", kind, "impl", run->impl, "ranks",
        has_ranks ? json_string(run->ranks == LS_RANKS_THREADS ? "threads" : "processes") : json_null(), "world",
        (json_int_t)(impl != NULL ? impl->ranks(run->devices) : 1), "devices", (json_int_t)run->devices, "local_batch",
        (json_int_t)local, "global_batch", (json_int_t)global, "model", run->model, "data", run->data, "dtype",
        ls_dtype_name(run->dtype), "math", ls_math_mode_name(run->math), "bucket_bytes",
        buckets ? json_integer((json_int_t)run->bucket_bytes) : json_null(), "graph", run->graph, "scaling", "platform",
        ls_platform_name(), "device", device, "clock", "real", "link", "oversubscribed", crowded);
    if (row == NULL) {
        return NULL;
    }
    bool mpirun = impl != NULL && (impl->capabilities & LS_CAP_MPIRUN) != 0;
    json_object_set_new(row, "mpi_buffers", mpirun ? json_string(ls_mpi_buffers_name(run)) : json_null());
    bool registers = impl != NULL && (impl->capabilities & LS_CAP_NCCL_REGISTER) != 0;
    json_object_set_new(row, "nccl_register", registers ? json_boolean(run->nccl_register) : json_null());
    static const char *const unknown[] = {"status",
                                          "reason",
                                          "verification",
                                          "warmup_steps",
                                          "step_seconds",
                                          "first_step_seconds",
                                          "samples_per_second",
                                          "param_hash",
                                          "counters"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        json_object_set_new(row, unknown[i], json_null());
    }
    json_object_set_new(row, "environment", environment());
    set_time(row);
    json_object_set_new(row, "command", json_string(command));
    return row;
}

void ls_result_set_math(json_t *row, const json_t *ranks) {
    json_t *math = json_object_get(json_array_get(ranks, 0), "math");
    if (json_is_string(math)) {
        json_object_set(json_object_get(row, "environment"), "math", math);
    }
}

ls_rc ls_results_check(const char *path) {
    if (strcmp(path, "-") == 0) {
        return ls_fail(LS_BAD_INPUT,
                       "results need a file, found '-': on stdout their rows would stand among other lines");
    }
    return ls_file_check_append("results", path);
}

/* Whether the last line of the file was cut: by a program that was killed, or a disk that was full. What cannot be read tells
 * nothing. */
static bool ends_within_line(const char *path) {
    struct stat info;
    char last = '\n';
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
        pread(fd, &last, 1, info.st_size - 1) != 1) {
        last = '\n';
    }
    if (fd >= 0) {
        close(fd);
    }
    return last != '\n';
}

ls_rc ls_results_append(const char *path, const json_t *row) {
    char *json = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(17));
    char *text = NULL;
    /* behind a cut line the row starts a line of its own: only what was cut is lost */
    int length = json == NULL ? -1 : asprintf(&text, "%s%s\n", ends_within_line(path) ? "\n" : "", json);
    free(json);
    if (length < 0) {
        return ls_fail(LS_DEVICE_FAILED, "a result row for '%s' could not be written as JSON", path);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    ssize_t written = fd >= 0 ? write(fd, text, (size_t)length) : -1;
    bool good = written == length && ls_path_sync(fd) == 0;
    int cause = errno;
    if (fd >= 0 && close(fd) != 0) {
        good = false;
    }
    free(text);
    return good ? LS_OK
                : ls_fail(LS_BAD_INPUT, "cannot append a row to '%s': %s", path,
                          written >= 0 && written != length ? "the disk is full" : strerror(cause));
}

/* What is alike on every rank, and would be no number of anything if it were added. */
static bool is_shared(const char *counter) {
    return strcmp(counter, "steps") == 0 || strcmp(counter, "buckets") == 0;
}

json_t *ls_result_counters(const json_t *ranks) {
    json_t *sum = json_object();
    size_t index = 0;
    json_t *rank = NULL;
    json_array_foreach(ranks, index, rank) {
        const char *key = NULL;
        json_t *value = NULL;
        json_object_foreach(json_object_get(rank, "counters"), key, value) {
            json_t *so_far = json_object_get(sum, key);
            if (json_is_integer(value) && !is_shared(key)) {
                json_object_set_new(sum, key, json_integer(json_integer_value(so_far) + json_integer_value(value)));
            } else if (so_far == NULL) { /* times, too, are those of the first rank */
                json_object_set(sum, key, value);
            }
        }
    }
    return sum;
}

json_t *ls_results_read(const char *path) {
    json_t *rows = json_array();
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;
    while (file != NULL && rows != NULL && getline(&line, &size, file) >= 0) {
        json_t *row = json_loads(line, 0, NULL);
        if (row != NULL && json_array_append_new(rows, row) != 0) {
            json_decref(rows);
            rows = NULL;
        }
    }
    free(line);
    if (file != NULL) {
        (void)fclose(file);
    }
    return rows;
}
