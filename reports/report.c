#include "reports/report.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/base/path.h"
#include "reports/html.h"
#include "reports/plot.h"

enum { PATH_ROOM = PATH_MAX + 512 }; /* a folder's path and a file's name */

static ls_rc write_page(const ls_report_rows *rows, const char *source, const char *folder) {
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/index.html", folder);
    FILE *out = fopen(path, "we");
    if (out == NULL) {
        return ls_fail(LS_BAD_INPUT, "cannot write '%s': %s", path, strerror(errno));
    }
    const char *name = strrchr(source, '/');
    ls_html_write(out, rows, name != NULL ? name + 1 : source);
    bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) {
        return ls_fail(LS_BAD_INPUT, "cannot write '%s': %s", path, strerror(errno));
    }
    return LS_OK;
}

static ls_rc write_all(const ls_report_rows *rows, const char *source, const char *folder) {
    for (size_t g = 0; g < rows->count; g++) {
        for (size_t i = 0; ls_plots[i] != NULL; i++) {
            if (ls_plot_has_points(ls_plots[i], &rows->groups[g])) {
                LS_TRY(ls_plot_draw(ls_plots[i], &rows->groups[g], folder));
            }
        }
    }
    return write_page(rows, source, folder);
}

/* Puts a file in its place; only a file gives way to it. */
static ls_rc place(const char *from, const char *to) {
    char target[PATH_MAX];
    const char *found = ls_path_target(to, target);
    if (found != NULL) {
        return ls_fail(LS_BAD_INPUT, "cannot put '%s' in its place: expected a file, found %s", to, found);
    }
    return rename(from, target) == 0 ? LS_OK
                                     : ls_fail(LS_BAD_INPUT, "cannot put '%s' in its place: %s", to, strerror(errno));
}

/* Calls for every file of a folder; move: into to, else: removed. The folder itself is removed at the end. */
static ls_rc empty_folder(const char *folder, const char *to) {
    DIR *list = opendir(folder);
    if (list == NULL) {
        return ls_fail(LS_BAD_INPUT, "cannot read '%s': %s", folder, strerror(errno));
    }
    ls_rc rc = LS_OK;
    for (struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        char from[PATH_ROOM], target[PATH_ROOM];
        snprintf(from, sizeof from, "%s/%s", folder, entry->d_name);
        snprintf(target, sizeof target, "%s/%s", to != NULL ? to : folder, entry->d_name);
        if (to != NULL && rc == LS_OK) {
            rc = place(from, target);
        }
        (void)unlink(from); /* gone when it has been placed; what cannot be removed keeps its folder, which says so */
    }
    closedir(list);
    if (rmdir(folder) != 0 && rc == LS_OK) {
        rc = ls_fail(LS_BAD_INPUT, "cannot remove '%s': %s", folder, strerror(errno));
    }
    return rc;
}

/* Like mkdir -p. */
static ls_rc make_folder(const char *path) {
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) {
        return ls_fail(LS_BAD_INPUT, "the path of the output folder is longer than %d bytes", PATH_MAX - 1);
    }
    for (char *at = part + 1; *at != '\0'; at++) {
        if (*at == '/') {
            *at = '\0';
            if (mkdir(part, 0755) != 0 && errno != EEXIST) {
                return ls_fail(LS_BAD_INPUT, "cannot make the folder '%s': %s", part, strerror(errno));
            }
            *at = '/';
        }
    }
    if (mkdir(part, 0755) != 0 && errno != EEXIST) {
        return ls_fail(LS_BAD_INPUT, "cannot make the folder '%s': %s", part, strerror(errno));
    }
    return LS_OK;
}

/* Everything is made in a folder beside its place, so that an earlier report stays whole until this one is. */
static ls_rc generate(const ls_report_rows *rows, const char *source, const char *folder) {
    char making[PATH_MAX + 32];
    snprintf(making, sizeof making, "%s/.making-XXXXXX", folder);
    if (mkdtemp(making) == NULL) {
        return ls_fail(LS_BAD_INPUT, "cannot write into the folder '%s': %s", folder, strerror(errno));
    }
    ls_rc rc = write_all(rows, source, making);
    ls_rc placed = empty_folder(making, rc == LS_OK ? folder : NULL);
    return rc != LS_OK ? rc : placed;
}

ls_rc ls_report_generate(const char *results_path, const char *output_dir, char *index_path, size_t size) {
    ls_report_rows rows;
    LS_TRY(ls_report_rows_read(results_path, &rows));
    ls_rc rc = make_folder(output_dir);
    char folder[PATH_MAX];
    if (rc == LS_OK && realpath(output_dir, folder) == NULL) {
        rc = ls_fail(LS_BAD_INPUT, "cannot find the folder '%s': %s", output_dir, strerror(errno));
    }
    if (rc == LS_OK) {
        rc = generate(&rows, results_path, folder);
    }
    ls_report_rows_free(&rows);
    if (rc == LS_OK && snprintf(index_path, size, "%s/index.html", folder) >= (int)size) {
        rc = ls_fail(LS_BAD_INPUT, "the path '%s/index.html' is longer than %zu bytes", folder, size - 1);
    }
    return rc;
}
