/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages: a few receive buffers with the library, more send buffers of ours, one slab a
 * connection. A send is copied into the ring and handed on in order; the ring is the back-pressure.
 * The last byte of a send is its kind: a message, or words about grants (granted.c).
 */
#include "ofi.h"

#include <stdlib.h>
#include <string.h>

#define WRITABLE (HTH_OFI_KEPT / 4) /* free slots before on_writable() */

enum { IS_MESSAGE, IS_WORDS };

static unsigned char *message_receive_at(const struct hth_ofi_conn *c, uint32_t index)
{
    return c->bytes + (size_t)index * HTH_OFI_PLACE;
}

static unsigned char *message_send_at(const struct hth_ofi_conn *c, uint32_t index)
{
    return message_receive_at(c, HTH_OFI_TAKEN + index);
}

static void *message_desc(const struct hth_ofi_conn *c)
{
    return c->mr ? fi_mr_desc(c->mr) : NULL;
}

int hth_ofi_message_init(struct hth_ofi_conn *c)
{
    size_t len = (size_t)(HTH_OFI_TAKEN + HTH_OFI_KEPT) * HTH_OFI_PLACE;
    int rc = 0;

    c->bytes = malloc(len);
    if (!c->bytes)
        return -FI_ENOMEM;
    if (c->link.o->mr_mode & FI_MR_LOCAL)
        rc = hth_ofi_mr_open(c->link.o, c->bytes, len, FI_SEND | FI_RECV, &c->mr);
    if (rc)
        return rc;
    rc = hth_ofi_contexts_init(c);
    if (rc)
        return rc;
    c->unposted = (UINT64_C(1) << HTH_OFI_TAKEN) - 1;
    hth_ofi_receives_post(c);
    return 0;
}

void hth_ofi_message_fini(struct hth_ofi_conn *c)
{
    if (c->mr)
        fi_close(&c->mr->fid);
    free(c->bytes);
}

/* Called before the connection stands, too, because the peer may send at once. */
void hth_ofi_receives_post(struct hth_ofi_conn *c)
{
    while (c->unposted) {
        uint32_t i = (uint32_t)__builtin_ctzll(c->unposted);
        ssize_t rc = -FI_EAGAIN;

        if (hth_ofi_conn_has_room(c, HTH_OFI_RECV))
            rc = fi_recv(c->ep, message_receive_at(c, i), HTH_MESSAGE_MAX + 1, message_desc(c),
                    FI_ADDR_UNSPEC, hth_ofi_context(c, HTH_OFI_RECV, i));

        if (rc) {
            hth_ofi_conn_refused(c, rc);
            return;
        }
        hth_ofi_conn_hold(c, HTH_OFI_RECV);
        c->unposted &= c->unposted - 1;
    }
}

void hth_ofi_received(struct hth_ofi_conn *c, uint32_t index, size_t len)
{
    const unsigned char *bytes = message_receive_at(c, index);
    struct hth_ofi *o = c->link.o;

    hth_ofi_conn_up(c); /* the message may overtake the event */
    if (c->link.state == HTH_OFI_DOOMED || c->link.code == HEARTH_ECANCELED)
        return;
    if (len > HTH_MESSAGE_MAX + 1) {
        hth_ofi_conn_leave(c, HEARTH_EPROTO, "a message is too long");
        return;
    }
    if (!len || bytes[len - 1] > IS_WORDS ||
            (bytes[len - 1] == IS_WORDS && hth_ofi_words_heard(o, c->link.id, bytes, len - 1))) {
        hth_ofi_conn_leave(c, HEARTH_EPROTO, "the peer does not keep to the protocol");
        return;
    }
    if (bytes[len - 1] == IS_MESSAGE)
        o->events.on_message(o->events.self, c->link.id, bytes, len - 1);
    c->unposted |= UINT64_C(1) << index;
    if (c->link.state == HTH_OFI_UP)
        hth_ofi_receives_post(c);
}

void hth_ofi_sends_post(struct hth_ofi_conn *c)
{
    while (c->post != c->head) {
        uint32_t i = c->post % HTH_OFI_KEPT;
        ssize_t rc = -FI_EAGAIN;

        if (hth_ofi_conn_has_room(c, HTH_OFI_SEND))
            rc = fi_send(c->ep, message_send_at(c, i), c->send[i].len, message_desc(c),
                    FI_ADDR_UNSPEC, hth_ofi_context(c, HTH_OFI_SEND, i));

        if (rc) {
            hth_ofi_conn_refused(c, rc);
            return;
        }
        hth_ofi_conn_hold(c, HTH_OFI_SEND);
        c->post++;
    }
}

/* The bytes are in the ring already. */
static void message_put(struct hth_ofi_conn *c, size_t len, unsigned char what)
{
    uint32_t i = c->head % HTH_OFI_KEPT;

    message_send_at(c, i)[len] = what;
    c->send[i] = (struct hth_ofi_send){ .len = (uint16_t)(len + 1) };
    c->head++;
}

int hth_ofi_send(struct hth_transport *t, hth_conn conn, const void *bytes, size_t len)
{
    struct hth_ofi_conn *c = hth_ofi_conn_get(hth_ofi_of(t), conn);
    uint32_t i;

    if (len > HTH_MESSAGE_MAX || (len && !bytes))
        return HEARTH_EINVAL;
    if (!c || c->link.state != HTH_OFI_UP)
        return HEARTH_EPEER;
    if (c->blocked || c->head - c->tail == HTH_OFI_KEPT) {
        c->blocked = 1;
        return HEARTH_EBUSY;
    }
    i = c->head % HTH_OFI_KEPT;
    if (len)
        memcpy(message_send_at(c, i), bytes, len);
    message_put(c, len, IS_MESSAGE);
    hth_ofi_sends_post(c);
    return HEARTH_OK;
}

void hth_ofi_words_post(struct hth_ofi_conn *c)
{
    while (c->link.state == HTH_OFI_UP && c->link.grants.words &&
            c->head - c->tail < HTH_OFI_KEPT) {
        unsigned char *at = message_send_at(c, c->head % HTH_OFI_KEPT);

        message_put(c, hth_ofi_words_take(&c->link.grants, at, HTH_MESSAGE_MAX), IS_WORDS);
        hth_ofi_sends_post(c);
    }
}

void hth_ofi_sent(struct hth_ofi_conn *c, uint32_t index)
{
    struct hth_ofi *o = c->link.o;

    c->send[index].done = 1;
    while (c->tail != c->post && c->send[c->tail % HTH_OFI_KEPT].done)
        c->tail++;
    hth_ofi_words_post(c);
    if (!c->blocked || c->link.state != HTH_OFI_UP || HTH_OFI_KEPT - (c->head - c->tail) < WRITABLE)
        return;
    c->blocked = 0;
    o->events.on_writable(o->events.self, c->link.id);
}
