/* SPDX-License-Identifier: Apache-2.0 */
/* What `hearth metrics` prints and `hearth exporter` serves. */
/* For this folder alone. */
#ifndef CLI_METRICS_H
#define CLI_METRICS_H

#include "cli.h"

/* The series of jobs[count] (0: of all of the root), as Prometheus' text format 0.0.4 or as
 * OpenMetrics 1.0. malloc'ed. NULL: err says why: HEARTH_ENOENT there is no such root or job,
 * HEARTH_EIO, HEARTH_ENOMEM. */
char *metrics_text(
        const char *root, char *const *jobs, int count, int openmetrics, struct hearth_error *err);

#endif
