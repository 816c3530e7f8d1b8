/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts that the two kinds of transport share: how one begins and ends, and the states of a
 * connection, be it the library's (conn.c) or made of packets (rdm_conn.c).
 */
#include "ofi.h"

#include <stdio.h>
#include <string.h>

#define CONNECT_MS 5000u

void hth_ofi_init(struct hth_ofi *o, const struct hth_transport_ops *ops,
        const struct hth_transport_opts *opts, const struct hth_transport_events *events)
{
    o->base.ops = ops;
    o->events = *events;
    o->clock = opts->clock;
    o->log = opts->log;
    o->connect_ms = opts->connect_ms ? opts->connect_ms : CONNECT_MS;
    o->due_ms = HTH_NEVER;
    o->epoll_fd = o->wake_fd = -1;
    o->grant_is_read = hth_ofi_grant_is_read;
    o->base.conns_max = hth_ofi_conns_max();
    hth_ids_init(&o->conns, o->base.conns_max);
    pthread_mutex_init(&o->regions_lock, NULL);
}

void hth_ofi_fini(struct hth_ofi *o)
{
    hth_ofi_fabric_close(o);
    hth_ids_fini(&o->conns);
    pthread_mutex_destroy(&o->regions_lock);
}

uint32_t hth_ofi_caps(struct hth_transport *t)
{
    const struct hth_ofi *o = hth_ofi_of(t);
    const char *provider = o->info->fabric_attr->prov_name;
    uint32_t c = 0;

    if (strcmp(provider, "shm") != 0) /* which looks at no key */
        c |= HTH_CAP_READ_ONLY;       /* and the bounds of regions, not of grants */
    if (o->mr_mode & FI_MR_ALLOCATED)
        c |= HTH_CAP_PINS;
    if (strncmp(provider, "verbs", 5) == 0 || strcmp(provider, "cxi") == 0)
        c |= HTH_CAP_ONE_SIDED;
    return c;
}

void hth_ofi_list_push(struct hth_ofi_list *list, struct hth_ofi_link *c)
{
    c->next = NULL;
    if (list->tail)
        list->tail->next = c;
    else
        list->head = c;
    list->tail = c;
    list->count++;
}

void hth_ofi_list_take(struct hth_ofi_list *list, struct hth_ofi_link *c)
{
    struct hth_ofi_list all = *list;
    struct hth_ofi_link *next;

    *list = (struct hth_ofi_list){ NULL, NULL, 0 };
    for (struct hth_ofi_link *i = all.head; i; i = next) {
        next = i->next;
        if (i != c)
            hth_ofi_list_push(list, i);
    }
}

int hth_ofi_link_add(struct hth_ofi *o, struct hth_ofi_link *c, enum hth_ofi_state state)
{
    c->o = o;
    c->state = state;
    c->due_ms = hth_now_ms(&o->clock) + o->connect_ms;
    c->id = hth_ids_put(&o->conns, c);
    return c->id != 0;
}

void hth_ofi_link_up(struct hth_ofi_link *c)
{
    struct hth_ofi *o = c->o;

    c->state = HTH_OFI_UP;
    c->known = 1;
    if (c->dialled)
        o->events.on_up(o->events.self, c->id);
    else
        o->events.on_accept(o->events.self, c->id);
}

void hth_ofi_link_note(struct hth_ofi_link *c, const char *peer, int code, const char *why)
{
    c->code = code;
    snprintf(c->detail, sizeof(c->detail), "%s: %s", peer, why);
}

void hth_ofi_link_stuck(struct hth_ofi_link *c, int stuck)
{
    c->o->stuck += (uint32_t)stuck - (uint32_t)c->stuck;
    c->stuck = stuck;
}

void hth_ofi_link_doom(struct hth_ofi_link *c)
{
    c->state = HTH_OFI_DOOMED;
    hth_ofi_list_push(&c->o->doomed, c);
}

/* Takes the list as it is: a connection that a callback dooms has its turn in the next call. */
static int doomed_finish(struct hth_ofi *o)
{
    struct hth_ofi_link *c = o->doomed.head, *next;
    int n = 0;

    o->doomed = (struct hth_ofi_list){ NULL, NULL, 0 };
    for (; c; c = next, n++) {
        next = c->next;
        hth_ofi_pulls_end(c);
        if (c->known)
            o->events.on_down(o->events.self, c->id, c->code, c->detail);
        hth_ids_drop(&o->conns, c->id);
        hth_ofi_grants_fini(&c->grants);
        o->conn_free(c);
    }
    return n;
}

int hth_ofi_finish(struct hth_ofi *o)
{
    int n = doomed_finish(o);

    while (o->closing && o->doomed.head)
        n += doomed_finish(o);
    return n;
}

int hth_ofi_link_grant(struct hth_transport *t, struct hth_region *region, uint64_t off,
        uint64_t len, hth_conn conn, unsigned char *out_desc, uint32_t *out_len,
        struct hearth_error *err)
{
    struct hth_ofi *o = hth_ofi_of(t);
    const struct hth_ofi_link *c = hth_ofi_link_get(o, conn);

    if (!c || c->state != HTH_OFI_UP)
        return hth_fail(err, HEARTH_EPEER, 0, "the connection to grant memory to is gone");
    return hth_ofi_grant(o, region, off, len, conn, out_desc, out_len, err);
}
