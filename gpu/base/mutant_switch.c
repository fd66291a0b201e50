/* Which fault is switched on. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/base/mutant.h"

static const char *active = "";
static const char *sites = "";

/* Before any thread runs, so that nobody has to lock. */
__attribute__((constructor)) static void read_environment(void) {
    const char *mutant = getenv("LOCKSTEP_MUTANT");
    const char *path = getenv("LOCKSTEP_MUTANT_SITES");
    active = mutant != NULL ? mutant : "";
    sites = path != NULL ? path : "";
}

bool ls_mutant_is(const char *name) {
    return strcmp(active, name) == 0;
}

/* The path from the root of the sources: this file's own tells how long that is. */
static const char *short_path(const char *file) {
    size_t root = strlen(__FILE__) - strlen("gpu/base/mutant_switch.c");
    return strncmp(file, __FILE__, root) == 0 ? file + root : file;
}

enum { MOST_SITES = 512 };

/* One write a line: ranks share the file. */
static void note_site(const char *call, const char *file, int line) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        const char *file;
        int line;
    } seen[MOST_SITES];
    static size_t count = 0;
    char text[512];
    (void)pthread_mutex_lock(&mutex);
    size_t i = 0;
    while (i < count && (seen[i].file != file || seen[i].line != line)) {
        i++;
    }
    if (i == count && count < MOST_SITES) {
        seen[count].file = file;
        seen[count++].line = line;
        int length = snprintf(text, sizeof text, "%s:%d %s\n", short_path(file), line, call);
        int fd = open(sites, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, text, (size_t)length) != length) {
            perror(sites);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    (void)pthread_mutex_unlock(&mutex);
}

bool ls_mutant_drops(const char *call, const char *file, int line) {
    if (sites[0] != '\0') {
        note_site(call, file, line);
    }
    if (strncmp(active, "drop:", 5) != 0) {
        return false;
    }
    char place[512];
    (void)snprintf(place, sizeof place, "%s:%d", short_path(file), line);
    return strcmp(active + 5, place) == 0;
}
