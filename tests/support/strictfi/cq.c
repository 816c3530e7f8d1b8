/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion queues: reading one is what brings its endpoints on. A completion may stay hidden for
 * some reads more, and completions come in any order where the fabric promises none.
 */
#include "strictfi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct sfi_cq *queues; /* open ones */

void sfi_cq_expect(struct sfi_cq *cq)
{
    if (cq->domain->p->cq_abort && cq->unread + cq->expected >= cq->size)
        sfi_sin("cq-overrun",
                "%zu operations may complete into a queue of %zu entries, of which %zu are unread",
                cq->expected + 1, cq->size, cq->unread);
    cq->expected++;
}

int sfi_cq_full(const struct sfi_cq *cq)
{
    return cq->unread >= cq->size;
}

void sfi_cq_put(struct sfi_op *op)
{
    struct sfi_cq *cq = op->cq;

    op->next = NULL;
    op->due_turn = cq->turn + sfi_random(cq->domain->p->late + 1);
    if (cq->tail)
        cq->tail->next = op;
    else
        cq->head = op;
    cq->tail = op;
    cq->expected--;
    cq->unread++;
}

static void cq_unlink(struct sfi_cq *cq, struct sfi_op *op)
{
    struct sfi_ops_list list = { cq->head, cq->tail, cq->unread };

    sfi_list_take(&list, op);
    cq->head = list.head;
    cq->tail = list.tail;
}

void sfi_cq_part(struct sfi_cq *cq, struct sfi_ep *ep)
{
    struct sfi_op *next;

    if (cq->error && cq->error->ep == ep)
        sfi_op_release(cq->error);
    for (struct sfi_op *op = cq->head; op; op = next) {
        next = op->next;
        if (op->ep != ep)
            continue;
        sfi_op_release(op);
        if (!cq->domain->p->discards)
            continue;
        cq_unlink(cq, op);
        cq->unread--;
        sfi_op_free(op);
    }
}

/* ---- reading ---- */

static struct sfi_op *cq_due(struct sfi_cq *cq)
{
    struct sfi_op *found = NULL;
    uint32_t due = 0;

    for (struct sfi_op *op = cq->head; op; op = op->next) {
        if (op->due_turn <= cq->turn && sfi_random(++due) == 0)
            found = op;
        if (!cq->domain->p->shuffle)
            break;
    }
    if (found)
        cq_unlink(cq, found);
    return found;
}

