/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint goes on with another number of ranks: each reads the boxes it wants of what others
 * have saved, wherever they lie.
 *
 *     4 ranks, 2 machines ─► 2 ranks ─► 1 rank, 1 machine ─► 8 ranks, 2 machines ─► a machine lost
 */
#include "damage.h"
#include "deeds.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#define MIB   (UINT64_C(1) << 20)

#define TURNS 3 /* of six ways to cut: as saved, and two others */

static void save(struct party *p, uint64_t step)
{
    party_all(p, put, step, 0, 0);
    party_all(p, do_wait, step, HEARTH_PROTECTED, 15000);
}

static void recover(struct party *p, uint64_t step)
{
    for (uint32_t r = 0; r < p->ranks; r++)
        party_tell(p, r, do_recover, 0, 0, 0);
    for (uint32_t r = 0; r < p->ranks; r++) {
        struct answer a = party_hear(p, r, 30000);

        CHECK(a.rc == 0, "rank %u: %s", r, a.err.text);
        CHECK(a.v[0] == step, "rank %u recovered step %u, and %u was due", r, (unsigned)a.v[0],
                (unsigned)step);
    }
}

/* New ranks, on this many machines; the engines of others end. */
static void world(struct party *p, uint32_t ranks, uint32_t nodes)
{
    party_kill_ranks(p);
    for (uint32_t k = nodes; k < p->nodes; k++)
        party_kill_engine(p, k);
    p->nodes = nodes;
    p->ranks = ranks;
    p->opts.world = ranks;
    p->opts.allow_degraded = nodes == 1;
    party_start(p);
}

static void start(struct party *p, uint32_t nodes, uint32_t ranks, size_t bytes)
{
    party_open(p, nodes, ranks, 768);
    p->bytes = bytes;
    party_start(p);
    recover(p, 0);
    save(p, 1);
}

static void worlds(struct party *p)
{
    static const struct {
        uint32_t ranks, nodes;
    } next[] = { { 2, 2 }, { 1, 1 }, { 8, 2 }, { 3, 2 } };
    uint32_t by = 4;
    uint64_t step = 1;

    for (size_t i = 0; i < sizeof(next) / sizeof(next[0]); i++) {
        world(p, next[i].ranks, next[i].nodes);
        recover(p, step);
        for (uint64_t turn = 0; turn < TURNS; turn++)
            party_all(p, get, step, turn * 2 + i % 2, by);
        save(p, ++step);
        by = next[i].ranks;
    }
    party_kill_ranks(p);
    party_lose_node(p, 0);
    party_start(p);
    recover(p, step);
    party_all(p, get, step, 1, by);
}

static void another_world(void)
{
    static struct party p;

    start(&p, 2, 4, MIB);
    worlds(&p);
}

static void held_view(void)
{
    static struct party p;

    start(&p, 2, 2, 4 * MIB);
    world(&p, 2, 2);
    recover(&p, 1);
    party_all(&p, view_open, 0, 1, 0);
    for (uint64_t step = 2; step <= 6; step++)
        save(&p, step);
    party_all(&p, view_check, 1, 0, 0);
    save(&p, 7);
}

/* Reads from another machine go on while five saves push the step out. They get its bytes until it
 * is freed there, and an error from then on: never others' bytes. */
static void held_pull(void)
{
    struct answer a;
    static struct party p;

    start(&p, 4, 4, 12 * MIB);
    world(&p, 4, 4);
    recover(&p, 1);
    a = party_ask(&p, 0, reader_start, 1, 0, 0);
    CHECK(a.rc == 0, "%s", a.err.text);
    nap_ms(50);
    for (uint32_t k = 0; k < 4; k++) { /* whoever is pulling or sending: it stands for a while */
        kill(party_engine(&p, k), SIGSTOP);
        nap_ms(200);
        kill(party_engine(&p, k), SIGCONT);
        nap_ms(50);
    }
    for (uint64_t step = 2; step <= 6; step++)
        save(&p, step);
    a = party_ask(&p, 0, reader_end, 0, 0, 0);
    CHECK(a.rc <= 0 && a.rc != HEARTH_ECORRUPT, "%s", a.err.text);
    CHECK(a.v[0] > 0, "nothing was read: %s", a.err.text);
    save(&p, 7);
}

/* A copy that is near is as good as any only if it is right: here it is not, and no rank or engine
 * has read it since the ranks were started. */
