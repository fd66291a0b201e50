#include "gpu/base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LINKS = 40 }; /* as Linux follows them (path_resolution(7)) */

/* What is no regular file, in words; NULL: it is one. */
static const char *other_kind(const struct stat *info) {
    return S_ISREG(info->st_mode) ? NULL : S_ISDIR(info->st_mode) ? "a folder" : "a device, pipe or socket";
}

ls_rc ls_path_open_regular(const char *path, int *out, struct stat *info) {
    *out = -1;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not block */
    if (file < 0) {
        return ls_fail(LS_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    }
    if (fstat(file, info) != 0) {
        int reason = errno;
        close(file);
        return ls_fail(LS_BAD_INPUT, "%s: cannot be examined: %s", path, strerror(reason));
    }
    const char *kind = other_kind(info);
    if (kind != NULL) {
        close(file);
        return ls_fail(LS_BAD_INPUT, "%s: expected a file, found %s", path, kind);
    }
    *out = file;
    return LS_OK;
}

/* Replaces path by what its last name leads to while that is a symbolic link. Returns 0, or errno. */
static int follow_links(char path[PATH_MAX]) {
    for (int i = 0; i < MOST_LINKS; i++) {
        char link[PATH_MAX];
        ssize_t length = readlink(path, link, sizeof link - 1);
        if (length < 0) { /* no link, or nothing there: whoever opens it finds out */
            return 0;
        }
        link[length] = '\0';
        const char *slash = link[0] == '/' ? NULL : strrchr(path, '/');
        size_t kept = slash != NULL ? (size_t)(slash - path) + 1 : 0; /* a relative link starts in its own folder */
        if (kept + (size_t)length >= PATH_MAX) {
            return ENAMETOOLONG;
        }
        memcpy(path + kept, link, (size_t)length + 1);
    }
    return ELOOP;
}

const char *ls_path_target(const char *path, char target[PATH_MAX]) {
    struct stat info;
    const char *kind = stat(path, &info) == 0 ? other_kind(&info) : NULL;
    if (kind != NULL) {
        return kind;
    }
    int used = snprintf(target, PATH_MAX, "%s", path);
    int reason = used >= 0 && used < PATH_MAX ? follow_links(target) : ENAMETOOLONG;
    return reason == 0 ? NULL : reason == ELOOP ? "symbolic links that lead nowhere" : "a path that is too long";
}

/* Splits path, which is changed, into its folder and the name in it. */
static void split(char *path, const char **folder, const char **name) {
    char *slash = strrchr(path, '/');
    *name = slash != NULL ? slash + 1 : path;
    *folder = slash == NULL ? "." : slash == path ? "/" : path;
    if (slash != NULL) {
        *slash = '\0';
    }
}

static bool same_file(const char *a, const char *b) {
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

bool ls_path_same(const char *a, const char *b) {
    char of_a[PATH_MAX], of_b[PATH_MAX];
    if (strcmp(a, b) == 0 || same_file(a, b)) {
        return true;
    }
    if (snprintf(of_a, sizeof of_a, "%s", a) >= (int)sizeof of_a || follow_links(of_a) != 0 ||
        snprintf(of_b, sizeof of_b, "%s", b) >= (int)sizeof of_b || follow_links(of_b) != 0) {
        return false;
    }
    const char *folder_a, *name_a, *folder_b, *name_b;
    split(of_a, &folder_a, &name_a);
    split(of_b, &folder_b, &name_b);
    return strcmp(name_a, name_b) == 0 && same_file(folder_a, folder_b);
}

int ls_path_sync(int file) {
    return fsync(file) == 0 || errno == EINVAL || errno == EROFS ? 0 : -1; /* fsync(2): bound to a special file */
}
