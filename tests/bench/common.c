/* SPDX-License-Identifier: Apache-2.0 */
/* Time, medians, rows, and bytes that can be recognised. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static FILE *lines;
static const char *memory_kind = "";
static uint64_t shard_bytes;

void die(const char *format, ...)
{
    va_list ap;

    fputs("bench: ", stderr);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

void flags_take(const struct flag *known, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        const struct flag *f = known;

        while (f->name && strcmp(f->name, argv[i]) != 0)
            f++;
        if (!f->name || i + 1 == argc) {
            fprintf(stderr, "bench: %s: no such option, or it has no value\n", argv[i]);
            exit(2);
        }
        if (f->text)
            *f->text = argv[i + 1];
        else if (f->number)
            *f->number = strtoull(argv[i + 1], NULL, 10);
        else if (f->count)
            *f->count = (unsigned)strtoul(argv[i + 1], NULL, 10);
        else
            f->take(argv[i + 1]);
    }
}

double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void nap_ms(unsigned ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    while (nanosleep(&t, &t) && errno == EINTR)
        continue;
}

const unsigned char bench_key[32] = { 0, 225, 200, 163, 155, 116, 70, 85, 12, 159, 19, 210, 168,
    183, 230, 49, 90, 44, 254, 1, 144, 132, 119, 99, 213, 178, 25, 78, 63, 168, 109, 31 };

struct backend backend_of(const char *name)
{
    const char *colon = name ? strchr(name, ':') : NULL;
    struct backend b = { .transport = "ofi", .provider = colon ? colon + 1 : NULL };
    char *plus;

    if (name)
        snprintf(b.transport, sizeof(b.transport), "%.*s",
                (int)(colon ? colon - name : (ptrdiff_t)strlen(name)), name);
    plus = strchr(b.transport, '+');
    if (plus) {
        if (strcmp(plus, "+key") != 0)
            die("backend %s: TRANSPORT[+key][:PROVIDER]", name);
        *plus = '\0';
        b.keyed = 1;
    }
    b.trusted = strcmp(b.transport, "tcp") != 0;
    return b;
}

void series_add(struct series *s, double value)
{
    if (s->count < ROUNDS_MAX)
        s->value[s->count++] = value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double series_median(const struct series *s)
{
    struct series t = *s;

    if (!t.count)
        return 0;
    qsort(t.value, t.count, sizeof(*t.value), by_value);
    return (t.value[(t.count - 1) / 2] + t.value[t.count / 2]) / 2;
}

/* Of each pair, so that what slows the machine for a while slows both sides of a fraction. */
double series_ratio(const struct series *a, const struct series *b)
{
    struct series t = { .count = 0 };

    for (unsigned i = 0; i < a->count && i < b->count; i++)
        series_add(&t, b->value[i] > 0 ? a->value[i] / b->value[i] : 0);
    return series_median(&t);
}

unsigned series_middle(const struct series *s)
{
    double median = series_median(s), least = -1;
    unsigned found = 0;

    for (unsigned i = 0; i < s->count; i++) {
        double off = s->value[i] > median ? s->value[i] - median : median - s->value[i];

        if (least < 0 || off < least)
            found = i, least = off;
    }
    return found;
}

void rows_open(const char *json_lines, const char *mount, uint64_t bytes)
{
    memory_kind = mount ? mount : "";
    shard_bytes = bytes;
    if (json_lines && !(lines = fopen(json_lines, "ae")))
        die("%s: %s", json_lines, strerror(errno));
}

