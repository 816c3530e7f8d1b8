/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan: the memory, the network and the seconds that a job will need on each node, and whether this
 * node has the memory. Slots are counted by core/store/need.h, as the engine reserves them.
 */
#include "cli.h"

#include "client/link/mapped.h"
#include "core/base/open.h"
#include "core/store/need.h"
#include "core/store/room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES_MAX   (UINT64_C(1) << 60)
#define SLOTS_MAX   (UINT64_C(1) << 24)
#define COPIES_MAX  8u
#define KEEP_MAX    16u
#define OBJECTS_MAX HTH_SIZES_OBJECTS

struct plan {
    uint64_t ranks, nodes, copies, keep, objects; /* ranks: of the job */
    uint64_t bytes;                               /* that a rank saves */
    uint64_t common, extra;                       /* common objects; lease and spare bytes */
    double link, interval;                        /* Gbit/s, s; 0: not given */
    uint64_t here;                                /* ranks of a node, at most */
    uint64_t slot, slots, pool, mount;            /* the largest slot; bytes */
    uint64_t save, resume, rest;                  /* bytes of a node: of a save; of a recovery */
    struct hth_room room;
    int looked, fits;
};

/* ---- Numbers --------------------------------------------------------------------------------- */

static int plan_refuse(const char *option, const char *text, const char *what)
{
    complain_usage("plan: --%s is '%.40s': %s", option, text, what);
    return HEARTH_EINVAL;
}

/* A number and what follows it. */
static int plan_number(const char *text, double *out, const char **out_unit)
{
    char *end;

    errno = 0;
    *out = strtod(text, &end);
    *out_unit = end;
    return end == text || errno || !(*out >= 0) || *out > 1e30 ? HEARTH_EINVAL : HEARTH_OK;
}

static double plan_power(double base, ptrdiff_t times)
{
    double n = 1;

    while (times-- > 0)
        n *= base;
    return n;
}

static uint64_t plan_ceil(double n)
{
    uint64_t whole = (uint64_t)n;

    return whole + ((double)whole < n);
}

/* K, M, G, T with or without iB: powers of 1024; with B: of 1000. */
static int plan_bytes(const char *option, const char *text, uint64_t *out)
{
    static const char letters[] = "KMGT";
    const char *unit, *letter;
    double n;

    if (!text)
        return HEARTH_OK;
    if (plan_number(text, &n, &unit))
        return plan_refuse(option, text, "bytes, as 10GiB or 20GB");
    letter = *unit ? strchr(letters, *unit) : NULL;
    if (letter)
        n *= plan_power(!strcmp(unit + 1, "B") ? 1000 : 1024, letter - letters + 1);
    if ((letter && unit[1] && strcmp(unit + 1, "B") != 0 && strcmp(unit + 1, "iB") != 0) ||
            (!letter && *unit && strcmp(unit, "B") != 0) || n > (double)BYTES_MAX)
        return plan_refuse(option, text, "bytes, as 10GiB or 20GB");
    *out = plan_ceil(n);
    return HEARTH_OK;
}

static int plan_count(
        const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    char what[64], *end;

    if (!text)
        return HEARTH_OK;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && !*end && !errno && *out >= least && *out <= most)
        return HEARTH_OK;
    snprintf(what, sizeof(what), "a number from %" PRIu64 " to %" PRIu64, least, most);
    return plan_refuse(option, text, what);
}

static int plan_real(const char *option, const char *text, double *out)
{
    const char *unit;

    if (!text || (!plan_number(text, out, &unit) && !*unit && *out > 0))
        return HEARTH_OK;
    return plan_refuse(option, text, "a number above 0");
}

/* Bytes of a parameter: bfloat16 weights, float32 master weights, and the optimizer's float32. */
static const struct {
    const char *name;
    double bytes;
} optimizers[] = {
    { "adam", 2 + 4 + 8 },
    { "adamw", 2 + 4 + 8 },
    { "momentum", 2 + 4 + 4 },
    { "sgd", 2 + 4 },
    { "none", 2 },
};

