/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a job that cannot be opened: every rank gets the reason soon, and goes on when the job
 * can be opened. One case each. */
#include "party.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define MIB         ((uint64_t)1 << 20)
#define SOON_MS     10000 /* the deadlines are twice that */
#define MACHINE_MIB 64

static struct party p;
static const uint64_t room[] = { 2 * MIB }; /* of each rank's save; two copies, two generations */

/* The file that fills a machine's memory. */
static void ballast_path(uint32_t node, char *out, size_t len)
{
    snprintf(out, len, "%s/ballast", p.root[node]);
}

static void fill_up(uint32_t node)
{
    uint64_t bytes = party_free_bytes(&p, node);
    char path[256];
    int fd;

    if (bytes > MACHINE_MIB * MIB)
        party_skip("machines have no memory of their own here");
    ballast_path(node, path, sizeof(path));
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && !posix_fallocate(fd, 0, (off_t)(bytes - 8 * MIB)), "%s cannot be made", path);
    close(fd);
}

static void make_room(uint32_t node)
{
    char path[256];

    ballast_path(node, path, sizeof(path));
    CHECK(!unlink(path), "%s is not there", path);
}

/* The epoch's result for a rank: in open, or else in recover. */
static void do_begin_epoch(struct me *me, const uint64_t arg[3], struct answer *out)
{
    uint64_t from = now_ms();
    int opened = me->h != NULL;

    if (!opened)
        do_open(me, arg, out);
    out->v[1] = out->rc != 0;
    if (!out->rc)
        do_recover(me, (uint64_t[3]){ 0 }, out);
    if (!out->rc && me->ckpt)
        out->v[2] = 1;
    out->v[3] = now_ms() - from;
}

/* Where the sentence about the epoch begins, behind what each rank was doing. */
static const char *reason(const struct answer *a)
{
    const char *at = strstr(a->err.text, "node n");

    return at ? at : a->err.text;
}

static uint16_t port;

/* All ranks get one sentence with `part` in it, and soon. */
static void all_fail(int code, const char *part, const char *part2)
{
    struct answer first = { 0 };

    for (uint32_t r = 0; r < p.ranks; r++)
        party_tell(&p, r, do_begin_epoch, port, 0, 0);
    for (uint32_t r = 0; r < p.ranks; r++) {
        struct answer a = party_hear(&p, r, SOON_MS);

        party_must_fail(&a, code, part, part2);
        if (r == 0)
            first = a;
        CHECK(!strcmp(reason(&a), reason(&first)), "rank 0: %s; rank %u: %s", reason(&first), r,
                reason(&a));
    }
}

static void all_begin(void)
{
    for (uint32_t r = 0; r < p.ranks; r++)
        party_tell(&p, r, do_begin_epoch, port, 0, 0);
    for (uint32_t r = 0; r < p.ranks; r++) {
        struct answer a = party_hear(&p, r, 2 * SOON_MS);

        CHECK(a.rc == 0, "rank %u: %s", r, a.err.text);
    }
    party_save(&p, 1, 1);
    party_save(&p, 2, 2);
    party_recover(&p, 2, 2);
}

static void start(uint32_t nodes, uint32_t ranks)
{
    party_open(&p, nodes, ranks, MACHINE_MIB);
    p.opts.open_ms = p.opts.recover_ms = 2 * SOON_MS;
    p.opts.object_bytes = room;
    p.opts.object_count = 1;
    port = port_keep();
    for (uint32_t r = 0; r < ranks; r++)
        party_start_rank(&p, r);
}

/* ---- no room
 * ------------------------------------------------------------------------------------ */

static void no_room_at(uint32_t nodes, uint32_t node)
{
    char name[16];

    start(nodes, 2 * nodes);
    fill_up(node);
    snprintf(name, sizeof(name), "node n%u", node);
    all_fail(HEARTH_ENOSPC, name, p.root[node]);
    all_fail(HEARTH_ENOSPC, name, p.root[node]); /* it has not become better since */
    make_room(node);
    all_begin();
}

static void no_room_on_the_only_node(void)
{
    no_room_at(1, 0);
}

static void no_room_at_the_coordinator(void)
{
    no_room_at(2, 0);
}

static void no_room_at_another_node(void)
{
    no_room_at(2, 1);
}

/* ---- no placement
 * ------------------------------------------------------------------------------- */

static void more_copies(const struct party *x, struct me *me)
{
    (void)x;
    me->opts.copies = me->opts.min_copies = 2;
}

static void no_placement(void)
{
    start(2, 4);
    party_kill_ranks(&p);
    p.adjust = more_copies;
    for (uint32_t r = 0; r < p.ranks; r++)
        party_start_rank(&p, r);
    for (int i = 0; i < 2; i++) {
        for (uint32_t r = 0; r < p.ranks; r++)
            party_tell(&p, r, do_begin_epoch, port, 0, 0);
        for (uint32_t r = 0; r < p.ranks; r++) {
            struct answer a = party_hear(&p, r, SOON_MS);

            party_must_fail(&a, HEARTH_EINVAL, "allow_degraded", "the job has 2");
            CHECK(a.v[1], "rank %u: open succeeded, and then: %s", r, a.err.text);
        }
    }
    party_kill_ranks(&p);
    p.adjust = NULL;
    port = port_keep();
    for (uint32_t r = 0; r < p.ranks; r++)
        party_start_rank(&p, r);
    all_begin();
}

/* ---- who comes late
 * ----------------------------------------------------------------------------- */

static void do_help(struct me *me, const uint64_t arg[3], struct answer *out)
{
    me->opts.helper = 1;
    me->opts.bootstrap = NULL;
    out->rc = hearth_open(&me->opts, &me->h, &out->err);
    (void)arg;
}

static void a_helper_hears_it(void)
{
    struct party helper;
    struct answer a;

    start(1, 2);
    fill_up(0);
    all_fail(HEARTH_ENOSPC, "node n0", NULL);
    helper = p;
    helper.seat[0] = (struct seat){ 0 };
    party_start_rank(&helper, 0);
    a = party_ask(&helper, 0, do_help, 0, 0, 0);
    party_must_fail(&a, HEARTH_ENOSPC, "node n0", NULL);
    make_room(0);
    all_begin();
    a = party_ask(&helper, 0, do_help, 0, 0, 0);
    CHECK(a.rc == 0, "%s", a.err.text);
}

#define CASE(name) { #name, name },

int main(int argc, char **argv)
{
    static const struct party_case cases[] = { /* clang-format off */
    CASE(no_room_on_the_only_node)
    CASE(no_room_at_the_coordinator)
    CASE(no_room_at_another_node)
    CASE(no_placement)
    CASE(a_helper_hears_it)
        /* clang-format on */
        { NULL, NULL }
    };

    return party_main(argc, argv, cases);
}
