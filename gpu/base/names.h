/* Lists of names for messages and help, made of tables: a text of one's own beside a table forgets its next line. */
#ifndef LS_GPU_BASE_NAMES_H
#define LS_GPU_BASE_NAMES_H

#include <stdio.h>
#include <string.h>

/* Adds name to the list in text, behind ", " unless the list is empty. What does not fit into size is cut off. */
static inline void ls_names_add(char *text, size_t size, const char *name) {
    size_t used = strlen(text);
    (void)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", name);
}

#endif
