/* The raw container (docs/data-formats.md): a data set of any shape in one file, training and test samples, bytes or floats,
 * with labels or float targets. Everything is little-endian. */
#ifndef LS_REFERENCE_DATA_RAW_FORMAT_H
#define LS_REFERENCE_DATA_RAW_FORMAT_H

#include "reference/dataset.h"

/* Reads and checks the file; out: the split. sizes_only: the header alone, against the size of the file. Cut, damaged,
 * absurd or too long: one line and LS_BAD_INPUT. */
ls_rc ls_raw_read(const char *path, ls_split split, bool sizes_only, ls_dataset *out);

enum { LS_RAW_HEADER_BYTES = 64, LS_RAW_VERSION = 1 };
#define LS_RAW_MAGIC "LSDATA\r\n"

/* The header's fields as numbers. */
typedef struct ls_raw_header {
    uint32_t version;
    uint32_t element; /* 1: bytes, 2: float32 */
    uint32_t answer;  /* 1: int32 labels, 2: float32 targets */
    uint32_t answers; /* classes, or targets a sample */
    uint32_t channels, height, width;
    uint64_t count[2]; /* samples of training and test */
} ls_raw_header;

void ls_raw_header_pack(const ls_raw_header *header, unsigned char bytes[LS_RAW_HEADER_BYTES]);
void ls_raw_header_unpack(const unsigned char bytes[LS_RAW_HEADER_BYTES], ls_raw_header *out);

#endif
