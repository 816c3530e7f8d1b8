/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world in words, so that it can be had again; and the smallest one of a kind: fewer faults,
 * nodes, ranks, less time, as long as the same promise is broken.
 */
#include "world_shrink.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
    const char *name;
    size_t at, size;
} fields[] = {
#define FIELD(name, field)                                                                \
    {                                                                                     \
        name, offsetof(struct world_opts, field), sizeof(((struct world_opts *)0)->field) \
    }
    FIELD("seed", seed),
    FIELD("nodes", nodes),
    FIELD("ranks", ranks_per_node),
    FIELD("copies", copies),
    FIELD("min-copies", min_copies),
    FIELD("keep", keep),
    FIELD("racks", racks),
    FIELD("pods", pods),
    FIELD("degree", degree),
    FIELD("heartbeat", heartbeat_ms),
    FIELD("dead", dead_ms),
    FIELD("connect", connect_ms),
    FIELD("save", save_ms),
    FIELD("recover", recover_ms),
    FIELD("every", every_ms),
    FIELD("room", room),
    FIELD("data", data_max),
    FIELD("strong", strong),
    FIELD("some", some),
    FIELD("work", work_ms),
    FIELD("count", faults),
    FIELD("run", run_ms),
    FIELD("left-out", left_out),
#undef FIELD
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static uint64_t field_get(const struct world_opts *o, size_t i)
{
    const char *at = (const char *)o + fields[i].at;
    uint64_t v = 0;
    uint32_t half;

    if (fields[i].size == sizeof(v))
        memcpy(&v, at, sizeof(v));
    else
        v = (memcpy(&half, at, sizeof(half)), half);
    return v;
}

static void field_set(struct world_opts *o, size_t i, uint64_t v)
{
    char *at = (char *)o + fields[i].at;
    uint32_t half = (uint32_t)v;

    if (fields[i].size == sizeof(v))
        memcpy(at, &v, sizeof(v));
    else
        memcpy(at, &half, sizeof(half));
}

/* ---- Words
 * ------------------------------------------------------------------------------------------ */

void world_kinds_text(uint64_t kinds, char *out, size_t len)
{
    size_t n = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < WORLD_KINDS_COUNT && n < len; i++)
        if (kinds >> i & 1)
            n += (size_t)snprintf(out + n, len - n, "%s%s", n ? "+" : "", world_kind_name[i].name);
}

int world_kinds_parse(const char *text, uint64_t *out)
{
    uint64_t kinds = 0;

    while (*text) {
        size_t n = strcspn(text, "+,");
        uint32_t i = 0;

        while (i < WORLD_KINDS_COUNT && (strlen(world_kind_name[i].name) != n ||
                                                strncmp(world_kind_name[i].name, text, n) != 0))
            i++;
        if (n == 3 && !strncmp(text, "all", n))
            kinds = WORLD_ALL;
        else if (i == WORLD_KINDS_COUNT)
            return -1;
        else
            kinds |= UINT64_C(1) << i;
        text += n + (text[n] != '\0');
    }
    *out = kinds;
    return kinds ? 0 : -1;
}

void world_text(const struct world_opts *o, char *out, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < FIELDS && n < len; i++)
        if (field_get(o, i))
            n += (size_t)snprintf(
                    out + n, len - n, "%s=%" PRIu64 ",", fields[i].name, field_get(o, i));
    if (n < len)
        n += (size_t)snprintf(out + n, len - n, "faults=");
    if (n < len)
        world_kinds_text(o->kinds, out + n, len - n);
}

int world_parse(const char *text, struct world_opts *o)
{
    while (*text) {
        size_t n = strcspn(text, "="), end = strcspn(text, ","), i = 0;
        char kinds[400] = "";

        if (end - n < 2 || text[n] != '=')
            return -1;
        while (i < FIELDS && (strlen(fields[i].name) != n || strncmp(fields[i].name, text, n) != 0))
            i++;
        if (i < FIELDS)
            field_set(o, i, strtoull(text + n + 1, NULL, 10));
        else if (n == 6 && !strncmp(text, "faults", n))
            snprintf(kinds, sizeof(kinds), "%.*s", (int)(end - n - 1), text + n + 1);
        else
            return -1;
        if (kinds[0] && world_kinds_parse(kinds, &o->kinds))
            return -1;
        text += end + (text[end] != '\0');
    }
    return o->nodes < 2 || !o->ranks_per_node || o->copies >= o->nodes || !o->copies ? -1 : 0;
}

/* ---- Less
 * ------------------------------------------------------------------------------------------- */

/* 1: both sentences begin with the same promise. */
static int same_promise(const char *a, const char *b)
{
    return strncmp(a, b, a[0] == 'P' ? 2 : 12) == 0;
}

/* In a process of its own, since it may die of it. */
static int still_breaks(const struct world_opts *o, const char *why)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        static struct world w;

        world_open(&w, o);
        world_run(&w);
        _exit(w.why[0] && same_promise(w.why, why) ? 3 : 0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == 3;
}

static int try(struct world_opts *o, const struct world_opts *less, const char *why)
{
    if (!memcmp(o, less, sizeof(*o)) || !still_breaks(less, why))
        return 0;
    *o = *less;
    return 1;
}

static int fewer_faults(struct world_opts *o, const char *why)
{
    struct world_opts less;
    int any = 0;

    for (uint32_t i = 0; i < WORLD_KINDS_COUNT; i++) {
        less = *o;
        less.kinds &= ~(UINT64_C(1) << i);
        any |= less.kinds && try(o, &less, why);
    }
    for (uint32_t i = 0; i < 24; i++) {
        less = *o;
        less.left_out |= UINT64_C(1) << i;
        any |= try(o, &less, why);
    }
    return any;
}

/* From the least up to half of what it is, and one less than that. */
static int less_of(struct world_opts *o, uint32_t *field, uint32_t least, const char *why)
{
    uint32_t was = *field, tries[4] = { least, was / 4, was / 2, was - 1 };
    size_t at = (size_t)((char *)field - (char *)o);

    for (int i = 0; i < 4; i++) {
        struct world_opts less = *o;

        if (tries[i] < least || tries[i] >= was)
            continue;
        memcpy((char *)&less + at, &tries[i], sizeof(tries[i]));
        if (less.copies >= less.nodes)
            continue;
        if (less.min_copies > less.copies)
            less.min_copies = less.copies;
        if (try(o, &less, why))
            return 1;
    }
    return 0;
}

static int smaller(struct world_opts *o, const char *why)
{
    struct world_opts less = *o;
    int any = less_of(o, &o->nodes, 2, why);

    any |= less_of(o, &o->ranks_per_node, 1, why);
    any |= less_of(o, &o->copies, 1, why);
    any |= less_of(o, &o->keep, 1, why);
    any |= less_of(o, &o->data_max, 64, why);
    any |= less_of(o, &o->racks, 0, why);
    any |= less_of(o, &o->work_ms, 0, why);
    less = *o;
    less.run_ms = o->run_ms * 3 / 4;
    any |= try(o, &less, why);
    return any;
}

void world_shrink(struct world_opts *o, const char *why)
{
    int rounds = 6;

    while (rounds-- && (fewer_faults(o, why) | smaller(o, why)))
        ;
}
