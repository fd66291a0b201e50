/* The tool of tests/cuda/range_tool.c. */
#ifndef LS_TESTS_CUDA_RANGE_TOOL_H
#define LS_TESTS_CUDA_RANGE_TOOL_H

enum { RANGE_TOOL_TEXT = 1024 };

/* Exported by the tool: "DOMAIN: name(name 1())". */
const char *range_tool_text(void);

#endif
