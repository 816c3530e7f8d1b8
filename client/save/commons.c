/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Common objects: small, and every node gets them. They go to the engine as soon as the step of
 * their save is known; those that come before wait here, each as a memfd.
 */
#include "commons.h"

#include "client/base/memfd.h"
#include "core/base/fail.h"
#include "core/format/manifest.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hth_common_put {
    struct hth_common_put *next;
    char name[HTH_NAME_MAX + 1];
    int fd;
    size_t len;
};

static int commons_send_one(
        struct hearth_save *s, const struct hth_common_put *c, struct hearth_error *err)
{
    struct hth_local_common m = { .len = c->len };
    struct hth_ask tell = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_COMMON,
        .token = s->token,
        .fd = c->fd,
        .incarnation = s->incarnation,
        .what = "put a common object" };
    int rc;

    memcpy(m.name, c->name, sizeof(c->name));
    if (!(rc = hth_tell(s->h, &tell, err)))
        hth_handle_took(s->handle, 1);
    return rc;
}

static void commons_drop_first(struct hearth_save *s)
{
    struct hth_common_put *c = s->commons;

    s->commons = c->next;
    close(c->fd);
    free(c);
}

void hth_commons_drop(struct hearth_save *s)
{
    while (s->commons)
        commons_drop_first(s);
}

int hth_commons_send(struct hearth_save *s, struct hearth_error *err)
{
    int rc = HEARTH_OK;

    while (s->commons && !rc) {
        rc = commons_send_one(s, s->commons, err);
        commons_drop_first(s);
    }
    return rc;
}

int hearth_save_put_common(struct hearth_save *save, const char *name, const void *data, size_t len,
        struct hearth_error *err)
{
    struct hth_common_put *c;
    int rc;

    if (!save || !name || (len && !data))
        return hth_fail(err, HEARTH_EINVAL, 0, "the save, the name or the data is NULL");
    if ((rc = hth_enter(save->h, err)) || (rc = hth_object_name_check(name, err)))
        return rc;
    if (len > HTH_RAW_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "common object '%s' has %zu bytes: at most 1 GiB goes to every node", name, len);
    if (save->h->opts.off)
        return HEARTH_OK;
    c = calloc(1, sizeof(*c));
    if (!c || (c->fd = hth_memfd("hearth-common", data, len)) < 0) {
        free(c);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %zu bytes", len);
    }
    memcpy(c->name, name, strlen(name) + 1);
    c->len = len;
    c->next = save->commons;
    save->commons = c;
    return save->step == HEARTH_STEP_LATER ? HEARTH_OK : hth_commons_send(save, err);
}