int row_say(const struct row *row)
{
    double rate = series_median(row->rate), limit = row->limit ? series_median(row->limit) : 0;
    double ratio = row->limit ? series_ratio(row->rate, row->limit) : 0;
    double cpu = row->cpu ? series_ratio(row->cpu, row->limit_cpu) : 0;
    int low = row->want > 0 && ratio<row->want, busy = row->want_cpu> 0 && cpu > row->want_cpu;

    printf("%-44s %8.2f %-5s", row->name, rate, row->unit);
    if (row->limit)
        printf(" %8.2f %-38s %5.2f", limit, row->limit_name, ratio);
    if (row->cpu)
        printf("  CPU %.2f, %.2f s/GB %.2f", series_median(row->cpu), series_median(row->limit_cpu),
                cpu);
    if (row->sealing)
        printf(", sealing %.2f", series_median(row->sealing));
    if (row->want > 0)
        printf("  wanted %.2f%s", row->want, low ? "  LOW" : "");
    if (row->want_cpu > 0)
        printf(", CPU %.2f%s", row->want_cpu, busy ? "  BUSY" : "");
    putchar('\n');
    fflush(stdout);
    if (lines) {
        fprintf(lines,
                "{\"case\": \"%s\", \"memory\": \"%s\", \"bytes\": %" PRIu64
                ", \"median\": %.4f, \"unit\": \"%s\", "
                "\"limit\": %.4f, \"limit_name\": \"%s\", \"ratio\": %.4f, \"wanted\": %.2f, "
                "\"cpu_s_per_gb\": %.4f, \"limit_cpu_s_per_gb\": %.4f, \"cpu_ratio\": %.4f, "
                "\"sealing_cpu_s_per_gb\": %.4f, \"rounds\": %u}\n",
                row->name, memory_kind, shard_bytes, rate, row->unit, limit,
                row->limit_name ? row->limit_name : "", ratio, row->want,
                row->cpu ? series_median(row->cpu) : 0,
                row->limit_cpu ? series_median(row->limit_cpu) : 0, cpu,
                row->sealing ? series_median(row->sealing) : 0, row->rate->count);
        fflush(lines);
    }
    return low || busy;
}

void timeline_say(const char *timeline, const char *lane, const struct span *spans, unsigned count)
{
    if (!lines)
        return;
    fprintf(lines,
            "{\"timeline\": \"%s\", \"lane\": \"%s\", \"memory\": \"%s\", \"bytes\": %" PRIu64
            ", \"phases\": [",
            timeline, lane, memory_kind, shard_bytes);
    for (unsigned i = 0; i < count; i++)
        fprintf(lines, "%s[\"%s\", %.6f, %.6f]", i ? ", " : "", spans[i].name, spans[i].begin_s,
                spans[i].end_s);
    fprintf(lines, "]}\n");
    fflush(lines);
}

static uint64_t word(uint64_t seed, uint64_t i)
{
    return (i + seed) * UINT64_C(0x9e3779b97f4a7c15) ^ seed << 32;
}

void fill(uint64_t *data, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes / 8; i++)
        data[i] = word(seed, i);
}

void check(const uint64_t *data, uint64_t bytes, uint64_t seed)
{
    check_from(data, 0, bytes, seed);
}

void check_from(const uint64_t *data, uint64_t first, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes / 8; i++)
        if (data[i] != word(seed, first + i))
            die("WRONG BYTES at %llu of %llu", (unsigned long long)(8 * i),
                    (unsigned long long)bytes);
}

void *memory(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        die("no memory for %llu bytes", (unsigned long long)bytes);
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 1, bytes);
    return p;
}

/* Under a hypervisor that takes free pages back (free page reporting) each has to be had again from
 * the host, at a tenth of the speed that it is cleared with: for a second or two none is, then. */
void touch(uint64_t bytes)
{
    munmap(memory(bytes), bytes);
}

int file_open(const char *root, const char *name, uint64_t bytes, void **out)
{
    char path[512];
    void *p;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes))
        die("%s: %s", path, strerror(errno));
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        die("%s: %s", path, strerror(errno));
    unlink(path);
    memset(p, 1, bytes);
    *out = p;
    return fd;
}

void *file_memory(const char *root, const char *name, uint64_t bytes)
{
    void *p;

    close(file_open(root, name, bytes, &p));
    return p;
}
