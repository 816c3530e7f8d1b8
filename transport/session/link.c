/* SPDX-License-Identifier: Apache-2.0 */
/* One connection of a session: made, freed, and messages out, each with its mac. */
#include "session_parts.h"

#include <stdlib.h>

struct link *hth_link_new(struct hth_session *s, hth_conn conn, enum link_state state)
{
    struct link *link = calloc(1, sizeof(*link));

    if (!link || hth_map_put(&s->conns, conn, link)) {
        free(link);
        return NULL;
    }
    link->conn = conn;
    link->state = state;
    link->dialled = state == LINK_DIALLING;
    link->node = HTH_NODE_NONE;
    link->deadline_ms = hth_session_now(s) + s->opts.hello_ms;
    hth_session_expect(s, link->deadline_ms);
    link->prev = s->links_last;
    *(link->prev ? &link->prev->next : &s->links) = link;
    s->links_last = link;
    return link;
}

const unsigned char *hth_link_key(const struct hth_session *s, const struct link *link)
{
    return hth_key_of(s->opts.key, link->key_id);
}

int hth_links_are_full(const struct hth_session *s)
{
    uint32_t standing = 0;

    if (s->conns.len < s->opts.links_max)
        return 0;
    for (const struct link *l = s->links; l; l = l->next)
        standing += !hth_link_is_stranger(l);
    return standing >= s->opts.links_max;
}

void hth_link_free(struct hth_session *s, struct link *link)
{
    hth_map_take(&s->conns, link->conn);
    *(link->prev ? &link->prev->next : &s->links) = link->next;
    *(link->next ? &link->next->prev : &s->links_last) = link->prev;
    hth_wipe(link->key_out, sizeof(link->key_out));
    hth_wipe(link->key_in, sizeof(link->key_in));
    free(link);
}

int hth_link_send(
        struct hth_session *s, struct link *link, uint16_t type, const void *body, size_t len)
{
    const unsigned char *key = link->state == LINK_OPEN ? link->key_out : hth_link_key(s, link);
    unsigned char out[HTH_MESSAGE_MAX];
    struct hth_frame frame = {
        .version = link->state == LINK_OPEN ? link->version : HTH_VERSION_LOW,
        .type = type,
        .body_len = (uint32_t)len,
        .epoch = s->epoch && !link->outside ? s->epoch->epoch : 0,
        .nonce = s->epoch && !link->outside ? s->epoch->nonce : 0,
        .seq = link->seq_out + 1,
        .body = body,
    };
    int rc;

    if (!key)
        return HEARTH_EAUTH;
    rc = s->transport->ops->send(s->transport, link->conn, out, hth_frame_encode(&frame, key, out));
    if (!rc) {
        link->seq_out++;
        link->sent_ms = hth_session_now(s);
        if (type >= HTH_MSG_UP)
            link->used_ms = link->sent_ms;
    }
    return rc;
}
