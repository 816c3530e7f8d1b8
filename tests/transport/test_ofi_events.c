/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of connected endpoints, over a library made up here: its event queue keeps the events of an
 * endpoint that is closed, and its next endpoint has the same address. libfabric forbids neither.
 */
#include "check.h"

#include "transport/ofi/ofi.h"

#include <string.h>

#define QUEUED 8

struct queued {
    uint32_t event; /* 0: an error */
    struct fid *fid;
};

static struct queued queue[QUEUED];
static int queue_len, ups, downs, down_code;
static hth_conn up_id, down_id;
static struct hth_ofi o;

static void queue_put(uint32_t event, struct fid *fid)
{
    queue[queue_len++] = (struct queued){ event, fid };
}

static void queue_take(void)
{
    memmove(queue, queue + 1, sizeof(queue) - sizeof(queue[0]));
    queue_len--;
}

static ssize_t fake_eq_read(
        struct fid_eq *eq, uint32_t *event, void *buf, size_t len, uint64_t flags)
{
    struct fi_eq_cm_entry entry = { .fid = queue[0].fid };

    (void)eq, (void)len, (void)flags;
    if (!queue_len)
        return -FI_EAGAIN;
    if (!queue[0].event)
        return -FI_EAVAIL;
    *event = queue[0].event;
    memcpy(buf, &entry, sizeof(entry));
    queue_take();
    return sizeof(entry);
}

static ssize_t fake_eq_readerr(struct fid_eq *eq, struct fi_eq_err_entry *out, uint64_t flags)
{
    (void)eq, (void)flags;
    out->fid = queue[0].fid;
    out->err = FI_ECONNREFUSED;
    queue_take();
    return sizeof(*out);
}

static ssize_t fake_cq_read(struct fid_cq *cq, void *buf, size_t count)
{
    (void)cq, (void)buf, (void)count;
    return -FI_EAGAIN;
}

static int fake_close(struct fid *fid)
{
    (void)fid;
    return 0;
}

static int fake_shutdown(struct fid_ep *ep, uint64_t flags)
{
    (void)ep, (void)flags;
    return 0;
}

static const char *fake_strerror(int code)
{
    return strerror(code);
}

static void on_up(void *self, hth_conn conn)
{
    (void)self;
    ups++;
    up_id = conn;
}

static void on_down(void *self, hth_conn conn, int code, const char *detail)
{
    (void)self, (void)detail;
    downs++;
    down_id = conn;
    down_code = code;
}

static uint64_t clock_ms(void *self)
{
    (void)self;
    return 1;
}

static struct fi_ops_eq eq_ops = { .read = fake_eq_read, .readerr = fake_eq_readerr };
static struct fi_ops_cq cq_ops = { .read = fake_cq_read };
static struct fi_ops fid_ops = { .close = fake_close };
static struct fi_ops_cm cm_ops = { .shutdown = fake_shutdown };
static struct fid_eq eq = { .ops = &eq_ops };
static struct fid_cq cq = { .ops = &cq_ops };
static struct fid_ep endpoint[2] = { { .fid.ops = &fid_ops, .cm = &cm_ops },
    { .fid.ops = &fid_ops, .cm = &cm_ops } };
static struct fi_rx_attr rx;
static struct fi_tx_attr tx;
static struct fi_info info = { .rx_attr = &rx, .tx_attr = &tx };
static const struct hth_ofi_lib lib = { .strerror = fake_strerror };

static void start(void)
{
    o = (struct hth_ofi){ .lib = &lib,
        .info = &info,
        .eq = &eq,
        .cq = &cq,
        .wake_fd = -1,
        .connect_ms = 1000,
        .clock = { clock_ms, clock_ms, NULL },
        .events = { .on_up = on_up, .on_accept = on_up, .on_down = on_down } };
    hth_ids_init(&o.conns, 16);
}

static void stop(void)
{
    hth_ids_fini(&o.conns);
}

TestSuite(ofi_events, .init = start, .fini = stop, .timeout = 20);

static struct hth_ofi_conn *conn_new(enum hth_ofi_state state, struct fid_ep *ep)
{
    union hth_addr peer = { .in = { .sin_family = AF_INET } };
    struct hth_ofi_conn *c = hth_ofi_conn_new(&o, state, &peer);

    cr_assert(ne(ptr, c, NULL));
    c->ep = ep;
    c->dialled = c->known = 1;
    return c;
}

static void turns(void)
{
    for (int i = 0; i < 4; i++)
        hth_ofi_progress(&o.base);
}

/* The first connection is dropped with `event` in the queue; the second has its endpoint's
 * address. */
static void event_is_left_behind(uint32_t event)
{
    struct hth_ofi_conn *second;
    hth_conn first;

    first = conn_new(event == FI_CONNECTED ? HTH_OFI_CONNECTING : HTH_OFI_UP, &endpoint[0])->id;
    queue_put(event, &endpoint[0].fid);
    hth_ofi_drop(&o.base, first);
    second = conn_new(event == FI_CONNECTED ? HTH_OFI_CONNECTING : HTH_OFI_UP, &endpoint[0]);
    turns();
    cr_expect(eq(int, downs, 1));
    cr_expect(eq(u64, down_id, first));
    cr_expect(eq(int, down_code, HEARTH_ECANCELED));
    cr_expect(eq(int, ups, 0));
    hth_ofi_drop(&o.base, second->id);
    turns();
}

Test(ofi_events, the_end_of_a_closed_endpoint_ends_no_connection_that_came_after)
{
    event_is_left_behind(FI_SHUTDOWN);
}

Test(ofi_events, the_error_of_a_closed_endpoint_ends_no_connection_that_came_after)
{
    event_is_left_behind(0);
}

Test(ofi_events, the_success_of_a_closed_endpoint_is_no_success_of_what_came_after)
{
    event_is_left_behind(FI_CONNECTED);
}

/* Events of others wait for their turn, in their order, and nobody sleeps meanwhile. */
Test(ofi_events, events_of_other_connections_are_not_lost_with_an_endpoint)
{
    struct hth_ofi_conn *dropped = conn_new(HTH_OFI_UP, &endpoint[0]);
    hth_conn other = conn_new(HTH_OFI_CONNECTING, &endpoint[1])->id;
    uint64_t due;
    int fd;

    queue_put(FI_CONNECTED, &endpoint[1].fid);
    queue_put(FI_SHUTDOWN, &endpoint[0].fid);
    queue_put(FI_SHUTDOWN, &endpoint[1].fid);
    hth_ofi_drop(&o.base, dropped->id);
    cr_expect(eq(int, hth_ofi_arm(&o.base, &fd, &due), 0));
    turns();
    cr_expect(eq(int, ups, 1));
    cr_expect(eq(u64, up_id, other));
    cr_expect(eq(int, downs, 2));
    cr_expect(eq(u64, down_id, other));
    cr_expect(eq(int, down_code, HEARTH_EPEER));
}
