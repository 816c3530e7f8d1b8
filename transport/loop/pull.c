/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and pulls of the net inside one process. A pull waits until it is due and then copies
 * straight from the owner's region, if the grant still holds; what goes wrong is decided when
 * it is accepted and happens when it is due.
 *
 * A grant's descriptor: u32 owner's node | u32 slot | u64 generation.
 */
#include "loop_parts.h"

#include "core/base/bytes.h"
#include "core/base/crc.h"
#include <errno.h>
#include <stdlib.h>

#define DESC_LEN 16u
#define PULL_MAX 64u /* of one connection at once */

struct hth_region {
    unsigned char *base;
    uint64_t len;
    uint32_t pulls; /* into it */
    struct hth_region *next;
};

struct loop_grant {
    uint64_t generation; /* 0: free */
    struct hth_region *region;
    uint64_t off, len;
    hth_conn conn;
};

int hth_loop_reg(struct hth_transport *t, void *base, uint64_t len, struct hth_region **out,
        struct hearth_error *err)
{
    struct loop *loop = (struct loop *)t;
    struct hth_loop_net *net = loop->net;
    int rc = net->on_reg ? net->on_reg(net->on_reg_arg, loop->place->node, base, len) : 0;
    struct hth_region *region = rc ? NULL : calloc(1, sizeof(*region));

    if (rc)
        return hth_fail(err, rc, ENOMEM, "the script refuses: %s", hearth_strerror(rc));
    if (!region)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a region");
    region->base = base;
    region->len = len;
    pthread_mutex_lock(&loop->lock);
    region->next = loop->regions;
    loop->regions = region;
    pthread_mutex_unlock(&loop->lock);
    *out = region;
    return HEARTH_OK;
}

int hth_loop_dereg(struct hth_transport *t, struct hth_region *region)
{
    struct loop *loop = (struct loop *)t;
    struct hth_region **at = &loop->regions;

    if (region->pulls)
        return HEARTH_EBUSY;
    for (uint32_t i = 0; i < loop->grant_cap; i++)
        if (loop->grants[i].region == region)
            loop->grants[i] = (struct loop_grant){ 0 };
    pthread_mutex_lock(&loop->lock);
    while (*at != region)
        at = &(*at)->next;
    *at = region->next;
    pthread_mutex_unlock(&loop->lock);
    free(region);
    return HEARTH_OK;
}

static struct loop_grant *loop_grant_new(struct loop *loop)
{
    uint32_t cap = loop->grant_cap ? 2 * loop->grant_cap : 8, i = 0;
    struct loop_grant *grants;

    while (i < loop->grant_cap && loop->grants[i].generation)
        i++;
    if (i < loop->grant_cap)
        return &loop->grants[i];
    grants = realloc(loop->grants, cap * sizeof(*grants));
    if (!grants)
        return NULL;
    memset(grants + i, 0, (cap - i) * sizeof(*grants));
    loop->grants = grants;
    loop->grant_cap = cap;
    return &grants[i];
}

int hth_loop_grant(struct hth_transport *t, struct hth_region *region, uint64_t off, uint64_t len,
        hth_conn conn, unsigned char *out_desc, uint32_t *out_len, struct hearth_error *err)
{
    struct loop *loop = (struct loop *)t;
    struct end *end = hth_loop_end_find(loop, conn);
    struct loop_grant *grant;

    if (!end || end->state != END_UP)
        return hth_fail(err, HEARTH_EPEER, 0, "no such connection to grant to");
    if (off > region->len || len > region->len - off)
        return hth_fail(err, HEARTH_EINVAL, 0, "the grant is larger than its region");
    grant = loop_grant_new(loop);
    if (!grant)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a grant");
    *grant = (struct loop_grant){ ++loop->net->seq, region, off, len, conn };
    hth_put32(out_desc, loop->place->node);
    hth_put32(out_desc + 4, (uint32_t)(grant - loop->grants));
    hth_put64(out_desc + 8, grant->generation);
    *out_len = DESC_LEN;
    return HEARTH_OK;
}

/* The owner's grant that the descriptor names, or NULL. */
static struct loop_grant *loop_grant_of(struct loop *owner, const unsigned char *desc, uint32_t len)
{
    uint32_t slot;

    if (len != DESC_LEN || hth_get32(desc) != owner->place->node)
        return NULL;
    slot = hth_get32(desc + 4);
    if (slot >= owner->grant_cap || !owner->grants[slot].generation ||
            owner->grants[slot].generation != hth_get64(desc + 8))
        return NULL;
    return &owner->grants[slot];
}

void hth_loop_revoke(struct hth_transport *t, const unsigned char *desc, uint32_t len)
{
    struct loop *loop = (struct loop *)t;
    struct loop_grant *grant = loop_grant_of(loop, desc, len);

    if (grant && !loop->net->no_revoke)
        *grant = (struct loop_grant){ 0 };
}

