/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The puller: keeps pulls from all owners under way, cuts a connection on which no byte comes, as the
 * session does, and judges. Each pull ends once, before its connection; from then on its slot holds a
 * pattern that must stay; and what happens to one owner does not halt the pulls from the others.
 */
#include "slices_parts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINES      256u
#define SLOTS      96u
#define SLOT_BYTES (UINT64_C(128) << 10)
#define AT_ONCE    4u   /* pulls of a connection */
#define STALL_MS   400u /* without a byte, until it is cut */
#define AGAIN_MS   50u  /* until an owner that was lost is dialled again */
#define REDIAL_MS  100u
#define LATE_MS    50u  /* that is waited for what comes too late */
#define ASLEEP_MS  200u /* we did not run ourselves */

enum line_state { LINE_DIALED, LINE_READY, LINE_CUT, LINE_DOWN };

struct line { /* a connection; never used twice */
    hth_conn conn;
    uint32_t owner, under_way;
    enum line_state state;
    uint64_t last_ms, cut_ms; /* 0: we did not cut it */
    struct slices_grant grant;
};

struct source {
    struct slices_offer offer; /* addr_len 0: not known yet */
    struct line *line;         /* NULL: none */
    uint64_t dial_ms;
    uint64_t last_ms; /* its last bytes; 0: none yet */
};

struct slot {
    unsigned char *bytes;
    uint64_t cookie; /* 0: no pull goes into it */
    struct line *line;
    uint64_t off, len;
};

struct puller {
    const struct slices_task *task;
    struct hth_transport *t;
    struct hth_region *region;
    struct line line[LINES];
    uint32_t lines, next_slot;
    struct source source[SLICES_OWNERS];
    struct slot slot[SLOTS];
    uint64_t dice, serial, turn_ms, redial_ms;
    uint64_t asked_ms; /* to end: 0: not yet */
    int ends;
    struct slices_result result;
};

/* ---- the pattern ------------------------------------------------------------------------------ */

static unsigned char guard_of(const struct puller *u, const struct slot *s)
{
    return (unsigned char)(0xa5 ^ (s - u->slot));
}

static void guard_check(const struct puller *u, const struct slot *s, uint64_t from)
{
    const unsigned char *at = s->bytes + from;
    uint64_t len = SLOT_BYTES - from;

    if (len && (*at != guard_of(u, s) || memcmp(at, at + 1, len - 1) != 0))
        slices_fail("slot %u was written %s", (unsigned)(s - u->slot),
                from ? "past the end of its pull" : "after its pull's end");
}

static void guard_check_all(const struct puller *u)
{
    for (const struct slot *s = u->slot; s < u->slot + SLOTS; s++)
        if (!s->cookie)
            guard_check(u, s, 0);
}

/* ---- events ----------------------------------------------------------------------------------- */

static struct line *line_of(struct puller *u, hth_conn conn)
{
    for (struct line *l = u->line; l < u->line + u->lines; l++)
        if (l->conn == conn)
            return l;
    slices_fail("an event of a connection that there never was");
}

static void on_accept(void *self, hth_conn conn)
{
    (void)self, (void)conn;
    slices_fail("nobody dials a puller");
}

static void on_up(void *self, hth_conn conn)
{
    SLICES_MUST(line_of(self, conn)->state == LINE_DIALED);
}

static void on_writable(void *self, hth_conn conn)
{
    SLICES_MUST(line_of(self, conn)->state != LINE_DOWN);
}

static void on_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    struct line *l = line_of(self, conn);

    SLICES_MUST(l->state == LINE_DIALED && len == sizeof(l->grant));
    memcpy(&l->grant, bytes, sizeof(l->grant));
    l->state = LINE_READY;
    l->last_ms = slices_now_ms();
}

static void on_down(void *self, hth_conn conn, int code, const char *detail)
{
    struct puller *u = self;
    struct line *l = line_of(u, conn);
    struct source *from = &u->source[l->owner];
    uint64_t now = slices_now_ms();

    (void)detail;
    if (l->state == LINE_DOWN || l->under_way)
        slices_fail("a connection ended %s", l->under_way ? "before its pulls" : "twice");
    SLICES_MUST(code < 0);
    if (l->cut_ms && now - l->cut_ms > u->result.end_ms)
        u->result.end_ms = now - l->cut_ms;
    l->state = LINE_DOWN;
    if (from->line == l) {
        from->line = NULL;
        from->dial_ms = now + AGAIN_MS;
    }
}