static void spoil(const char *path, void *arg)
{
    const char *name = strrchr(path, '/') + 1;

    if (strcmp(name, "__1__0_src1.distcp") != 0)
        return;
    damage_flip(path, 4096 + 9 * (off_t)MIB);
    ++*(int *)arg;
}

static void rotten_copy(void)
{
    struct answer a[2];
    int found = 0;
    static struct party p;

    start(&p, 2, 2, 24 * MIB);
    party_kill_ranks(&p);
    party_find(p.root[0], spoil, &found);
    CHECK(found == 1, "%d copies of rank 1's object are on machine 0", found);
    party_start(&p);
    party_tell(&p, 0, recover_and_read, 1, 1, 0);
    party_tell(&p, 1, recover_and_read, 1, 0, 0);
    for (uint32_t r = 0; r < 2; r++)
        a[r] = party_hear(&p, r, 30000);
    CHECK(a[0].rc == 0, "%s", a[0].err.text);
    CHECK(a[1].rc == 0, "%s", a[1].err.text);
    save(&p, 2);
}

/* The machines are others than before: ranks sit elsewhere, and one machine of three is gone. */
static void other_seats(void)
{
    static struct party p;
    char root[sizeof(p.root[0])], name[sizeof(p.name[0])];

    start(&p, 3, 6, 2 * MIB);
    party_kill_ranks(&p);
    memcpy(root, p.root[0], sizeof(root));
    memcpy(name, p.name[0], sizeof(name));
    memcpy(p.root[0], p.root[2], sizeof(root));
    memcpy(p.name[0], p.name[2], sizeof(name));
    memcpy(p.root[2], root, sizeof(root));
    memcpy(p.name[2], name, sizeof(name));
    world(&p, 4, 2);
    recover(&p, 1);
    for (uint64_t turn = 0; turn < TURNS; turn++)
        party_all(&p, get, 1, turn, 6);
    save(&p, 2);
    world(&p, 5, 2);
    recover(&p, 2);
    party_all(&p, get, 2, 2, 4);
}

/* A machine is lost after the recovery and before all is read: the other holder gives the rest. */
static void lost_holder(void)
{
    static struct party p;
    struct answer a;

    start(&p, 4, 4, 8 * MIB);
    world(&p, 4, 4);
    recover(&p, 1);
    party_lose_node(&p, 3);
    for (uint32_t r = 0; r < 3; r++)
        for (uint32_t owner = 0; owner < 4; owner++) {
            a = party_ask(&p, r, whole, 1, owner, 0);
            CHECK(a.rc == 0, "rank %u reads the piece of rank %u: %s", r, owner, a.err.text);
        }
    party_restart(&p);
    recover(&p, 1);
    party_all(&p, get, 1, 4, 4);
}

/* Sizes are announced, so slots are made for what each node owes, and a world of fewer nodes
 * owes more: the objects of ranks that are no more. Grown again, the node that was away has
 * what it had. */
static void announce(const struct party *p, struct me *me)
{
    static uint64_t bytes;

    bytes = 3 * p->bytes;
    me->opts.object_bytes = &bytes;
    me->opts.object_count = 1;
}

static void shrink_and_grow(void)
{
    static struct party p;
    uint32_t by = 8;
    uint64_t step = 2;

    party_open(&p, 4, 8, 768);
    p.bytes = 2 * MIB;
    p.adjust = announce;
    party_start(&p);
    recover(&p, 0);
    save(&p, 1);
    save(&p, 2);
    for (int turn = 0; turn < 2; turn++) {
        world(&p, 6, 3);
        recover(&p, step);
        party_all(&p, get, step, 1, by);
        party_all(&p, done_reading, 0, 0, 0);
        save(&p, ++step);
        save(&p, ++step);
        world(&p, 8, 4);
        recover(&p, step);
        party_all(&p, get, step, 2, 6);
        party_all(&p, done_reading, 0, 0, 0);
        save(&p, ++step);
        save(&p, ++step);
        by = 8;
    }
}

#define CASE(name) { #name, name },

int main(int argc, char **argv)
{
    static const struct party_case cases[] = {
        /* clang-format off */
    CASE(another_world)
    CASE(held_view)
    CASE(held_pull)
    CASE(rotten_copy)
    CASE(other_seats)
    CASE(lost_holder)
    CASE(shrink_and_grow)
        /* clang-format on */
        { NULL, NULL },
    };

    return party_main(argc, argv, cases);
}
