/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of connected endpoints, over a library made up here: its event queue keeps the events of
 * an endpoint that is closed, and its next endpoint has the same address. libfabric forbids
 * neither.
 */
#include "check.h"

#include "transport/ofi/ofi.h"

#include <arpa/inet.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
static struct fi_fabric_attr fabric_attr = { .prov_name = (char[]){ "made-up" } };
static struct fi_info info = { .rx_attr = &rx, .tx_attr = &tx, .fabric_attr = &fabric_attr };
static const struct hth_ofi_lib lib = { .strerror = fake_strerror };

static void start(void)
{
    o = (struct hth_ofi){ .lib = &lib,
        .info = &info,
        .eq = &eq,
        .cq = &cq,
        .queue = 16,
        .wake_fd = -1,
        .connect_ms = 1000,
        .clock = { clock_ms, clock_ms, NULL },
        .events = { .on_up = on_up, .on_accept = on_up, .on_down = on_down } };
    hth_ofi_conn_hooks(&o);
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
    c->link.dialled = c->link.known = 1;
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

    first = conn_new(event == FI_CONNECTED ? HTH_OFI_DIALLED : HTH_OFI_UP, &endpoint[0])->link.id;
    queue_put(event, &endpoint[0].fid);
    hth_ofi_drop(&o.base, first);
    second = conn_new(event == FI_CONNECTED ? HTH_OFI_DIALLED : HTH_OFI_UP, &endpoint[0]);
    turns();
    cr_expect(eq(int, downs, 1));
    cr_expect(eq(u64, down_id, first));
    cr_expect(eq(int, down_code, HEARTH_ECANCELED));
    cr_expect(eq(int, ups, 0));
    hth_ofi_drop(&o.base, second->link.id);
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

/* Events of other connections wait for their turn, in their order, and the thread does not sleep
 * meanwhile. */
Test(ofi_events, events_of_other_connections_are_not_lost_with_an_endpoint)
{
    struct hth_ofi_conn *dropped = conn_new(HTH_OFI_UP, &endpoint[0]);
    hth_conn other = conn_new(HTH_OFI_DIALLED, &endpoint[1])->link.id;
    uint64_t due;
    int fd;

    queue_put(FI_CONNECTED, &endpoint[1].fid);
    queue_put(FI_SHUTDOWN, &endpoint[0].fid);
    queue_put(FI_SHUTDOWN, &endpoint[1].fid);
    hth_ofi_drop(&o.base, dropped->link.id);
    cr_expect(eq(int, hth_ofi_arm(&o.base, &fd, &due), 0));
    turns();
    cr_expect(eq(int, ups, 1));
    cr_expect(eq(u64, up_id, other));
    cr_expect(eq(int, downs, 2));
    cr_expect(eq(u64, down_id, other));
    cr_expect(eq(int, down_code, HEARTH_EPEER));
}

/* ---- a queue of the device, and a request that is not accepted ---- */

#define DEVICE_QUEUE 32767u /* that of Soft-RoCE */

static int fake_eq_open(
        struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **out, void *context)
{
    (void)fabric, (void)attr, (void)context;
    *out = &eq;
    return 0;
}

static int fake_cq_open(
        struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
    (void)domain, (void)context;
    if (attr->size > DEVICE_QUEUE)
        return -FI_EINVAL;
    *out = &cq;
    return 0;
}

static int no_control(struct fid *fid, int command, void *arg)
{
    (void)fid, (void)command, (void)arg;
    return -FI_ENOSYS;
}

/* The open fails only after the queues: this library has no descriptors to wait on. */
Test(ofi_events, a_device_with_shorter_queues_gives_what_it_has)
{
    static struct fi_ops_fabric fabric_ops = { .eq_open = fake_eq_open };
    static struct fi_ops_domain domain_ops = { .cq_open = fake_cq_open };
    static struct fi_ops no_ops = { .control = no_control };
    struct fid_fabric fabric = { .ops = &fabric_ops };
    struct fid_domain domain = { .ops = &domain_ops };
    struct hth_ofi_conn *c = conn_new(HTH_OFI_UP, &endpoint[0]);
    struct hearth_error err = { 0 };

    eq.fid.ops = &no_ops;
    o.fabric = &fabric;
    o.domain = &domain;
    o.cq = NULL;
    must_fail(hth_ofi_listen_open(&o, &err), HEARTH_EIO);
    must_say(err.text, "libfabric provider made-up: its queues have no descriptor: "
                       "Function not implemented");
    cr_assert(eq(ptr, o.cq, &cq));
    cr_assert(eq(u32, o.queue, DEVICE_QUEUE));
    o.held = DEVICE_QUEUE - 1;
    cr_assert(hth_ofi_conn_has_room(c, HTH_OFI_SEND));
    o.held = DEVICE_QUEUE;
    cr_assert(not(hth_ofi_conn_has_room(c, HTH_OFI_SEND)));
    o.held = 0;
    hth_ofi_drop(&o.base, c->link.id);
    turns();
}

static int rejects, accept_rc, endpoint_rc;
static struct fid request;

static int fake_endpoint(
        struct fid_domain *domain, struct fi_info *of, struct fid_ep **out, void *context)
{
    (void)domain, (void)of, (void)context;
    *out = &endpoint[0];
    return endpoint_rc;
}

static int fake_bind(struct fid *fid, struct fid *to, uint64_t flags)
{
    (void)fid, (void)to, (void)flags;
    return 0;
}

static int fake_control(struct fid *fid, int command, void *arg)
{
    (void)fid, (void)command, (void)arg;
    return 0;
}

static ssize_t fake_recv(
        struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, void *context)
{
    (void)ep, (void)buf, (void)len, (void)desc, (void)from, (void)context;
    return -FI_EAGAIN;
}

static int fake_accept(struct fid_ep *ep, const void *param, size_t len)
{
    (void)ep, (void)param, (void)len;
    return accept_rc;
}

static int fake_reject(struct fid_pep *pep, fid_t handle, const void *param, size_t len)
{
    (void)pep, (void)param, (void)len;
    rejects += handle == &request;
    return 0;
}

static void fake_freeinfo(struct fi_info *of)
{
    (void)of;
}

static void request_comes(int endpoint_fails, int accept_fails)
{
    static const struct hth_ofi_lib all = { .strerror = fake_strerror, .freeinfo = fake_freeinfo };
    static struct fi_ops_domain domain_ops = { .endpoint = fake_endpoint };
    static struct fi_ops ops = { .close = fake_close, .bind = fake_bind, .control = fake_control };
    static struct fi_ops_cm ep_cm = { .shutdown = fake_shutdown, .accept = fake_accept };
    static struct fi_ops_cm pep_cm = { .reject = fake_reject };
    static struct fi_ops_msg msg_ops = { .recv = fake_recv };
    struct fid_domain domain = { .ops = &domain_ops };
    struct fid_pep pep = { .cm = &pep_cm };
    struct fi_info asks = info;

    endpoint[0] = (struct fid_ep){ .fid.ops = &ops, .cm = &ep_cm, .msg = &msg_ops };
    endpoint_rc = endpoint_fails;
    accept_rc = accept_fails;
    asks.handle = &request;
    o.lib = &all;
    o.domain = &domain;
    o.pep = &pep;
    o.contexts_free = NULL;
    hth_ofi_accept(&o, &asks);
    for (uint32_t i = 0; i < o.conns.cap; i++)
        if (hth_ids_at(&o.conns, i))
            hth_ofi_conn_cut(hth_ids_at(&o.conns, i), "the end of the test");
    turns();
    hth_ofi_contexts_free(&o);
}

/* libfabric keeps a request until it is accepted or rejected. */
Test(ofi_events, a_request_that_cannot_be_accepted_is_rejected)
{
    request_comes(0, 0);
    cr_assert(eq(int, rejects, 0));
    request_comes(0, -FI_ENOMEM);
    cr_assert(eq(int, rejects, 1));
    request_comes(-FI_EMFILE, 0);
    cr_assert(eq(int, rejects, 2));
    cr_assert(zero(int, downs)); /* no on_down() for it */
}

/* ---- a peer that the library waits for ---- */

static sem_t found; /* the library has an answer about the peer at GONE_PORT */
static atomic_int closed, connects;

#define GONE_PORT 9

static struct fi_info *slow_dupinfo(const struct fi_info *of)
{
    struct fi_info *copy = calloc(1, sizeof(*copy));

    if (copy)
        *copy = *of;
    return copy;
}

static void slow_freeinfo(struct fi_info *of)
{
    free(of->src_addr);
    free(of->dest_addr);
    free(of);
}

static int slow_endpoint(
        struct fid_domain *domain, struct fi_info *of, struct fid_ep **out, void *context)
{
    const union hth_addr *peer = of->dest_addr;
    int is_gone = peer->in.sin_port == htons(GONE_PORT);

    (void)domain, (void)context;
    while (is_gone && sem_wait(&found))
        ;
    *out = &endpoint[is_gone];
    return 0;
}

static int slow_connect(struct fid_ep *ep, const void *addr, const void *param, size_t len)
{
    (void)addr, (void)param, (void)len;
    connects++;
    queue_put(FI_CONNECTED, &ep->fid);
    return 0;
}

static int slow_close(struct fid *fid)
{
    closed += fid == &endpoint[1].fid;
    return 0;
}

static hth_conn dial(uint16_t port)
{
    union hth_addr peer = { .in = { .sin_family = AF_INET, .sin_port = htons(port) } };
    unsigned char blob[HTH_ADDR_MAX];
    hth_conn conn = 0;

    peer.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(hth_ofi_connect(&o.base, blob, hth_addr_pack(&peer, blob), &conn, NULL));
    return conn;
}

static void turns_until(const int *what, int want)
{
    while (*what < want) { /* the suite has a timeout */
        hth_ofi_progress(&o.base);
        usleep(1000);
    }
}

static void dial_start(void)
{
    static const struct hth_ofi_lib all = {
        .strerror = fake_strerror, .dupinfo = slow_dupinfo, .freeinfo = slow_freeinfo
    };
    static struct fi_ops_domain domain_ops = { .endpoint = slow_endpoint };
    static struct fi_ops ops = { .close = slow_close, .bind = fake_bind, .control = fake_control };
    static struct fi_ops_cm cm = { .shutdown = fake_shutdown, .connect = slow_connect };
    static struct fi_ops_msg msg_ops = { .recv = fake_recv };
    static struct fid_domain domain = { .ops = &domain_ops };

    start();
    for (int i = 0; i < 2; i++)
        endpoint[i] = (struct fid_ep){ .fid.ops = &ops, .cm = &cm, .msg = &msg_ops };
    o.lib = &all;
    o.domain = &domain;
    o.self.in.sin_family = AF_INET;
    o.self.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    o.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sem_init(&found, 0, 0);
    hth_ofi_dialler_init(&o);
}

static void dial_stop(void)
{
    hth_ofi_dialler_fini(&o);
    for (uint32_t i = 0; i < o.conns.cap; i++)
        if (hth_ids_at(&o.conns, i))
            hth_ofi_conn_cut(hth_ids_at(&o.conns, i), "the end of the test");
    turns();
    hth_ofi_contexts_free(&o);
    close(o.wake_fd);
    stop();
}

TestSuite(ofi_dials, .init = dial_start, .fini = dial_stop, .timeout = 20);

/* If the peer is gone, verbs of libfabric before 1.21 waits for 2 s inside fi_endpoint(). */
Test(ofi_dials, a_peer_that_the_library_waits_for_holds_nobody_up)
{
    hth_conn gone = dial(GONE_PORT), other = dial(7);

    turns_until(&ups, 1);
    cr_assert(eq(u64, up_id, other));
    sem_post(&found);
    turns_until(&ups, 2);
    cr_assert(eq(u64, up_id, gone));
    cr_assert(zero(int, downs));
}

Test(ofi_dials, a_dial_that_is_given_up_ends_at_once_and_its_endpoint_later)
{
    hth_conn gone = dial(GONE_PORT);

    hth_ofi_drop(&o.base, gone);
    turns_until(&downs, 1);
    cr_assert(eq(u64, down_id, gone));
    cr_assert(zero(int, atomic_load(&closed)));
    sem_post(&found);
    for (int i = 0; i < 15000 && !atomic_load(&closed); i++) {
        hth_ofi_progress(&o.base);
        usleep(1000);
    }
    cr_assert(eq(int, atomic_load(&closed), 1));
    cr_assert(zero(int, atomic_load(&connects)));
    cr_assert(eq(int, downs, 1));
}
