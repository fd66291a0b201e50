/* The report: an HTML page with plots from a result file (docs/result-format.md). Reads nothing but that file. */
#ifndef LS_REPORTS_REPORT_H
#define LS_REPORTS_REPORT_H

#include <stddef.h>

#include "gpu/base/error.h"

/* Reads the JSON Lines at results_path and writes into output_dir (made if missing) index.html and for each plot .svg, .png,
 * .dat and .gp. The absolute path of index.html goes to index_path. One line and LS_BAD_INPUT for a result file that is
 * missing, empty, or has a broken row (file and line number), a folder that cannot be written, gnuplot missing; then no
 * file of an earlier report has been touched. */
ls_rc ls_report_generate(const char *results_path, const char *output_dir, char *index_path, size_t size);

#endif
