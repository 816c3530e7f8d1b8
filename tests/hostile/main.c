/* SPDX-License-Identifier: Apache-2.0 */
/* hostile --backend B [--frames N] [--seed S] [--first F] [--dials]: see README.md. */
#include "hostile.h"

#include <getopt.h>
#include <stdarg.h>
#include <string.h>

uint64_t hostile_slice;
static struct hostile_opts opts = { .backend = "liar", .seed = 1, .frames = 2000 };

void hostile_failed(const char *file, int line, const char *format, ...)
{
    va_list ap;

    fprintf(stderr, "%s:%d: ", file, line);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fprintf(stderr, "\nagain: hostile --backend %s --seed %llu --first %llu --frames 1%s\n",
            opts.backend, (unsigned long long)opts.seed, (unsigned long long)hostile_slice * SLICE,
            opts.dials ? " --dials" : "");
    exit(1);
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t n = strtoull(text, &end, 10);

    if (!*text || *end) {
        fprintf(stderr, "hostile: '%s' is no number\n", text);
        exit(2);
    }
    return n;
}

int main(int argc, char **argv)
{
    static const struct option known[] = { { "backend", 1, NULL, 'b' }, { "frames", 1, NULL, 'n' },
        { "seed", 1, NULL, 's' }, { "first", 1, NULL, 'f' }, { "trace", 0, NULL, 't' },
        { "dials", 0, NULL, 'd' }, { NULL, 0, NULL, 0 } };
    int c;

    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (c == 'b')
            opts.backend = optarg;
        else if (c == 'n')
            opts.frames = number(optarg);
        else if (c == 's')
            opts.seed = number(optarg);
        else if (c == 'f')
            opts.first = number(optarg);
        else if (c == 't')
            opts.loud = 1;
        else if (c == 'd')
            opts.dials = 1;
        else
            return 2;
    }
    if (strcmp(opts.backend, "liar") == 0)
        hostile_lies(&opts);
    else
        hostile_wires(&opts);
    return 0;
}
