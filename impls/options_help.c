/* What --help says of an option. Names and defaults that a table holds are not written into the option's row: {these} in its
 * text are made of the table. */
#include <stdio.h>
#include <string.h>

#include "gpu/base/names.h"
#include "impls/impl.h"
#include "impls/options_table.h"
#include "reference/dataset.h"
#include "reference/model.h"

static void write_models(char *text, size_t size) {
    text[0] = '\0';
    for (size_t i = 0; ls_zoo[i] != NULL; i++) {
        ls_names_add(text, size, ls_zoo[i]->name);
    }
}

static void write_data(char *text, size_t size) {
    snprintf(text, size, "%s", ls_dataset_usages());
}

/* Of implementations: those that can do what the option asks for. */
static const struct {
    const char *name;
    unsigned capabilities;
} impls[] = {{"{impls}", 0},
             {"{multi}", LS_CAP_MULTI_DEVICE},
             {"{graph}", LS_CAP_GRAPH},
             {"{threads}", LS_CAP_RANK_THREADS},
             {"{shared}", LS_CAP_SHARED_DEVICES},
             {"{register}", LS_CAP_NCCL_REGISTER}};

static const struct {
    const char *name;
    void (*write)(char *text, size_t size);
} tables[] = {{"{models}", write_models}, {"{data}", write_data}, {"{optimizers}", ls_optimizer_names}};

static bool starts_with(const char *text, const char *name) {
    return strncmp(text, name, strlen(name)) == 0;
}

/* The text that stands for the name at the start of at; returns the name's length, 0 when it is none. */
static size_t look_up(unsigned command, const ls_option *option, const char *at, char *text, size_t size) {
    for (size_t i = 0; i < sizeof impls / sizeof impls[0]; i++) {
        if (starts_with(at, impls[i].name)) {
            ls_impls_with(impls[i].capabilities, text, size);
            return strlen(impls[i].name);
        }
    }
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        if (starts_with(at, tables[i].name)) {
            tables[i].write(text, size);
            return strlen(tables[i].name);
        }
    }
    if (starts_with(at, "{owners}")) {
        ls_option_owners(option, text, size);
        return strlen("{owners}");
    }
    if (starts_with(at, "{defaults}")) {
        ls_option_defaults(command, option, text, size);
        return strlen("{defaults}");
    }
    return 0;
}

void ls_option_help(unsigned command, const ls_option *option, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (const char *at = option->help; *at != '\0' && used + 1 < size;) {
        char value[512];
        size_t length = *at == '{' ? look_up(command, option, at, value, sizeof value) : 0;
        if (length == 0) {
            value[0] = *at;
            value[1] = '\0';
        }
        at += length > 0 ? length : 1;
        int more = snprintf(text + used, size - used, "%s", value);
        used += more > 0 ? (size_t)more : 0;
    }
}