int hth_loop_pull(struct hth_transport *t, hth_conn conn, const unsigned char *desc,
        uint32_t desc_len, uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len,
        uint64_t cookie)
{
    struct loop *loop = (struct loop *)t;
    struct end *end = hth_loop_end_find(loop, conn);
    struct hth_loop_verdict v;
    struct loop_pull *pull;

    if (desc_len > HTH_DESC_MAX || doff > region->len || len > region->len - doff)
        return HEARTH_EINVAL;
    if (!end || end->state != END_UP)
        return HEARTH_EPEER;
    if (end->pull_count >= PULL_MAX)
        return HEARTH_EBUSY;
    pull = calloc(1, sizeof(*pull));
    if (!pull || !(pull->event = hth_loop_event_new(EVENT_PULL, 0))) {
        free(pull);
        return HEARTH_ENOMEM;
    }
    v = hth_loop_ask(loop->net, HTH_LOOP_PULL, loop->place->node, end->peer->node, desc, len);
    pull->end = end;
    pull->cookie = cookie;
    pull->fault = v.fault;
    pull->region = region;
    pull->roff = roff;
    pull->doff = doff;
    pull->len = len;
    pull->desc_len = desc_len;
    memcpy(pull->desc, desc, desc_len);
    pull->next = end->pulls;
    end->pulls = pull;
    end->pull_count++;
    region->pulls++;
    pull->event->pull = pull;
    if (v.fault == HTH_LOOP_STALL) {
        free(pull->event);
        pull->event = NULL;
        return HEARTH_OK;
    }
    hth_loop_post(loop->net, pull->event, end->peer, loop->place,
            hth_loop_now(loop->net) + loop->net->latency_ms + v.delay_ms);
    return HEARTH_OK;
}

/* CRC32C's generator: what differs by it has the same CRC. */
static const unsigned char polynomial[] = { 0xf1, 0x76, 0xec, 0x05, 0x01 };

static int loop_pull_copy(const struct loop_pull *pull, struct loop *owner)
{
    const struct end *end = pull->end;
    struct loop_grant *grant = loop_grant_of(owner, pull->desc, pull->desc_len);
    unsigned char *to = pull->region->base + pull->doff, *from;
    uint64_t len = pull->fault == HTH_LOOP_CUT ? pull->len / 2 : pull->len;

    if (!grant || grant->conn != end->peer_conn)
        return HEARTH_EDENIED;
    if (pull->roff > grant->len || pull->len > grant->len - pull->roff)
        return HEARTH_EDENIED;
    from = grant->region->base + grant->off + pull->roff;
    if (len && to != from) /* else two engines of a simulator keep it once */
        memmove(to, from, len);
    if (len && pull->fault == HTH_LOOP_FLIP)
        to[len / 2] ^= 0x10;
    for (size_t i = 0; pull->fault == HTH_LOOP_FORGE && i < sizeof(polynomial) && len >= 10; i++)
        to[len / 2 + i] ^= polynomial[i];
    return HEARTH_OK;
}

static void loop_pull_unlink(struct end *end, struct loop_pull *pull)
{
    struct loop_pull **at = &end->pulls;

    while (*at != pull)
        at = &(*at)->next;
    *at = pull->next;
    end->pull_count--;
    pull->region->pulls--;
    pull->end = NULL;
}

void hth_loop_pull_due(struct loop *loop, struct event *e)
{
    struct loop_pull *pull = e->pull;
    struct end *end = pull->end;
    struct loop *owner;
    uint64_t cookie = pull->cookie;
    int rc = HEARTH_EPEER;
    uint32_t crc;

    pull->event = NULL;
    if (!end) {
        free(pull);
        return;
    }
    owner = end->peer->loop;
    if (end->state != END_UP || !hth_loop_end_find(owner, end->peer_conn))
        return; /* the DOWN of its end completes it */
    if (pull->fault != HTH_LOOP_DROP)
        rc = loop_pull_copy(pull, owner);
    if (pull->fault == HTH_LOOP_DROP || pull->fault == HTH_LOOP_CUT) {
        hth_loop_break(loop, end, HEARTH_EPEER);
        return;
    }
    if (!rc && loop->net->sums) {
        crc = hth_crc32c(pull->region->base + pull->doff, pull->len);
        loop->pulled = &crc;
    }
    loop_pull_unlink(end, pull);
    free(pull);
    loop->events.on_pull(loop->events.self, cookie, rc);
    loop->pulled = NULL;
}

int hth_loop_pulled_crc(struct hth_transport *t, uint32_t *out)
{
    const struct loop *loop = (struct loop *)t;

    if (loop->pulled)
        *out = *loop->pulled;
    return loop->pulled != NULL;
}

void hth_loop_pulls_end(struct loop *loop, struct end *end, int code)
{
    struct loop_pull *pull;

    for (uint32_t i = 0; i < loop->grant_cap; i++)
        if (loop->grants[i].conn == end->conn)
            loop->grants[i] = (struct loop_grant){ 0 };
    while ((pull = end->pulls)) {
        uint64_t cookie = pull->cookie;

        loop_pull_unlink(end, pull);
        if (!pull->event)
            free(pull); /* one with an event is freed with that */
        loop->events.on_pull(loop->events.self, cookie, code);
    }
}

void hth_loop_memory_free(struct loop *loop)
{
    struct hth_region *region;

    while ((region = loop->regions)) {
        loop->regions = region->next;
        free(region);
    }
    free(loop->grants);
}