static void on_pull(void *self, uint64_t cookie, int code)
{
    struct puller *u = self;
    struct slot *s = &u->slot[cookie % SLOTS];
    struct line *l = s->line;

    if (s->cookie != cookie)
        slices_fail("a pull ended that had not begun, or a second time");
    SLICES_MUST(l->under_way > 0 && l->state != LINE_DOWN);
    if (code && !l->cut_ms && l->owner != u->task->victim && !u->ends)
        slices_fail("a pull from owner %u, to whom nothing happens, ended with %d", l->owner, code);
    guard_check(u, s, s->len);
    if (!code && !slices_is_filled(s->bytes, s->len, l->owner, s->off))
        slices_fail("wrong bytes of owner %u", l->owner);
    memset(s->bytes, guard_of(u, s), SLOT_BYTES);
    s->cookie = 0;
    l->under_way--;
    u->result.pulls++;
    u->result.failed += code != 0;
    if (!code)
        u->source[l->owner].last_ms = l->last_ms = slices_now_ms();
}

/* ---- connections ------------------------------------------------------------------------------ */

static void source_dial(struct puller *u, struct source *from)
{
    struct line *l = &u->line[u->lines];
    struct hearth_error err = { 0 };

    SLICES_MUST(u->lines < LINES);
    if (u->t->ops->connect(u->t, from->offer.addr, from->offer.addr_len, &l->conn, &err))
        slices_fail("%s", err.text);
    l->owner = (uint32_t)(from - u->source);
    l->state = LINE_DIALED;
    from->line = l;
    u->lines++;
}

static void source_cut(struct puller *u, struct source *from)
{
    struct line *l = from->line;

    l->state = LINE_CUT;
    l->cut_ms = slices_now_ms();
    from->line = NULL;
    from->dial_ms = l->cut_ms + AGAIN_MS;
    u->result.dropped++;
    u->t->ops->drop(u->t, l->conn);
}

/* The owner is there, or again: with another address, while its old connection still ends. */
static void source_take(struct puller *u, const struct slices_offer *offer)
{
    struct source *from = &u->source[offer->owner];

    if (from->line)
        source_cut(u, from);
    from->offer = *offer;
    source_dial(u, from);
}

static void take_offers(struct puller *u)
{
    struct slices_offer offer;

    while (!u->asked_ms && read(u->task->in, &offer, sizeof(offer)) == (ssize_t)sizeof(offer))
        if (offer.owner < SLICES_OWNERS)
            source_take(u, &offer);
        else
            u->asked_ms = slices_now_ms();
}

/* Whoever is well has given bytes since we were asked to end: one that halts is not overlooked. */
static int may_end(const struct puller *u)
{
    if (!u->asked_ms)
        return 0;
    for (uint32_t i = 0; i < SLICES_OWNERS; i++)
        if (i != u->task->victim && u->source[i].last_ms <= u->asked_ms)
            return 0;
    return 1;
}

/* ---- one turn --------------------------------------------------------------------------------- */

/* The slot that has rested longest. */
static struct slot *slot_next(struct puller *u)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *s = &u->slot[u->next_slot++ % SLOTS];

        if (!s->cookie)
            return s;
    }
    return NULL;
}

/* 0: not now. */
static int pull_one(struct puller *u, struct line *l)
{
    struct slot *s = slot_next(u);
    uint64_t len = 8 * (1 + slices_random(&u->dice, SLOT_BYTES / 8));
    uint64_t off = 8 * slices_random(&u->dice, (SLICES_OBJECT - len) / 8 + 1), cookie;
    int rc;

    if (!s)
        return 0;
    guard_check(u, s, 0);
    cookie = ++u->serial * SLOTS + (uint64_t)(s - u->slot);
    rc = u->t->ops->pull(u->t, l->conn, l->grant.desc, l->grant.desc_len, off, u->region,
            (uint64_t)(s - u->slot) * SLOT_BYTES, len, cookie);
    if (rc == HEARTH_EBUSY || rc == HEARTH_EPEER)
        return 0;
    SLICES_MUST(rc == 0);
    if (!l->under_way)
        l->last_ms = slices_now_ms();
    s->cookie = cookie;
    s->line = l;
    s->off = off;
    s->len = len;
    l->under_way++;
    return 1;
}

