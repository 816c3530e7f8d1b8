/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bootstrap over TCP, and a rank that meets by itself. The others meet at their engines
 * (client/join/meet.c).
 */
#include "tcp.h"

#include "bootstrap.h"
#include "client/base/clock.h"
#include "core/format/rows.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One rank's gather. */
struct gather {
    struct hth_buf *table;
    int over, code;
    char text[HEARTH_ERROR_TEXT];
};

static void gather_table(void *self, uint32_t round, struct hth_buf *packed)
{
    struct hth_tcp *t = self;

    (void)round;
    if (!t->gather)
        return;
    hth_buf_put(t->gather->table);
    t->gather->table = hth_buf_get(packed);
}

static void gather_done(void *self, uint32_t rank, uint32_t round, int code, const char *text)
{
    struct hth_tcp *t = self;

    (void)rank, (void)round;
    if (!t->gather)
        return;
    t->gather->over = 1;
    t->gather->code = code;
    snprintf(t->gather->text, sizeof(t->gather->text), "%s", text);
}

static int gather_open(struct hth_tcp *t, struct hearth_error *err)
{
    const struct hth_meeting_events events = {
        .self = t, .table = gather_table, .done = gather_done
    };
    const struct hth_meeting_opts opts = { .events = &events };
    int rc = t->meeting ? HEARTH_OK : hth_meeting_open(&opts, &t->meeting, err);

    if (!rc)
        hth_meeting_keys(t->meeting, &t->keys);
    return rc;
}

static void gather_turn(struct hth_tcp *t)
{
    struct pollfd p = { .fd = hth_meeting_fd(t->meeting), .events = POLLIN };
    uint64_t now = hth_mono_ms(), due = hth_meeting_due_ms(t->meeting);
    uint64_t ms = due > now ? due - now : 0;

    (void)poll(&p, 1, ms < 1000 ? (int)ms : 1000);
    hth_meeting_turn(t->meeting, hth_mono_ms());
}

/* Once, with the addresses that the place has now. */
static int gather_once(
        struct hth_tcp *t, struct hth_meeting_rank *me, uint64_t until, struct hearth_error *err)
{
    struct hth_meeting_place place;
    uint64_t now;
    int rc = hth_tcp_resolve(t, until, &place, err);

    if (rc)
        return rc;
    now = hth_mono_ms();
    me->place = &place;
    me->left_ms = until > now ? (uint32_t)(until - now) : 0;
    t->gather->over = 0;
    rc = hth_meeting_come(t->meeting, me, now, err);
    while (!rc && !t->gather->over)
        gather_turn(t);
    me->place = NULL;
    return rc ? rc : t->gather->code;
}

int hth_tcp_meet(struct hth_tcp *t, uint64_t until, const void *mine, size_t len, void *all,
        struct hearth_error *err)
{
    struct hth_meeting_rank me = { .rank = t->rank,
        .world = t->world,
        .deadline_ms = t->deadline_ms,
        .row = mine,
        .len = (uint32_t)len };
    struct gather g = { 0 };
    int rc;

    if (t->world == 1) {
        memcpy(all, mine, len);
        return HEARTH_OK;
    }
    memcpy(me.token, t->token, sizeof(me.token));
    if ((rc = gather_open(t, err)))
        return rc;
    t->gather = &g;
    while ((rc = gather_once(t, &me, until, err)) == HEARTH_ENOENT)
        continue; /* the meeting ends it in time */
    t->gather = NULL;
    if (!rc && (!g.table || hth_rows_unpack(all, len, t->world, g.table->at, g.table->len)))
        rc = hth_fail(err, HEARTH_EPROTO, 0, "the ranks' table is not valid");
    else if (rc && g.over)
        hth_fail(err, rc, 0, "%s", g.text);
    hth_buf_put(g.table);
    return rc;
}

void hth_tcp_rest(struct hth_tcp *t)
{
    hth_meeting_close(t->meeting);
    t->meeting = NULL;
}

static int tcp_allgather(
        void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    struct hth_tcp *t = self;

    return hth_tcp_meet(t, hth_until_ms(t->deadline_ms), mine, len, all, err);
}

struct hth_tcp *hth_tcp_of(const struct hearth_bootstrap *bootstrap)
{
    return bootstrap->allgather == tcp_allgather ? bootstrap->self : NULL;
}

void hth_bootstrap_tell(
        const struct hearth_bootstrap *bootstrap, const struct hth_meeting_keys *keys)
{
    struct hth_tcp *t = hth_tcp_of(bootstrap);

    if (t)
        t->keys = *keys;
}

void hth_bootstrap_tree_from(const struct hearth_bootstrap *bootstrap, uint64_t bytes)
{
    struct hth_tcp *t = hth_tcp_of(bootstrap);

    if (t)
        t->tree_from = bytes;
}

static void tcp_close(struct hearth_bootstrap *bootstrap)
{
    struct hth_tcp *t = bootstrap->self;

    hth_tcp_rest(t);
    hth_wipe(&t->keys, sizeof(t->keys));
    free(t);
}

int hearth_bootstrap_tcp(const char *host_name, uint16_t port, uint32_t rank, uint32_t world,
        uint32_t deadline_ms, struct hearth_bootstrap **out, struct hearth_error *err)
{
    struct hth_tcp *t;
    int rc;

    if ((rc = hth_bootstrap_check(rank, world, deadline_ms, out, err)))
        return rc;
    if (!host_name || !host_name[0] || strlen(host_name) >= sizeof(t->host) || !port)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the meeting place needs the host name or address of rank 0 and a port");
    if ((rc = hth_auth_init(err)))
        return rc;
    t = calloc(1, sizeof(*t));
    if (!t)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a bootstrap");
    t->base = (struct hearth_bootstrap){
        .struct_size = sizeof(t->base), .allgather = tcp_allgather, .close = tcp_close, .self = t
    };
    snprintf(t->host, sizeof(t->host), "%s", host_name);
    t->port = port;
    t->rank = rank;
    t->world = world;
    t->deadline_ms = deadline_ms;
    hth_random_bytes(t->token, sizeof(t->token));
    *out = &t->base;
    return HEARTH_OK;
}

int hearth_bootstrap_tcp_from_env(uint32_t deadline_ms, struct hearth_bootstrap **out,
        uint32_t *out_rank, uint32_t *out_world, struct hearth_error *err)
{
    const char *where = getenv("MASTER_ADDR");
    uint32_t rank, world, port;
    int rc;

    if (!where || !where[0])
        return hth_fail(err, HEARTH_EINVAL, 0,
                "MASTER_ADDR is not set: start with torchrun, or set MASTER_ADDR, MASTER_PORT, "
                "RANK and WORLD_SIZE");
    rc = hth_env_number("HEARTH_PORT", 65535, &port, err);
    if (rc == HEARTH_ENOENT && !(rc = hth_env_number("MASTER_PORT", 65534, &port, err)))
        port++;
    if (rc || (rc = hth_env_number("RANK", UINT32_MAX - 1, &rank, err)) ||
            (rc = hth_env_number("WORLD_SIZE", 1u << 20, &world, err)))
        return rc == HEARTH_ENOENT
                       ? hth_while(err, HEARTH_EINVAL, "bootstrap from torchrun's variables")
                       : rc;
    rc = hearth_bootstrap_tcp(where, (uint16_t)port, rank, world, deadline_ms, out, err);
    if (!rc && out_rank)
        *out_rank = rank;
    if (!rc && out_world)
        *out_world = world;
    return rc;
}
