#include "reference/data/bytes.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "gpu/base/path.h"

enum { INPUT_SIZE = 1 << 16 };

/* Deflate spends at least 1 bit on a match of at most 258 bytes, hence 1032 bytes a byte (zlib's technical details). */
enum { DEFLATE_RATIO = 1032 };

struct ls_bytes {
    char *path;
    FILE *file;
    uint64_t file_size;
    uint64_t file_offset; /* bytes taken from the file */
    uint64_t offset;      /* decoded bytes handed out */
    bool gzip;
    bool fixed;     /* nobody may write the file */
    bool inflating; /* z is initialised */
    bool ended;     /* the last gzip member has been verified and nothing follows */
    z_stream z;
    unsigned char input[INPUT_SIZE];
};

void ls_bytes_close(ls_bytes *bytes) {
    if (bytes == NULL) {
        return;
    }
    if (bytes->inflating) {
        inflateEnd(&bytes->z);
    }
    if (bytes->file != NULL) {
        fclose(bytes->file);
    }
    free(bytes->path);
    free(bytes);
}

static ls_rc fail_read(const ls_bytes *bytes) {
    return ls_fail(LS_BAD_INPUT, "%s: byte %llu of the file: cannot be read: %s", bytes->path,
                   (unsigned long long)bytes->file_offset, strerror(errno));
}

/* Refills the input of the inflater; avail_in stays 0 at the end of the file. */
static ls_rc refill(ls_bytes *bytes) {
    if (bytes->z.avail_in > 0) {
        return LS_OK;
    }
    size_t got = fread(bytes->input, 1, INPUT_SIZE, bytes->file);
    if (got == 0 && ferror(bytes->file)) {
        return fail_read(bytes);
    }
    bytes->file_offset += got;
    bytes->z.next_in = bytes->input;
    bytes->z.avail_in = (uInt)got;
    return LS_OK;
}

static ls_rc open_file(ls_bytes *bytes) {
    int file;
    struct stat info;
    LS_TRY(ls_path_open_regular(bytes->path, &file, &info));
    bytes->file = fdopen(file, "rb");
    if (bytes->file == NULL) {
        int reason = errno;
        close(file);
        return ls_fail(LS_DEVICE_FAILED, "%s: cannot be opened: %s", bytes->path, strerror(reason));
    }
    if (info.st_size == 0) {
        return ls_fail(LS_BAD_INPUT, "%s: byte 0: expected data, found an empty file; download it again", bytes->path);
    }
    bytes->file_size = (uint64_t)info.st_size;
    bytes->fixed = (info.st_mode & (S_IWUSR | S_IWGRP | S_IWOTH)) == 0;
    return LS_OK;
}

/* Looks at the first bytes: gzip, a web page, or plain. */
static ls_rc recognise(ls_bytes *bytes) {
    LS_TRY(refill(bytes));
    const unsigned char *head = bytes->input;
    size_t size = bytes->z.avail_in;
    bytes->gzip = size >= 2 && head[0] == 0x1f && head[1] == 0x8b;
    size_t blank = 0;
    while (blank < size && (head[blank] == ' ' || head[blank] == '\n' || head[blank] == '\r' || head[blank] == '\t')) {
        blank++;
    }
    if (blank < size && head[blank] == '<') {
        return ls_fail(LS_BAD_INPUT,
                       "%s: byte %zu: expected a data file, found '<', so probably a web page (HTML) that a "
                       "server sent instead; download it again",
                       bytes->path, blank);
    }
    if (bytes->gzip) {
        if (inflateInit2(&bytes->z, 16 + MAX_WBITS) != Z_OK) { /* 16: a gzip wrapper, whose checksum zlib verifies */
            return ls_fail(LS_DEVICE_FAILED, "%s: out of memory for zlib", bytes->path);
        }
        bytes->inflating = true;
    }
    return LS_OK;
}

static ls_rc open_any(const char *path, bool look, ls_bytes **out) {
    ls_bytes *bytes = ls_calloc(1, sizeof *bytes, path);
    if (bytes == NULL) {
        return LS_DEVICE_FAILED;
    }
    bytes->path = strdup(path);
    ls_rc rc = bytes->path == NULL ? ls_fail(LS_DEVICE_FAILED, "out of memory for a path") : open_file(bytes);
    if (rc == LS_OK && look) {
        rc = recognise(bytes);
    }
    if (rc != LS_OK) {
        ls_bytes_close(bytes);
        return rc;
    }
    *out = bytes;
    return LS_OK;
}

ls_rc ls_bytes_open(const char *path, ls_bytes **out) {
    return open_any(path, true, out);
}

ls_rc ls_bytes_open_plain(const char *path, ls_bytes **out) {
    return open_any(path, false, out);
}

/* to: NULL to read over them. */
static ls_rc read_plain(ls_bytes *bytes, unsigned char *to, size_t want, size_t *got) {
    while (*got < want) {
        LS_TRY(refill(bytes));
        size_t take = bytes->z.avail_in < want - *got ? bytes->z.avail_in : want - *got;
        if (take == 0) {
            break;
        }
        if (to != NULL) {
            memcpy(to + *got, bytes->z.next_in, take);
        }
        bytes->z.next_in += take;
        bytes->z.avail_in -= (uInt)take;
        *got += take;
    }
    return LS_OK;
}

