/* The implementations. A new one is one file and one line here. */
#include "impls/table.h"

#include <stdio.h>
#include <string.h>

#include "gpu/base/names.h"

const ls_impl *const ls_impls[] = {
    &ls_impl_single, &ls_impl_dp, &ls_impl_ddp, &ls_impl_mpi, NULL,
};

const ls_impl *ls_impl_find(const char *name) {
    for (const ls_impl *const *impl = ls_impls; *impl != NULL; impl++) {
        if (strcmp((*impl)->name, name) == 0) {
            return *impl;
        }
    }
    return NULL;
}

void ls_impls_with(unsigned capabilities, char *text, size_t size) {
    text[0] = '\0';
    for (const ls_impl *const *impl = ls_impls; *impl != NULL; impl++) {
        if ((capabilities & ~(*impl)->capabilities) == 0) {
            ls_names_add(text, size, (*impl)->name);
        }
    }
}

bool ls_impl_available(const ls_impl *impl, char *why, size_t size) {
    why[0] = '\0';
    bool available = impl->available == NULL || impl->available(why, size);
    if (!available && why[0] == '\0') {
        snprintf(why, size, "%s cannot run here", impl->name);
    }
    return available;
}
