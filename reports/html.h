/* The report's page. */
#ifndef LS_REPORTS_HTML_H
#define LS_REPORTS_HTML_H

#include <stdio.h>

#include "reports/rows.h"

/* Writes the whole page; source is the result file's name as shown. */
void ls_html_write(FILE *out, const ls_report_rows *rows, const char *source);

#endif
