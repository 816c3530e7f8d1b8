/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Common objects: small, and every node receives them. Each is a memfd, sent to the engine as soon
 * as the step of its save is known, and kept for as long as it may have to be sent again.
 */
#include "client/base/memfd.h"
#include "client/link/kept.h"
#include "core/base/fail.h"
#include "core/format/manifest.h"
#include "save.h"
#include <stdlib.h>
#include <string.h>

int hearth_save_put_common(struct hearth_save *save, const char *name, const void *data, size_t len,
        struct hearth_error *err)
{
    struct hth_kept_common *c;
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
    if (!(c = calloc(1, sizeof(*c))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a common object");
    if ((c->fd = hth_memfd("hearth-common", data, len, err)) < 0) {
        free(c);
        return hth_while(err, HEARTH_ENOMEM, "common object '%s'", name);
    }
    memcpy(c->name, name, strlen(name) + 1);
    c->len = len;
    save->early += save->step == HEARTH_STEP_LATER;
    return hth_handle_common(save->handle, c, err);
}
