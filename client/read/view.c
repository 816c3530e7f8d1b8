/* SPDX-License-Identifier: Apache-2.0 */
/* An item of this node as memory: its pages, mapped privately; of another program's file a copy,
 * since that program may write it again. */
#include "items.h"

#include "client/slots/lease.h"
#include "core/base/opts.h"
#include "foreign.h"
#include "source.h"
#include "window.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Map the pages around the payload privately. */
static int view_map(
        struct hearth_view *v, int fd, uint64_t at, uint64_t bytes, struct hearth_error *err)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = at / page * page;
    struct stat st;
    void *p;

    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size < at + bytes)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "the object is shorter than in its table");
    v->map_bytes = at - from + (bytes ? bytes : 1);
    p = mmap(NULL, v->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, (off_t)from);
    if (p == MAP_FAILED)
        return hth_fail(err, HEARTH_ENOMEM, errno, "map a view: %s", strerror(errno));
    madvise(p, v->map_bytes, MADV_DONTDUMP);
    v->map = p;
    v->data = (char *)p + (at - from);
    v->bytes = bytes;
    return HEARTH_OK;
}

static int view_copy(struct hearth_view *v, struct hearth_checkpoint *c, struct hth_source *s,
        uint64_t at, uint64_t bytes, struct hearth_error *err)
{
    const unsigned char *from;
    void *p;
    int rc;

    v->map_bytes = bytes ? bytes : 1;
    p = mmap(NULL, v->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return hth_fail(err, HEARTH_ENOMEM, errno, "memory for a view: %s", strerror(errno));
    if (!(rc = hth_source_at(c, s, at, bytes, &from, err))) {
        memcpy(p, from, bytes);
        rc = hth_source_same(c, s, err);
    }
    if (rc) {
        munmap(p, v->map_bytes);
        return rc;
    }
    v->map = v->data = p;
    v->bytes = bytes;
    return HEARTH_OK;
}

/* Without the last field of the first version a view cannot be closed. */
#define VIEW_LEAST (offsetof(struct hearth_view, lease) + sizeof(uint64_t))

int hearth_view_open(struct hearth_checkpoint *ckpt, const struct hearth_item *item,
        struct hearth_view *out, struct hearth_error *err)
{
    struct hearth_view v = { .struct_size = sizeof(v) };
    struct hth_local_mapped m;
    const struct hth_entry *e;
    struct hth_source *s;
    uint64_t at, bytes;
    int fd, rc;

    if ((rc = hth_checkpoint_enter(ckpt, err)) || (rc = hth_item_taken(ckpt, item, &e, err)))
        return rc;
    if (!out || out->struct_size < VIEW_LEAST || out->struct_size > HTH_STRUCT_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the view is NULL or its struct_size is not sizeof(struct hearth_view)");
    s = &ckpt->source[e->source];
    if (!s->local)
        return hth_source_not_here(s, err);
    /* A lease of its own: views outlive the checkpoint. */
    if ((rc = hth_lease_get(ckpt->h, ckpt->save, s->object->id, &m, &fd, &v.lease, err)))
        return hth_while(err, rc, "view object '%s'", s->object->name);
    at = e->item.offset + e->item.payload;
    bytes = e->item.length - e->item.payload;
    rc = s->theirs ? view_copy(&v, ckpt, s, at, bytes, err)
                   : view_map(&v, fd, s->data_at + at, bytes, err);
    close(fd);
    if (rc)
        hth_lease_put(ckpt->h, v.lease);
    return rc ? rc : hth_give(out, &v, sizeof(v), err);
}

void hearth_view_close(struct hearth *h, struct hearth_view *view)
{
    struct hearth_view none = HEARTH_VIEW_INIT;

    if (!view || view->struct_size < VIEW_LEAST || !view->map)
        return;
    munmap(view->map, view->map_bytes);
    if (h && !hth_enter(h, NULL))
        hth_lease_put(h, view->lease);
    hth_give(view, &none, sizeof(none), NULL);
}
