/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save that a keep list names was PROTECTED, and a recovery that cannot have it refuses the job.
 * So what the user removes leaves this node's list, too.
 *
 * The record keeps its epoch and serial. It is still that decision, of which one node has given up
 * its part: with a higher serial the coordinator would take it for all, though other nodes may have
 * the save whole; with a lower one the engine would take the list that its head has, which names
 * the save. A loss is not hidden by what one node removes, since the newest save that any node's
 * list names is what a recovery must have.
 */
#include "forget.h"

#include "core/base/full.h"
#include "core/base/open.h"
#include "core/format/head.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORGET_NEW \
    "new" /* named as the store's own unfinished files: the store's next open removes a rest */

/* Reads the keep list that an engine would take, of the keep record's and the head's: the head is
 * written before the keep record. The engine ignores a damaged list, and so does this. */
static int forget_read(int records, struct hth_keep *out, struct hearth_error *err)
{
    struct hth_keep keep = { 0 };
    struct hth_head head = { 0 };
    const unsigned char *map;
    size_t len, map_len;
    void *bytes;
    int rc = read_small(records, "keep", &bytes, &len, err);

    if (!rc) {
        rc = hth_keep_decode(&keep, bytes, len, err);
        free(bytes);
    }
    if (rc && rc != HEARTH_ENOENT && rc != HEARTH_ECORRUPT)
        return rc;
    rc = read_small(records, "head", &bytes, &len, err);
    if (!rc) {
        rc = hth_head_decode(&head, &map, &map_len, bytes, len, err);
        free(bytes);
    }
    if (rc && rc != HEARTH_ENOENT && rc != HEARTH_ECORRUPT)
        return rc;
    *out = head.keep.epoch > keep.epoch ||
                           (head.keep.epoch == keep.epoch && head.keep.serial > keep.serial)
                   ? head.keep
                   : keep;
    return HEARTH_OK;
}

static int forget_is_rows(const struct save_row *rows, struct hth_save_id id)
{
    for (; rows; rows = rows->next)
        if (rows->own && !hth_save_cmp(rows->id, id))
            return 1;
    return 0;
}

static int forget_leave(struct hth_keep *k, const struct hth_save_id *id, uint64_t step,
        const struct save_row *rows)
{
    int count = 0;

    for (int i = (int)k->saves; i-- > 0;) {
        int is = (id ? !hth_save_cmp(k->save[i], *id) : k->save[i].step == step) &&
                 !forget_is_rows(rows, k->save[i]);

        if (is)
            hth_keep_leave(k, i);
        count += is;
    }
    return count;
}

static int forget_write_file(int fd, uid_t owner, const unsigned char bytes[HTH_KEEP_BYTES])
{
    int bad = pwrite(fd, bytes, HTH_KEEP_BYTES, 0) != HTH_KEEP_BYTES ||
              (owner != geteuid() && fchown(fd, owner, (gid_t)-1));
    int why = errno;

    close(fd);
    errno = why;
    return bad ? -1 : 0;
}

/* By a rename; but a mount that is full, and a reason to remove saves, has no memory for a second
 * file: the first is written over then, in the one page that it has. */
static int forget_write(
        int records, uid_t owner, const struct hth_keep *keep, struct hearth_error *err)
{
    unsigned char bytes[HTH_KEEP_BYTES];
    int fd, rc;

    hth_keep_encode(keep, bytes);
    unlinkat(records, FORGET_NEW, 0);
    fd = hth_open_below(records, FORGET_NEW, O_WRONLY | O_CREAT | O_EXCL, 0600);
    rc = fd < 0 ? -1 : forget_write_file(fd, owner, bytes);
    rc = rc ? rc : renameat(records, FORGET_NEW, records, "keep");
    if (rc && (errno == ENOSPC || errno == EDQUOT)) {
        fd = hth_open_below(records, "keep", O_WRONLY, 0);
        rc = fd < 0 ? -1 : forget_write_file(fd, owner, bytes);
    }
    if (!rc)
        return HEARTH_OK;
    hth_fail(err, HEARTH_EIO, errno, "the keep record cannot be written: %s",
            hth_full_text(records, errno));
    unlinkat(records, FORGET_NEW, 0);
    return HEARTH_EIO;
}

int forget_saves(int records, uid_t owner, const struct hth_save_id *id, uint64_t step,
        const struct save_row *rows, int *out_count, struct hearth_error *err)
{
    struct hth_keep keep;
    int rc = forget_read(records, &keep, err), count;

    if (rc)
        return rc;
    count = forget_leave(&keep, id, step, rows);
    if (count)
        rc = forget_write(records, owner, &keep, err);
    if (!rc)
        *out_count = count;
    return rc;
}