static void source_turn(struct puller *u, struct source *from, uint64_t now)
{
    struct line *l = from->line;

    if (!l) {
        if (from->offer.addr_len && now >= from->dial_ms && !u->ends)
            source_dial(u, from);
    } else if (l->state == LINE_READY) {
        while (!u->ends && l->under_way < AT_ONCE && pull_one(u, l))
            continue;
        if (l->under_way && now > l->last_ms + STALL_MS)
            source_cut(u, from);
    }
}

static void halt_measure(struct puller *u, uint64_t now)
{
    uint64_t asleep = now - u->turn_ms > ASLEEP_MS ? now - u->turn_ms : 0;

    u->turn_ms = now;
    for (uint32_t i = 0; i < SLICES_OWNERS && !u->ends; i++) {
        struct source *from = &u->source[i];

        if (!from->last_ms || i == u->task->victim)
            continue;
        from->last_ms = from->last_ms + asleep < now ? from->last_ms + asleep : now;
        if (now - from->last_ms > u->result.halt_ms)
            u->result.halt_ms = now - from->last_ms;
    }
    if (u->result.halt_ms > SLICES_HALT_MS)
        slices_fail("pulls from an owner to whom nothing happens stood still");
}

/* How many pulls are under way. */
static uint32_t lines_check(struct puller *u, uint64_t now)
{
    uint32_t under_way = 0;

    for (const struct line *l = u->line; l < u->line + u->lines; l++) {
        under_way += l->under_way;
        if (l->under_way && l->cut_ms && now > l->cut_ms + SLICES_END_MS)
            slices_fail("pulls of a connection that was cut %u ms ago have not ended",
                    (unsigned)(now - l->cut_ms));
    }
    return under_way;
}

static uint32_t turn(struct puller *u)
{
    uint64_t now;

    u->t->ops->progress(u->t);
    take_offers(u);
    now = slices_now_ms();
    if (u->task->redials && !u->ends && now >= u->redial_ms) {
        struct source *from = &u->source[u->task->victim];

        u->redial_ms = now + slices_random(&u->dice, REDIAL_MS);
        if (from->line && from->line->state == LINE_READY) {
            source_cut(u, from);
            source_dial(u, from);
        }
    }
    for (uint32_t i = 0; i < SLICES_OWNERS; i++)
        source_turn(u, &u->source[i], now);
    halt_measure(u, now);
    slices_rest(u->t, 2);
    return lines_check(u, now);
}

/* ---- its life --------------------------------------------------------------------------------- */

static void say(const struct puller *u)
{
    SLICES_MUST(write(u->task->out, &u->result, sizeof(u->result)) == (ssize_t)sizeof(u->result));
}

static int is_ready(const struct puller *u)
{
    for (uint32_t i = 0; i < SLICES_OWNERS; i++)
        if (!u->source[i].last_ms)
            return 0;
    return 1;
}

static void finish(struct puller *u)
{
    uint64_t until;

    while (!u->task->closes && turn(u))
        continue;
    until = slices_now_ms() + LATE_MS;
    while (!u->task->closes && slices_now_ms() < until)
        turn(u);
    guard_check_all(u);
    until = slices_now_ms() + SLICES_END_MS;
    u->t->ops->close(u->t);
    SLICES_MUST(slices_now_ms() < until);
    guard_check_all(u);
    for (const struct line *l = u->line; l < u->line + u->lines; l++)
        SLICES_MUST(l->state == LINE_DOWN && !l->under_way);
}

void slices_puller(const struct slices_task *task)
{
    static struct puller u;
    struct hth_transport_events events = { &u, on_accept, on_up, on_down, on_message, on_writable,
        on_pull };
    unsigned char *bytes = slices_map(SLOTS * SLOT_BYTES);

    u.task = task;
    u.dice = task->seed;
    u.turn_ms = slices_now_ms();
    for (unsigned i = 0; i < SLOTS; i++) {
        u.slot[i].bytes = bytes + i * SLOT_BYTES;
        memset(u.slot[i].bytes, guard_of(&u, &u.slot[i]), SLOT_BYTES);
    }
    fcntl(task->in, F_SETFL, O_NONBLOCK);
    u.t = slices_open(task->fabric, &events);
    SLICES_MUST(u.t->ops->reg(u.t, bytes, SLOTS * SLOT_BYTES, &u.region, NULL) == 0);
    while (!is_ready(&u))
        turn(&u);
    say(&u);
    u.redial_ms = slices_now_ms() + slices_random(&u.dice, REDIAL_MS);
    while (!may_end(&u))
        turn(&u);
    u.ends = 1;
    finish(&u);
    say(&u);
    _exit(0);
}
