/* SPDX-License-Identifier: Apache-2.0 */
/* Event queues: what happens to connections, one after the other. */
#include "strictfi.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

void sfi_eq_put(struct sfi_eq *eq, uint32_t event, struct fid *fid, struct fi_info *info, int err,
        const void *data, size_t len)
{
    struct sfi_event *e = calloc(1, sizeof(*e) + len);

    if (!e)
        return;
    e->event = event;
    e->fid = fid;
    e->info = info;
    e->err = err;
    e->len = len;
    if (len)
        memcpy(e->data, data, len);
    *eq->end = e;
    eq->end = &e->next;
    if (eq->event_fd >= 0)
        eventfd_write(eq->event_fd, 1);
}

static void eq_drop_first(struct sfi_eq *eq)
{
    struct sfi_event *e = eq->first;

    eq->first = e->next;
    if (!eq->first)
        eq->end = &eq->first;
    free(e);
}

void sfi_eq_forget(struct sfi_eq *eq, const struct fid *fid)
{
    struct sfi_event **at = &eq->first, *e;

    while ((e = *at)) {
        if (e->fid != fid) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        fi_freeinfo(e->info);
        free(e);
    }
    eq->end = at;
}

static ssize_t eq_read(struct fid_eq *fid, uint32_t *event, void *buf, size_t len, uint64_t flags)
{
    struct sfi_eq *eq = sfi_of(fid, struct sfi_eq, fid);
    ssize_t n = -FI_EAGAIN;
    struct sfi_event *e;

    sfi_lock();
    e = eq->first;
    if (e && e->err) {
        n = -FI_EAVAIL;
    } else if (e) {
        struct fi_eq_cm_entry head = { .fid = e->fid, .info = e->info };
        size_t room = len > sizeof(head) ? len - sizeof(head) : 0;

        if (len < sizeof(head))
            sfi_sin("size", "fi_eq_read() was given %zu bytes for an event of a connection", len);
        memcpy(buf, &head, sizeof(head));
        memcpy((char *)buf + sizeof(head), e->data, e->len < room ? e->len : room);
        *event = e->event;
        n = (ssize_t)(sizeof(head) + (e->len < room ? e->len : room));
        if (!(flags & FI_PEEK))
            eq_drop_first(eq);
    }
    sfi_unlock();
    return n;
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *out, uint64_t flags)
{
    struct sfi_eq *eq = sfi_of(fid, struct sfi_eq, fid);
    struct sfi_event *e;
    ssize_t n = -FI_EAGAIN;

    (void)flags;
    sfi_lock();
    e = eq->first;
    if (e && e->err) {
        size_t room = out->err_data_size;

        memcpy(eq->error_data, e->data, e->len);
        if (room) /* the caller's own memory; without it, ours until the next read */
            memcpy(out->err_data, e->data, e->len < room ? e->len : room);
        else
            out->err_data = eq->error_data;
        out->err_data_size = room && room < e->len ? room : e->len;
        out->fid = e->fid;
        out->context = e->fid->context;
        out->err = out->prov_errno = e->err;
        eq_drop_first(eq);
        n = sizeof(*out);
    }
    sfi_unlock();
    return n;
}

static ssize_t no_event_write(
        struct fid_eq *fid, uint32_t event, const void *buf, size_t len, uint64_t flags)
{
    (void)fid, (void)event, (void)buf, (void)len, (void)flags;
    return -FI_ENOSYS;
}

static ssize_t eq_sread(
        struct fid_eq *fid, uint32_t *event, void *buf, size_t len, int timeout, uint64_t flags)
{
    uint64_t end = sfi_now_ms() + (uint64_t)(timeout < 0 ? 0 : timeout);
    ssize_t n;

    while ((n = eq_read(fid, event, buf, len, flags)) == -FI_EAGAIN) {
        if (timeout >= 0 && sfi_now_ms() >= end)
            break;
        usleep(200);
    }
    return n;
}

static const char *eq_strerror(
        struct fid_eq *fid, int prov_errno, const void *data, char *buf, size_t len)
{
    (void)fid, (void)data;
    if (buf && len)
        snprintf(buf, len, "%s", fi_strerror(prov_errno));
    return fi_strerror(prov_errno);
}

int sfi_eq_trywait(struct sfi_eq *eq)
{
    eventfd_t drained;

    if (eq->event_fd < 0)
        sfi_sin("wait", "fi_trywait() was given an event queue without a wait object");
    if (eq->first)
        return -FI_EAGAIN;
    eventfd_read(eq->event_fd, &drained);
    return 0;
}

int sfi_wait_control(int fd, int command, void *arg)
{
    if (fd < 0)
        return -FI_ENOSYS;
    if (command == FI_GETWAITOBJ)
        *(enum fi_wait_obj *)arg = FI_WAIT_FD;
    else if (command == FI_GETWAIT)
        *(int *)arg = fd;
    else
        return -FI_ENOSYS;
    return 0;
}

static int eq_control(struct fid *fid, int command, void *arg)
{
    struct sfi_eq *eq = sfi_of(fid, struct sfi_eq, fid.fid);

    return sfi_wait_control(eq->event_fd, command, arg);
}

static int eq_close(struct fid *fid)
{
    struct sfi_eq *eq = sfi_of(fid, struct sfi_eq, fid.fid);

    sfi_lock();
    if (eq->children)
        sfi_sin("children", "an event queue was closed that %d endpoints are bound to",
                eq->children);
    while (eq->first) {
        fi_freeinfo(eq->first->info);
        eq_drop_first(eq);
    }
    if (eq->event_fd >= 0)
        close(eq->event_fd);
    eq->fabric->children--;
    sfi_unlock();
    free(eq);
    return 0;
}

static struct fi_ops eq_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = eq_close,
    .bind = sfi_no_bind,
    .control = eq_control,
    .ops_open = sfi_no_ops,
};

static struct fi_ops_eq eq_ops = {
    .size = sizeof(struct fi_ops_eq),
    .read = eq_read,
    .readerr = eq_readerr,
    .write = no_event_write,
    .sread = eq_sread,
    .strerror = eq_strerror,
};

int sfi_eq_open(
        struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **out, void *context)
{
    struct sfi_fabric *f = sfi_of(fabric, struct sfi_fabric, fid);
    struct sfi_eq *eq = calloc(1, sizeof(*eq));

    if (!eq)
        return -FI_ENOMEM;
    eq->fabric = f;
    eq->end = &eq->first;
    eq->event_fd = -1;
    if (attr->wait_obj == FI_WAIT_FD || attr->wait_obj == FI_WAIT_UNSPEC)
        eq->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    eq->fid.fid = (struct fid){ FI_CLASS_EQ, context, &eq_fid_ops };
    eq->fid.ops = &eq_ops;
    sfi_lock();
    f->children++;
    sfi_unlock();
    *out = &eq->fid;
    return 0;
}