/* After a member: another one, the end of the file, or bytes that do not belong there. */
static ls_rc next_member(ls_bytes *bytes) {
    LS_TRY(refill(bytes));
    if (bytes->z.avail_in == 0) {
        bytes->ended = true;
        return LS_OK;
    }
    if (bytes->z.next_in[0] != 0x1f) {
        return ls_fail(LS_BAD_INPUT, "%s: byte %llu of the file: expected its end after the gzip stream, found 0x%02x",
                       bytes->path, (unsigned long long)(bytes->file_offset - bytes->z.avail_in),
                       (unsigned)bytes->z.next_in[0]);
    }
    if (inflateReset(&bytes->z) != Z_OK) {
        return ls_fail(LS_DEVICE_FAILED, "%s: zlib could not be reset", bytes->path);
    }
    return LS_OK;
}

static ls_rc fail_inflate(const ls_bytes *bytes, int status) {
    unsigned long long at = (unsigned long long)(bytes->file_offset - bytes->z.avail_in);
    if (status == Z_MEM_ERROR) {
        return ls_fail(LS_DEVICE_FAILED, "%s: out of memory for zlib", bytes->path);
    }
    const char *reason = bytes->z.msg != NULL ? bytes->z.msg : zError(status);
    bool checksum = strcmp(reason, "incorrect data check") == 0 || strcmp(reason, "incorrect length check") == 0;
    return ls_fail(LS_BAD_INPUT, "%s: byte %llu of the file: expected %s, found it damaged (%s); download it again",
                   bytes->path, at, checksum ? "the gzip checksum (CRC-32) and length of the content" : "a gzip stream",
                   reason);
}

static ls_rc read_gzip(ls_bytes *bytes, unsigned char *to, size_t want, size_t *got) {
    while (*got < want && !bytes->ended) {
        LS_TRY(refill(bytes));
        if (bytes->z.avail_in == 0) {
            return ls_fail(LS_BAD_INPUT,
                           "%s: byte %llu of the file: expected more of the gzip stream, found the end of the file "
                           "(truncated); download it again",
                           bytes->path, (unsigned long long)bytes->file_offset);
        }
        size_t room = want - *got < ((size_t)1 << 30) ? want - *got : (size_t)1 << 30;
        bytes->z.next_out = to + *got;
        bytes->z.avail_out = (uInt)room;
        int status = inflate(&bytes->z, Z_NO_FLUSH);
        *got += room - bytes->z.avail_out;
        if (status == Z_STREAM_END) {
            LS_TRY(next_member(bytes));
        } else if (status != Z_OK && status != Z_BUF_ERROR) {
            return fail_inflate(bytes, status);
        }
    }
    return LS_OK;
}

ls_rc ls_bytes_read(ls_bytes *bytes, void *to, size_t want, size_t *got) {
    *got = 0;
    LS_TRY(bytes->gzip ? read_gzip(bytes, to, want, got) : read_plain(bytes, to, want, got));
    bytes->offset += *got;
    return LS_OK;
}

/* Maps `count` bytes from here on; false where that cannot be. */
static bool map_content(const ls_bytes *bytes, size_t count, ls_content *out) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t start = bytes->offset - bytes->offset % page;
    size_t before = (size_t)(bytes->offset - start);
    size_t length = before + count;
    void *mapping = mmap(NULL, length, PROT_READ, MAP_PRIVATE, fileno(bytes->file), (off_t)start);
    if (mapping == MAP_FAILED) {
        return false;
    }
    *out = (ls_content){.data = (uint8_t *)mapping + before, .mapping = mapping, .mapped = length};
    return true;
}

ls_rc ls_bytes_take(ls_bytes *bytes, size_t count, const char *what, ls_content *out, size_t *got) {
    *out = (ls_content){0};
    bool whole = bytes->offset <= bytes->file_size && count <= bytes->file_size - bytes->offset;
    if (!bytes->gzip && bytes->fixed && count > 0 && whole && map_content(bytes, count, out)) {
        /* a place that cannot be read is met here, where there are words for it */
        return ls_bytes_read(bytes, NULL, count, got);
    }
    out->data = ls_calloc(count, 1, what);
    return out->data == NULL ? LS_DEVICE_FAILED : ls_bytes_read(bytes, out->data, count, got);
}

void ls_content_release(ls_content *content) {
    if (content->mapping != NULL) {
        (void)munmap(content->mapping, content->mapped); /* fails for a wrong address only */
    } else {
        free(content->data);
    }
    *content = (ls_content){0};
}

uint64_t ls_bytes_offset(const ls_bytes *bytes) {
    return bytes->offset;
}

uint64_t ls_bytes_capacity(const ls_bytes *bytes) {
    if (!bytes->gzip) {
        return bytes->file_size;
    }
    return bytes->file_size > UINT64_MAX / DEFLATE_RATIO ? UINT64_MAX : bytes->file_size * DEFLATE_RATIO;
}