static int plan_each(const struct args *a, double *out)
{
    const char *name = a->plan.optimizer ? a->plan.optimizer : optimizers[0].name;

    if (a->plan.parameter_bytes)
        return plan_real("parameter-bytes", a->plan.parameter_bytes, out);
    for (size_t i = 0; i < sizeof(optimizers) / sizeof(optimizers[0]); i++)
        if (!strcmp(optimizers[i].name, name)) {
            *out = optimizers[i].bytes;
            return HEARTH_OK;
        }
    return plan_refuse(
            "optimizer", name, "adam, adamw, momentum, sgd or none; or give --parameter-bytes");
}

/* Parameters, as 70e9 or 70B; all that a parameter has is sharded over all ranks. */
static int plan_model(const struct args *a, struct plan *p)
{
    static const char letters[] = "KMBT";
    const char *unit, *letter;
    double n, each;

    if (plan_number(a->plan.model, &n, &unit))
        return plan_refuse("model", a->plan.model, "parameters, as 70e9 or 70B");
    letter = *unit ? strchr(letters, *unit) : NULL;
    if ((*unit && !letter) || (letter && unit[1]))
        return plan_refuse("model", a->plan.model, "parameters, as 70e9 or 70B");
    if (plan_each(a, &each))
        return HEARTH_EINVAL;
    n *= plan_power(1000, letter ? letter - letters + 1 : 0) * each / (double)p->ranks;
    if (n > (double)BYTES_MAX)
        return plan_refuse("model", a->plan.model, "more than any machine has");
    p->bytes = plan_ceil(n);
    return HEARTH_OK;
}

static int plan_read(const struct args *a, struct plan *p)
{
    int rc;

    *p = (struct plan){ .nodes = 1, .copies = 1, .keep = 1, .objects = 1 };
    if (!a->plan.ranks || !a->plan.bytes == !a->plan.model) {
        complain_usage("plan: give --ranks, and either --bytes or --model");
        return HEARTH_EINVAL;
    }
    rc = plan_count("ranks", a->plan.ranks, 1, UINT32_MAX, &p->ranks);
    rc = rc ? rc : plan_count("nodes", a->plan.nodes, 1, p->ranks, &p->nodes);
    rc = rc ? rc : plan_count("copies", a->plan.copies, 1, COPIES_MAX, &p->copies);
    rc = rc ? rc : plan_count("keep", a->plan.keep, 1, KEEP_MAX, &p->keep);
    rc = rc ? rc : plan_count("objects", a->plan.objects, 1, OBJECTS_MAX, &p->objects);
    rc = rc ? rc : plan_bytes("bytes", a->plan.bytes, &p->bytes);
    rc = rc ? rc : plan_bytes("common", a->plan.common, &p->common);
    rc = rc ? rc : plan_bytes("extra", a->plan.extra, &p->extra);
    rc = rc ? rc : plan_real("link", a->plan.link, &p->link);
    rc = rc ? rc : plan_real("interval", a->plan.interval, &p->interval);
    rc = rc || !a->plan.model ? rc : plan_model(a, p);
    if (!rc && !p->bytes)
        return plan_refuse("bytes", a->plan.bytes ? a->plan.bytes : "0", "more than 0");
    p->copies = p->copies < p->nodes ? p->copies : p->nodes - 1;
    return rc;
}

/* ---- Memory and network ---------------------------------------------------------------------- */

