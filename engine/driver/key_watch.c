/* SPDX-License-Identifier: Apache-2.0 */
/* A changed key file is read when two looks have seen it unchanged, in case it is written in
 * place and not replaced by rename(). If it cannot be read, it is read again at each look: the
 * cause may be the engine's own (no free descriptor), which leaves no mark on the file. */
#include "key_watch.h"

#include "core/base/fail.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LOOK_MS 2000u
#define SAY_MS  60000u /* between two lines of one cause */

/* Properties of a file that change if it is replaced or written. */
struct mark {
    uint64_t device, inode, size;
    int64_t changed_s, changed_ns;
};

struct hth_key_watch {
    struct hth_key key;
    struct hth_key_opener opener; /* open NULL: by its name */
    struct mark read, seen;       /* read: of the file as it was read; seen: at the last look */
    /* why the file could not be read, as last logged; empty: it was read */
    struct hearth_error why;
    uint64_t look_ms, said_ms;
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

static void watch_say(struct hth_key_watch *w, const struct hearth_error *why, uint64_t now_ms,
        const struct hth_log *log)
{
    if (strcmp(why->text, w->why.text) == 0 && now_ms < w->said_ms + SAY_MS)
        return;
    w->why = *why;
    w->said_ms = now_ms;
    hth_say(log, HEARTH_LOG_WARN, "key-unchanged",
            "%s; the job key is still %08" PRIx32 ", and the file is read again every %u s",
            why->text, w->key.id, LOOK_MS / 1000);
}

int hth_key_watch_look(struct hth_key_watch *w, uint64_t now_ms, const struct hth_log *log)
{
    struct hearth_error err = { 0 };
    int changed = 0, still, was_read;
    struct mark now;

    if (now_ms < w->look_ms + LOOK_MS)
        return 0;
    w->look_ms = now_ms;
    now = mark_of(w->path);
    still = memcmp(&now, &w->seen, sizeof(now)) == 0;
    was_read = memcmp(&now, &w->read, sizeof(now)) == 0;
    w->seen = now;
    if (still && !was_read && hth_key_reload(&w->key, watch_opener(w), w->path, &changed, &err)) {
        watch_say(w, &err, now_ms, log);
    } else if (still) {
        w->read = now;
        w->why.text[0] = '\0';
    }
    return changed;
}

void hth_key_watch_close(struct hth_key_watch *w)
{
    if (!w)
        return;
    hth_key_close(&w->key);
    free(w);
}
