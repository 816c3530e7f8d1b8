/* SPDX-License-Identifier: Apache-2.0 */
/* A file that was changed is read when it has stood still for one look, so that one that is written where it
 * lies, by somebody who does not know of rename(), is not read halfway. */
#include "key_watch.h"

#include "core/base/fail.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LOOK_MS 2000u

/* What is not the same of a file that was replaced or written. */
struct mark {
    uint64_t device, inode, size;
    int64_t changed_s, changed_ns;
};

struct hth_key_watch {
    struct hth_key key;
    struct hth_key_opener opener; /* open NULL: by its name */
    struct mark read, seen;       /* of what was read; as it was at the last look */
    uint64_t look_ms;
    char path[];
};

static struct mark mark_of(const char *path)
{
    int fd = hth_key_fd(path);
    struct mark m = { 0 };
    struct stat st;

    if (fd >= 0 ? fstat(fd, &st) : lstat(path, &st))
        return m; /* it is not there: that is a mark too */
    m.device = st.st_dev;
    m.inode = st.st_ino;
    m.size = (uint64_t)st.st_size;
    m.changed_s = st.st_ctim.tv_sec;
    m.changed_ns = st.st_ctim.tv_nsec;
    return m;
}

static const struct hth_key_opener *watch_opener(const struct hth_key_watch *w)
{
    return w->opener.open ? &w->opener : NULL;
}

int hth_key_watch_open(const char *path, const struct hth_key_opener *opener,
        struct hth_key_watch **out, struct hearth_error *err)
{
    struct hth_key_watch *w = calloc(1, sizeof(*w) + strlen(path) + 1);
    int rc;

    if (!w)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the job key");
    memcpy(w->path, path, strlen(path) + 1);
    if (opener)
        w->opener = *opener;
    w->read = w->seen = mark_of(path);
    if ((rc = hth_key_open_by(watch_opener(w), path, &w->key, err))) {
        free(w);
        return rc;
    }
    *out = w;
    return HEARTH_OK;
}

const struct hth_key *hth_key_watched(const struct hth_key_watch *w)
{
    return w ? &w->key : NULL;
}

int hth_key_watch_look(struct hth_key_watch *w, uint64_t now_ms, const struct hth_log *log)
{
    struct hearth_error err = { 0 };
    struct mark now, before = w->read;
    int changed = 0, still;

    if (now_ms < w->look_ms + LOOK_MS)
        return 0;
    w->look_ms = now_ms;
    now = mark_of(w->path);
    still = memcmp(&now, &w->seen, sizeof(now)) == 0;
    w->seen = now;
    if (!still || memcmp(&now, &w->read, sizeof(now)) == 0)
        return 0;
    w->read = now;
    if (!hth_key_reload(&w->key, watch_opener(w), w->path, &changed, &err))
        return changed;
    if (err.native == ETIMEDOUT)
        w->read = before;
    hth_say(log, HEARTH_LOG_WARN, "key-unchanged",
            "%s; the job key is still %08" PRIx32 " until that file holds one", err.text,
            w->key.id);
    return 0;
}

void hth_key_watch_close(struct hth_key_watch *w)
{
    if (!w)
        return;
    hth_key_close(&w->key);
    free(w);
}
