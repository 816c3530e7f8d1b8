/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the script that runs the library's own benchmark. */
#include "bench.h"

#include <stdlib.h>
#include <sys/resource.h>

static double children_s(void)
{
    struct rusage u;

    getrusage(RUSAGE_CHILDREN, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

struct tool_said tool_run(const char *script, const char *backend, uint64_t mib)
{
    struct tool_said said = { 0 };
    char command[600], text[64] = "", *end;
    double before = children_s(), moved;
    FILE *f;

    snprintf(command, sizeof(command), "'%.400s' '%.60s' %llu", script, backend,
            (unsigned long long)mib);
    f = popen(command, "re");
    if (!f)
        return said;
    if (!fgets(text, sizeof(text), f))
        text[0] = '\0';
    pclose(f);
    said.rate = strtod(text, &end);
    moved = strtod(end, NULL);
    if (said.rate > 0 && moved > 0)
        said.cpu_per_gb = (children_s() - before) / moved;
    return said;
}