static size_t entry_size(enum fi_cq_format format)
{
    switch (format) {
    case FI_CQ_FORMAT_MSG:
        return sizeof(struct fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA:
        return sizeof(struct fi_cq_data_entry);
    case FI_CQ_FORMAT_TAGGED:
        return sizeof(struct fi_cq_tagged_entry);
    default:
        return sizeof(struct fi_cq_entry);
    }
}

static uint64_t entry_flags(const struct sfi_op *op)
{
    switch (op->kind) {
    case SFI_SEND:
        return FI_SEND | FI_MSG;
    case SFI_READ:
        return FI_READ | FI_RMA;
    default:
        return FI_RECV | FI_MSG | (op->flags & FI_REMOTE_CQ_DATA);
    }
}

static struct fi_cq_tagged_entry entry_of(const struct sfi_op *op)
{
    struct fi_cq_tagged_entry e = { .op_context = op->context, .flags = entry_flags(op) };

    if (op->kind == SFI_RECV) {
        e.len = op->got;
        e.buf = op->iovs ? op->iov[0].iov_base : NULL;
        e.data = op->data;
    }
    return e;
}

static void cq_poll(struct sfi_cq *cq)
{
    cq->turn++;
    for (struct sfi_ep *ep = sfi_eps(), *next; ep; ep = next) {
        next = ep->next;
        if (ep->tx_cq != cq && ep->rx_cq != cq)
            continue;
        ep->spins = 0;
        if (ep->burst)
            ep->burst--;
        sfi_progress(ep);
    }
}

static size_t cq_take(struct sfi_cq *cq, unsigned char *out, size_t count, fi_addr_t *src)
{
    size_t size = entry_size(cq->format), n = 0;
    struct sfi_op *op;

    while (n < count && (op = cq_due(cq))) {
        struct fi_cq_tagged_entry e = entry_of(op);

        if (op->err) {
            cq->error = op;
            break;
        }
        sfi_op_check(op);
        memcpy(out + n * size, &e, size); /* each format begins as the next smaller one */
        if (src)
            src[n] = op->ep->av ? sfi_av_find(op->ep->av, op->peer) : FI_ADDR_NOTAVAIL;
        cq->unread--;
        sfi_op_free(op);
        n++;
    }
    return n;
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *src)
{
    struct sfi_cq *cq = sfi_of(fid, struct sfi_cq, fid);
    size_t n = 0;
    ssize_t rc;

    sfi_enter(cq->domain);
    cq_poll(cq);
    if (!cq->error)
        n = cq_take(cq, buf, count, src);
    rc = n ? (ssize_t)n : cq->error ? -FI_EAVAIL : -FI_EAGAIN;
    sfi_leave(cq->domain);
    return rc;
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
    return cq_readfrom(fid, buf, count, NULL);
}

/* Up to the last member that every release has: a program may be older than its library. */
static void error_write(const struct sfi_op *op, struct fi_cq_err_entry *out)
{
    struct fi_cq_err_entry e = {
        .op_context = op->context, .flags = entry_flags(op), .err = op->err, .prov_errno = op->err
    };

    memcpy(out, &e, offsetof(struct fi_cq_err_entry, err_data_size) + sizeof(e.err_data_size));
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *out, uint64_t flags)
{
    struct sfi_cq *cq = sfi_of(fid, struct sfi_cq, fid);
    struct sfi_op *op;

    (void)flags;
    sfi_enter(cq->domain);
    op = cq->error;
    if (op) {
        error_write(op, out);
        sfi_op_check(op);
        cq->error = NULL;
        cq->unread--;
        sfi_op_free(op);
    }
    sfi_leave(cq->domain);
    return op ? 1 : -FI_EAGAIN;
}

/* ---- waiting ---- */

static ssize_t cq_sreadfrom(
        struct fid_cq *fid, void *buf, size_t count, fi_addr_t *src, const void *cond, int timeout)
{
    struct sfi_cq *cq = sfi_of(fid, struct sfi_cq, fid);
    uint64_t end = sfi_now_ms() + (uint64_t)(timeout < 0 ? 0 : timeout);
    ssize_t rc;

    (void)cond;
    if (cq->wait_fd < 0)
        return -FI_ENOSYS;
    while ((rc = cq_readfrom(fid, buf, count, src)) == -FI_EAGAIN) {
        if (timeout >= 0 && sfi_now_ms() >= end)
            break;
        usleep(200);
    }
    return rc;
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count, const void *cond, int timeout)
{
    return cq_sreadfrom(fid, buf, count, NULL, cond, timeout);
}

static int cq_signal(struct fid_cq *fid)
{
    struct sfi_cq *cq = sfi_of(fid, struct sfi_cq, fid);

    return cq->event_fd < 0 || eventfd_write(cq->event_fd, 1) ? -FI_ENOSYS : 0;
}

static const char *cq_strerror(
        struct fid_cq *fid, int prov_errno, const void *err_data, char *buf, size_t len)
{
    (void)fid, (void)err_data;
    if (buf && len)
        snprintf(buf, len, "%s", fi_strerror(prov_errno));
    return fi_strerror(prov_errno);
}

/* Readable when the endpoint has something to be fetched; never, where a wake-up is to be lost. */
static void cq_arm(struct sfi_cq *cq, const struct sfi_ep *ep, int lost)
{
    struct epoll_event ev = { .events = lost ? 0 : EPOLLIN };

    if (epoll_ctl(cq->wait_fd, EPOLL_CTL_MOD, ep->sock, &ev) && errno == ENOENT)
        epoll_ctl(cq->wait_fd, EPOLL_CTL_ADD, ep->sock, &ev);
}

int sfi_cq_trywait(struct sfi_cq *cq)
{
    int lost = sfi_random(100) < cq->domain->p->lost_wakes;
    eventfd_t drained;

    if (cq->wait_fd < 0)
        sfi_sin("wait", "fi_trywait() was given a completion queue without a wait object");
    if (cq->head || cq->error)
        return -FI_EAGAIN;
    eventfd_read(cq->event_fd, &drained);
    if (cq->domain->p->progress == FI_PROGRESS_AUTO)
        return 0;
    for (struct sfi_ep *ep = sfi_eps(); ep; ep = ep->next) {
        if (!ep->enabled || (ep->tx_cq != cq && ep->rx_cq != cq))
            continue;
        if (sfi_restless(ep))
            return -FI_EAGAIN;
        cq_arm(cq, ep, lost);
    }
    sfi_count(&sfi_stats()->lost_wakes, (uint64_t)lost);
    return 0;
}

int sfi_cqs_ripen(void)
{
    int held = 0;

    for (struct sfi_cq *cq = queues; cq; cq = cq->next) {
        if (cq->domain->p->progress != FI_PROGRESS_AUTO || !cq->head)
            continue;
        cq->turn++;
        held = 1;
        if (cq->event_fd >= 0 && cq->head->due_turn <= cq->turn)
            eventfd_write(cq->event_fd, 1);
    }
    return held;
}

/* ---- opening and closing ---- */

static int cq_control(struct fid *fid, int command, void *arg)
{
    struct sfi_cq *cq = sfi_of(fid, struct sfi_cq, fid.fid);

    return sfi_wait_control(cq->wait_fd, command, arg);
}

static int cq_close(struct fid *fid)
{
    struct sfi_cq *cq = sfi_of(fid, struct sfi_cq, fid.fid);
    struct sfi_domain *d = cq->domain;
    struct sfi_cq **at;
    struct sfi_op *op;

    sfi_enter(d);
    if (cq->children)
        sfi_sin("children", "a completion queue was closed that %d endpoints are bound to",
                cq->children);
    for (at = &queues; *at != cq; at = &(*at)->next)
        ;
    *at = cq->next;
    while ((op = cq->head)) {
        cq_unlink(cq, op);
        sfi_op_free(op);
    }
    if (cq->error)
        sfi_op_free(cq->error);
    if (cq->wait_fd >= 0) {
        close(cq->wait_fd);
        close(cq->event_fd);
    }
    free(cq);
    d->children--;
    sfi_leave(d);
    return 0;
}

static struct fi_ops cq_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = cq_close,
    .bind = sfi_no_bind,
    .control = cq_control,
    .ops_open = sfi_no_ops,
};

