/* lockstep data: making, checking and looking at data sets. */
#include <stdio.h>
#include <string.h>

#include "bench/cmd.h"
#include "bench/data.h"

static const struct {
    const char *name, *summary;
    ls_rc (*run)(int argc, char **argv);
} parts[] = {
    {"import", "a raw container from other files", ls_data_import},
    {"check", "reads a data set completely and sums it up", ls_data_check},
    {"show", "one sample as text", ls_data_show},
};
enum { PARTS = sizeof parts / sizeof parts[0] };

ls_rc ls_command_data(int argc, char **argv) {
    const char *name = argc > 0 ? argv[0] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        printf("usage: lockstep data import|check|show ...\n");
        for (size_t i = 0; i < PARTS; i++) {
            printf("  %-8s %s\n", parts[i].name, parts[i].summary);
        }
        printf("SPEC, a data set as --data takes it: %s\n", ls_dataset_usages());
        return LS_OK;
    }
    for (size_t i = 0; i < PARTS; i++) {
        if (strcmp(parts[i].name, name) == 0) {
            return parts[i].run(argc - 1, argv + 1);
        }
    }
    return ls_fail(LS_BAD_INPUT, "lockstep data: expected import, check or show, found '%s'", name);
}