static uint64_t plan_times(uint64_t a, uint64_t b)
{
    return b && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

/* Each node has the ranks of the fullest one, and holds as many copies as it gives away. */
static int plan_pool(struct plan *p, struct hearth_error *err)
{
    uint64_t each = hth_file_bytes((p->bytes + p->objects - 1) / p->objects), *file;
    const struct hth_sizes part = { .bytes = { each }, .count = { (uint32_t)p->objects } };
    uint64_t places = p->here * (1 + p->copies);
    size_t count = 0;

    p->slots = places * p->objects * (p->keep + 1);
    if (p->slots > SLOTS_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0, "a node has no room for so many objects");
    file = calloc(p->slots + HTH_NEED_READERS + HTH_NEED_MOVING, sizeof(*file));
    if (!file)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %" PRIu64 " sizes", p->slots);
    for (uint64_t i = 0; i < places; i++)
        count += hth_need_part(&part, (uint32_t)p->keep, file + count);
    count += hth_need_readers(p->extra, each, file + count);
    count += hth_need_moving((uint32_t)p->nodes, each, file + count);
    p->slots = count;
    p->slot = hth_need_slot(each);
    for (size_t i = 0; i < count; i++)
        p->pool += hth_need_slot(file[i]);
    free(file);
    return p->pool < BYTES_MAX ? HEARTH_OK
                               : hth_fail(err, HEARTH_EINVAL, 0, "more than any machine has");
}

/* Small files may have half of what the mount keeps free beside slots. */
static void plan_mount(struct plan *p)
{
    uint64_t common = plan_times(p->common, p->keep + 1);

    p->mount = hth_need_mount(p->pool);
    if (common > hth_need_reserve(p->mount) / 2)
        p->mount = common < BYTES_MAX ? hth_need_mount(p->pool + common) : BYTES_MAX;
}

static void plan_network(struct plan *p)
{
    uint64_t own = plan_times(p->here, p->bytes);

    p->save = plan_times(own, p->copies);
    p->resume = p->copies ? own : 0;
    p->rest = p->save + plan_times(own, (p->keep - 1) * (1 + p->copies)) * (p->copies > 0);
}

static int plan_look(const char *root, struct plan *p, struct hearth_error *err)
{
    int dir = hth_open_named(root, O_RDONLY | O_DIRECTORY), rc;

    if (dir < 0)
        return hth_fail(err, errno == ENOENT ? HEARTH_ENOENT : HEARTH_EIO, errno, "%.200s: %s",
                root, strerrordesc_np(errno));
    rc = hth_room_look(dir, NULL, &p->room, err);
    close(dir);
    if (rc)
        return rc;
    p->looked = 1;
    p->fits = !hth_room_fits(&p->room, p->mount - hth_need_reserve(p->mount),
            hth_need_reserve(p->room.size), root, NULL);
    return HEARTH_OK;
}

static double plan_seconds(const struct plan *p, uint64_t bytes)
{
    return (double)bytes * 8 / (p->link * 1e9);
}

/* Copies of a save are not there before the next one begins. */
static int plan_is_late(const struct plan *p)
{
    return p->link > 0 && p->interval > 0 && plan_seconds(p, p->save) > p->interval;
}

/* ---- What it prints -------------------------------------------------------------------------- */

static void plan_say(const char *what, uint64_t bytes, const char *fmt, ...) HTH_PRINTF(3, 4);
static void plan_say(const char *what, uint64_t bytes, const char *fmt, ...)
{
    char text[32], more[120];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(more, sizeof(more), fmt, ap);
    va_end(ap);
    human(text, bytes);
    say("%-9s %10s  %s\n", what, text, more);
}

static void plan_say_time(const struct plan *p, const char *what, uint64_t bytes, const char *text)
{
    if (p->link > 0)
        plan_say(what, bytes, "%s: %.1f s at %g Gbit/s", text, plan_seconds(p, bytes), p->link);
    else
        plan_say(what, bytes, "%s", text);
}

static void plan_say_room(const struct plan *p)
{
    char mount[32], size[32], cgroup[32], memory[32];

    human(mount, p->room.mount);
    human(size, p->room.size);
    human(cgroup, p->room.cgroup);
    human(memory, p->room.memory);
    say("here      tmpfs %s, of which free %s; cgroup %s; memory %s\n",
            p->room.size == HTH_ROOM_NONE ? "without limit" : size,
            p->room.mount == HTH_ROOM_NONE ? "all" : mount,
            p->room.cgroup == HTH_ROOM_NONE ? "without limit" : cgroup,
            p->room.memory == HTH_ROOM_NONE ? "not known" : memory);
    human(mount, p->mount);
    human(size, hth_room_least(&p->room, hth_need_reserve(p->room.size)));
    if (p->fits)
        say("          it fits\n");
    else
        say("          DOES NOT FIT: %s are needed, and there is room for %s\n", mount, size);
}

static void plan_print(const struct plan *p)
{
    plan_say("saved", p->bytes, "by each rank, of at most %" PRIu64 " on a node", p->here);
    plan_say("slots", p->pool, "%" PRIu64 " of at most %" PRIu64 " MiB, on each node", p->slots,
            p->slot >> 20);
    plan_say("tmpfs", p->mount, "mount -o size=%" PRIu64 "m", (p->mount + 1048575) >> 20);
    if (!p->copies)
        say("One node alone: no copies, so no loss of a node is survived.\n");
    plan_say_time(p, "save", p->save, "to and from a node for copies");
    plan_say_time(p, "recovery", p->resume, "to a new node before ranks resume");
    plan_say_time(p, "", p->rest, "and then its copies and older saves");
    if (p->link > 0 && p->interval > 0)
        say("The link is busy for %.1f %% of each interval of %g s%s.\n",
                100 * plan_seconds(p, p->save) / p->interval, p->interval,
                plan_is_late(p) ? ": TOO SHORT" : "");
    if (p->link > 0 && p->interval > 0 && !plan_is_late(p))
        say("A loss of a node takes back at most about %.1f s of training.\n",
                p->interval + plan_seconds(p, p->save));
    if (p->looked)
        plan_say_room(p);
}

static json_t *plan_limit(uint64_t bytes)
{
    return bytes == HTH_ROOM_NONE ? json_null() : json_unsigned(bytes);
}

static json_t *plan_moved(const struct plan *p, uint64_t bytes)
{
    json_t *out = json_object();

    json_object_set_new(out, "bytes", json_unsigned(bytes));
    json_object_set_new(
            out, "seconds", p->link > 0 ? json_real(plan_seconds(p, bytes)) : json_null());
    return out;
}

static json_t *plan_here(const struct plan *p)
{
    json_t *out;

    if (!p->looked)
        return json_null();
    out = json_object();
    json_object_set_new(out, "fits", json_boolean(p->fits));
    json_object_set_new(out, "tmpfs_size", plan_limit(p->room.size));
    json_object_set_new(out, "tmpfs_free", plan_limit(p->room.mount));
    json_object_set_new(out, "cgroup_left", plan_limit(p->room.cgroup));
    json_object_set_new(out, "memory_left", plan_limit(p->room.memory));
    return out;
}

static json_t *plan_json(const struct plan *p)
{
    json_t *out = json_object();
    int both = p->link > 0 && p->interval > 0;

    json_object_set_new(out, "ranks_of_node", json_unsigned(p->here));
    json_object_set_new(out, "rank_bytes", json_unsigned(p->bytes));
    json_object_set_new(out, "slot_bytes", json_unsigned(p->slot));
    json_object_set_new(out, "slots", json_unsigned(p->slots));
    json_object_set_new(out, "pool_bytes", json_unsigned(p->pool));
    json_object_set_new(out, "mount_bytes", json_unsigned(p->mount));
    json_object_set_new(out, "save", plan_moved(p, p->save));
    json_object_set_new(out, "resume", plan_moved(p, p->resume));
    json_object_set_new(out, "rest", plan_moved(p, p->rest));
    json_object_set_new(
            out, "busy", both ? json_real(plan_seconds(p, p->save) / p->interval) : json_null());
    json_object_set_new(out, "here", plan_here(p));
    return out;
}

enum status run_plan(const struct args *a)
{
    struct hearth_error err = { 0 };
    enum status status = STATUS_OK;
    struct plan p;
    int rc;

    if (plan_read(a, &p))
        return STATUS_USAGE;
    p.here = (p.ranks + p.nodes - 1) / p.nodes;
    rc = plan_pool(&p, &err);
    if (rc)
        return complain(&err);
    plan_mount(&p);
    plan_network(&p);
    if (a->root && a->root[0] && plan_look(a->root, &p, &err))
        return complain(&err);
    if (a->json)
        status = print_json(plan_json(&p));
    else
        plan_print(&p);
    return status ? status : (p.looked && !p.fits) || plan_is_late(&p) ? STATUS_WRONG : STATUS_OK;
}
