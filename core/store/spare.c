/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for records, taken at open, so that they can be written although another program has
 * filled the mount; raw objects of a few pages borrow of it. It goes round, as slots do:
 *
 *     spare-<n> ──written──► a record's name ──in exchange──► the older record's file is a spare
 *        ▲                          └──removed, while there are too few──┐
 *        └───────────────────────────────────────────────────────────────┘
 *
 * Memory is counted in whole pages: a record of as many pages as the one before it frees none and
 * takes none. A spare is not written to while a process still reads it as the record that it was.
 */
#include "tmpfs.h"

#include "core/base/open.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE_BYTES   4096u
#define SPARE_FRONT  "spare-"
/* Of one page: for two saves' directories and manifests, and for what a node writes for the
 * first time, as when it becomes the coordinator's. */
#define SPARES_SMALL 8u
#define SPARES_LARGE \
    3u /* as the largest record: a new manifest, a plan, and one that is written over */

static uint64_t spare_pages(uint64_t bytes)
{
    return bytes <= PAGE_BYTES ? 1 : (bytes + PAGE_BYTES - 1) / PAGE_BYTES;
}

int hth_spare_names(const char *name)
{
    return !strncmp(name, SPARE_FRONT, strlen(SPARE_FRONT));
}

static void spare_name(uint64_t number, char out[FILE_NAME_BYTES])
{
    snprintf(out, FILE_NAME_BYTES, SPARE_FRONT "%" PRIx64, number);
}

/* A file that may become a spare: ours, with this one name, and no link or anything else. */
static int spare_is_file(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_nlink == 1 && st->st_uid == geteuid();
}

static int spare_note(struct hth_tmpfs *t, uint64_t number, uint64_t bytes)
{
    if (t->spares == HTH_SPARES)
        return -1;
    t->spare[t->spares++] = (struct tmpfs_spare){ number, spare_pages(bytes) };
    return 0;
}

static unsigned spares_large(const struct hth_tmpfs *t)
{
    unsigned large = 0;

    for (unsigned i = 0; i < t->spares; i++)
        large += t->spare[i].pages >= t->record_pages;
    return large;
}

/* How many more of at least so many pages are wanted; below 0: there are too many. Where no
 * record has more than a page there is one kind, else two. */
static int spares_short(const struct hth_tmpfs *t, uint64_t pages)
{
    int large = (int)spares_large(t);

    if (t->record_pages == 1)
        return (int)(SPARES_SMALL + SPARES_LARGE) - large;
    return pages >= t->record_pages ? (int)SPARES_LARGE - large
                                    : (int)SPARES_SMALL - ((int)t->spares - large);
}

static int spare_fill(int fd, uint64_t pages)
{
    static const unsigned char zeros[PAGE_BYTES];

    for (uint64_t i = 0; i < pages; i++)
        if (pwrite(fd, zeros, sizeof(zeros), (off_t)(i * PAGE_BYTES)) != (ssize_t)sizeof(zeros))
            return -1;
    return 0;
}

