/* SPDX-License-Identifier: Apache-2.0 */
/* Whole objects: common ones as bytes, those of this node as descriptors. */
#include "source.h"

#include "client/slots/shared.h"
#include "core/base/auth.h"
#include "core/base/open.h"
#include "fetch.h"
#include "foreign.h"
#include "index.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct hth_object *object_named(const struct hearth_checkpoint *c, const char *name)
{
    for (uint32_t i = 0; i < c->manifest->objects; i++)
        if (!strcmp(c->manifest->object[i].name, name))
            return &c->manifest->object[i];
    return NULL;
}

static int object_fetch_common(struct hearth_checkpoint *c, const char *name, int *out_fd,
        uint64_t *len, struct hearth_error *err)
{
    struct hth_local_common m = { .save = hth_local_save_of(c->save) };
    struct hth_local_bytes a;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_COMMON_GET,
        .want = HTH_LOCAL_BYTES,
        .fd = -1,
        .again = 1,
        .answer = &a,
        .answer_len = sizeof(a),
        .out_fd = out_fd,
        .what = "get a common object" };
    int rc;

    memcpy(m.name, name, strlen(name) + 1);
    if (!(rc = hth_ask(c->h, &ask, err)))
        *len = a.len;
    return rc;
}

/* *out is malloc'ed. HEARTH_ECORRUPT: it is not what the manifest names. */
static int object_take_common(const struct hth_object *o, const char *name, int fd, uint64_t len,
        void **out, struct hearth_error *err)
{
    unsigned char digest[HTH_DIGEST];
    void *bytes = NULL, *copy;
    int rc = hth_map_answer(fd, len, &bytes, err);

    if (rc)
        return rc;
    copy = malloc(len ? len : 1);
    if (copy && len)
        memcpy(copy, bytes, len);
    if (len)
        munmap(bytes, len);
    if (!copy)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for common object '%s'", name);
    hth_digest(digest, copy, len); /* of what the caller gets */
    if (o && (o->data_len != len || memcmp(digest, o->digest, sizeof(digest)) != 0)) {
        free(copy);
        return hth_fail(
                err, HEARTH_ECORRUPT, 0, "common object '%s' is not the one of the manifest", name);
    }
    *out = copy;
    return HEARTH_OK;
}

int hearth_read_common(struct hearth_checkpoint *ckpt, const char *name, void **out,
        size_t *out_len, struct hearth_error *err)
{
    const struct hth_object *o;
    uint64_t len = 0;
    int fd = -1, rc;

    if ((rc = hth_checkpoint_enter(ckpt, err)))
        return rc;
    if (!name || !out || !out_len)
        return hth_fail(err, HEARTH_EINVAL, 0, "name, out or out_len is NULL");
    if ((rc = hth_foreign_name_check(name, err)))
        return hth_while(err, rc, "common object '%.255s'", name);
    o = object_named(ckpt, name);
    for (int tries = 0; tries < 2; tries++) {
        if (!(rc = object_fetch_common(ckpt, name, &fd, &len, err)))
            rc = object_take_common(o, name, fd, len, out, err);
        if (rc != HEARTH_ECORRUPT || !o)
            break;
        hth_tell_bad(ckpt->h, ckpt->save, o->id, HTH_BAD_TABLE);
    }
    if (rc)
        return hth_while(err, rc, "common object '%.255s'", name);
    *out_len = len;
    return HEARTH_OK;
}

int hearth_object_fd(struct hearth_checkpoint *ckpt, const char *object, int *out_fd,
        uint64_t *out_offset, uint64_t *out_bytes, struct hearth_error *err)
{
    struct hth_source *s;
    int rc, fd;

    if ((rc = hth_checkpoint_enter(ckpt, err)))
        return rc;
    if (!object || !out_fd || !out_offset || !out_bytes)
        return hth_fail(err, HEARTH_EINVAL, 0, "object or a place for the result is NULL");
    if ((rc = hth_source_named(ckpt, object, &s, err)))
        return rc;
    if (!s->local)
        return hth_source_not_here(s, err);
    if ((rc = hth_source_same(ckpt, s, err)))
        return rc;
    /* The engine's descriptor may be writable: the caller's is not. */
    fd = hth_open_again(s->shared->fd, O_RDONLY);
    if (fd < 0)
        return hth_fail(
                err, HEARTH_EIO, errno, "descriptor of object '%s': %s", object, strerror(errno));
    *out_fd = fd;
    *out_offset = s->data_at;
    *out_bytes = s->data_len;
    return HEARTH_OK;
}