static struct fi_ops_cq cq_ops = {
    .size = sizeof(struct fi_ops_cq),
    .read = cq_read,
    .readfrom = cq_readfrom,
    .readerr = cq_readerr,
    .sread = cq_sread,
    .sreadfrom = cq_sreadfrom,
    .signal = cq_signal,
    .strerror = cq_strerror,
};

static int cq_wait_open(struct sfi_cq *cq, enum fi_wait_obj wait)
{
    struct epoll_event ev = { .events = EPOLLIN };

    cq->wait_fd = cq->event_fd = -1;
    if (wait == FI_WAIT_NONE || (wait == FI_WAIT_UNSPEC && !cq->domain->p->wait_fd))
        return 0;
    if (!cq->domain->p->wait_fd || (wait != FI_WAIT_UNSPEC && wait != FI_WAIT_FD))
        return -FI_ENOSYS;
    cq->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    cq->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cq->wait_fd < 0 || cq->event_fd < 0 ||
            epoll_ctl(cq->wait_fd, EPOLL_CTL_ADD, cq->event_fd, &ev))
        sfi_sin("setup", "no descriptor for a wait object: %s", strerror(errno));
    return 0;
}

int sfi_cq_open(
        struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
    struct sfi_domain *d = sfi_of(domain, struct sfi_domain, fid);
    struct sfi_cq *cq = calloc(1, sizeof(*cq));
    int rc;

    if (!cq)
        return -FI_ENOMEM;
    cq->domain = d;
    cq->format = attr->format;
    cq->size = attr->size ? attr->size : d->p->cq_size;
    cq->fid.fid = (struct fid){ FI_CLASS_CQ, context, &cq_fid_ops };
    cq->fid.ops = &cq_ops;
    rc = cq_wait_open(cq, attr->wait_obj);
    if (rc) {
        free(cq);
        return rc;
    }
    sfi_enter(d);
    cq->next = queues;
    queues = cq;
    d->children++;
    sfi_leave(d);
    *out = &cq->fid;
    return 0;
}