static int spare_make(struct hth_tmpfs *t, uint64_t pages)
{
    uint64_t number = ++t->spares_made;
    char name[FILE_NAME_BYTES];
    int fd, rc;

    spare_name(number, name);
    fd = hth_open_below(t->own_fd, name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return -1;
    rc = spare_fill(fd, pages);
    close(fd);
    if (rc || spare_note(t, number, pages * PAGE_BYTES)) {
        unlinkat(t->own_fd, name, 0);
        return -1;
    }
    return 0;
}

static void spare_forget(struct hth_tmpfs *t, unsigned at)
{
    t->spare[at] = t->spare[--t->spares];
}

/* Those that were wanted while the largest record was another. */
static void spares_thin(struct hth_tmpfs *t)
{
    char name[FILE_NAME_BYTES];

    for (unsigned i = 0; i < t->spares;) {
        if (spares_short(t, t->spare[i].pages) >= 0) {
            i++;
            continue;
        }
        spare_name(t->spare[i].number, name);
        unlinkat(t->own_fd, name, 0);
        spare_forget(t, i);
    }
}

/* What cannot be had now is asked for again after the next record. */
static void spares_fill(struct hth_tmpfs *t)
{
    spares_thin(t);
    while (spares_short(t, t->record_pages) > 0 && !spare_make(t, t->record_pages))
        continue;
    while (spares_short(t, 1) > 0 && !spare_make(t, 1))
        continue;
}

static void spares_know(struct hth_tmpfs *t, uint64_t bytes)
{
    if (spare_pages(bytes) > t->record_pages && bytes <= HTH_SPARE_MAX)
        t->record_pages = spare_pages(bytes);
}

/* ---- At open --------------------------------------------------------------------------------- */

static void spare_find(void *arg, const char *name)
{
    struct hth_tmpfs *t = arg;
    struct stat st;
    uint64_t number;
    char *end;

    if (fstatat(t->own_fd, name, &st, AT_SYMLINK_NOFOLLOW) || !spare_is_file(&st))
        return;
    if (!hth_spare_names(name)) {
        if (strncmp(name, "log", 3) != 0 && strncmp(name, NEW_FILE, strlen(NEW_FILE)) != 0)
            spares_know(t, (uint64_t)st.st_size);
        return;
    }
    number = strtoull(name + strlen(SPARE_FRONT), &end, 16);
    if (*end || st.st_size == 0 || spare_note(t, number, (uint64_t)st.st_size))
        unlinkat(t->own_fd, name, 0);
    else if (number > t->spares_made)
        t->spares_made = number;
}

void hth_spares_open(struct hth_tmpfs *t)
{
    t->spares = 0;
    t->record_pages = 1;
    hth_sys_each(t->own_fd, spare_find, t);
    spares_fill(t);
}

/* ---- Written --------------------------------------------------------------------------------- */

/* The one of at least so many pages that has the fewest; HTH_SPARES: none. */
static unsigned spare_best(
        const struct hth_tmpfs *t, uint64_t pages, const unsigned char *not_these)
{
    unsigned best = HTH_SPARES;

    for (unsigned i = 0; i < t->spares; i++)
        if (t->spare[i].pages >= pages && !not_these[i] &&
                (best == HTH_SPARES || t->spare[i].pages < t->spare[best].pages))
            best = i;
    return best;
}

/* Open for writing, and its name, which is not on the list any more; -1: none is large enough. */
static int spare_take(struct hth_tmpfs *t, uint64_t len, char name[FILE_NAME_BYTES])
{
    unsigned char tried[HTH_SPARES] = { 0 };
    unsigned at;
    int fd;

    while ((at = spare_best(t, spare_pages(len), tried)) < HTH_SPARES) {
        spare_name(t->spare[at].number, name);
        fd = hth_sys_open_file(t->own_fd, name, O_RDWR);
        if (fd >= 0 && !hth_sys_open_elsewhere(fd)) {
            spare_forget(t, at);
            return fd;
        }
        if (fd >= 0)
            close(fd);
        tried[at] = 1;
    }
    return -1;
}

/* A new file, whose memory is not ours yet. */
static int spare_new(struct hth_tmpfs *t, char name[FILE_NAME_BYTES])
{
    spare_name(++t->spares_made, name);
    unlinkat(t->own_fd, name, 0);
    return hth_sys_create(t, t->own_fd, name);
}

/* The file `spare-<n>` goes on as a spare, or goes. */
static void spare_back(struct hth_tmpfs *t, const char *name)
{
    uint64_t number = strtoull(name + strlen(SPARE_FRONT), NULL, 16);
    struct stat st;

    if (fstatat(t->own_fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return;
    if (!spare_is_file(&st) || st.st_size == 0 ||
            spares_short(t, spare_pages((uint64_t)st.st_size)) <= 0 ||
            spare_note(t, number, (uint64_t)st.st_size))
        unlinkat(t->own_fd, name, 0);
}

/* Gives the spare the name. A plain file of ours alone that has the name becomes a spare in its
 * place; anything else is replaced. */
static int spare_show(struct hth_tmpfs *t, const char *spare, int dir, const char *name)
{
    struct stat st;

    if (!fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && spare_is_file(&st) &&
            !hth_sys_exchange(t->own_fd, spare, dir, name)) {
        spare_back(t, spare);
        return 0;
    }
    return renameat(t->own_fd, spare, dir, name);
}

int hth_spare_lend(struct hth_tmpfs *t, uint64_t len, const char *name)
{
    char spare[FILE_NAME_BYTES];
    int fd = spare_take(t, len, spare);

    if (fd < 0)
        return -1;
    if (!ftruncate(fd, (off_t)len) && !renameat(t->own_fd, spare, t->own_fd, name))
        return fd;
    spare_back(t, spare);
    close(fd);
    return -1;
}

int hth_spare_write(struct hth_tmpfs *t, int dir, const char *name, const void *bytes, size_t len)
{
    char spare[FILE_NAME_BYTES];
    int fd = spare_take(t, len, spare), rc = 0, why;

    if (fd < 0)
        fd = spare_new(t, spare);
    if (fd < 0)
        return -1;
    if (len)
        rc = hth_sys_write(t, fd, bytes, len, 0);
    if (!rc)
        rc = ftruncate(fd, (off_t)len); /* never longer: takes no memory */
    close(fd);
    if (!rc)
        rc = spare_show(t, spare, dir, name);
    why = errno;
    if (rc)
        spare_back(t, spare);
    else
        spares_know(t, len);
    spares_fill(t);
    errno = why;
    return rc;
}

void hth_spare_remove(struct hth_tmpfs *t, const char *name)
{
    char spare[FILE_NAME_BYTES];
    struct stat st;

    spare_name(t->spares_made + 1, spare);
    if (!fstatat(t->own_fd, name, &st, AT_SYMLINK_NOFOLLOW) && spare_is_file(&st) &&
            !renameat2(t->own_fd, name, t->own_fd, spare, RENAME_NOREPLACE)) {
        t->spares_made++;
        spare_back(t, spare);
    } else {
        unlinkat(t->own_fd, name, 0);
    }
    spares_fill(t); /* of what else was removed with it */
}
