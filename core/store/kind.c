/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a file of a save is a slot or a raw object. Its size says so, but for raw objects that
 * happen to have a slot's; of those the block at a slot's front, and the mode in which raw objects
 * are made:
 *
 *     block of this save   u+w     slot                  no block   u+w     slot, torn
 *     block of this save   no u+w  slot, after chmod     no block   no u+w  raw object
 *
 * If these two disagree, as after a chmod by another program, the save's manifest decides, if there
 * is one.
 */
#include "tmpfs.h"

#include "core/format/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int hth_kind_sized(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_size > 0 && (uint64_t)st->st_size % HTH_SLOT_ROUND == 0;
}

int hth_kind_block(const struct hth_tmpfs *t, int fd, uint64_t size, struct hth_block *out)
{
    unsigned char bytes[HTH_BLOCK];
    ssize_t n = pread(fd, bytes, sizeof(bytes), 0);

    return n == (ssize_t)sizeof(bytes) &&
           !hth_block_decode(out, bytes, sizeof(bytes), size, NULL) && out->own &&
           !strcmp(out->job, t->job);
}

static int kind_by_block(const struct hth_tmpfs *t, struct hth_save_id save, int dir,
        const char *name, const struct stat *st)
{
    struct hth_block block;
    int fd = hth_sys_open_file(dir, name, O_RDONLY), is;

    if (fd < 0)
        return 0;
    is = hth_kind_block(t, fd, (uint64_t)st->st_size, &block) && !hth_save_cmp(block.save, save);
    close(fd);
    return is;
}

/* 1: the manifest has it as a raw object. 0: as a slot, or there is none that can be read. */
static int kind_is_raw(struct hth_tmpfs *t, struct hth_save_id save, const char *name)
{
    char text[HTH_SAVE_TEXT], record[FILE_NAME_BYTES];
    struct hth_manifest m;
    size_t len;
    void *bytes;
    int raw = 0;

    hth_save_text(save, text);
    snprintf(record, sizeof(record), "%s.manifest", text);
    if (hth_small_get(t, t->own_fd, record, &bytes, &len, NULL))
        return 0;
    if (!hth_manifest_decode(&m, bytes, len, NULL)) {
        for (uint32_t i = 0; i < m.objects; i++)
            raw |= m.object[i].kind == HTH_OBJECT_RAW && !strcmp(m.object[i].name, name);
        hth_manifest_fini(&m);
    }
    free(bytes);
    return raw;
}

int hth_kind_is_slot(struct hth_tmpfs *t, struct hth_save_id save, int dir, const char *name,
        const struct stat *st)
{
    int writable = (st->st_mode & S_IWUSR) != 0, block;

    if (!hth_kind_sized(st))
        return 0;
    block = kind_by_block(t, save, dir, name, st);
    if (block == writable)
        return block;
    return !kind_is_raw(t, save, name);
}

int hth_kind_open(struct hth_tmpfs *t, int dir, const char *name, const struct stat *st)
{
    int fd;

    if (st->st_uid == geteuid() && !(st->st_mode & S_IWUSR)) {
        fd = hth_sys_open_file(dir, name, O_RDONLY);
        if (fd >= 0 && !fchmod(fd, 0600))
            hth_say(&t->opts.log, HEARTH_LOG_INFO, "mode",
                    "%s: %s had mode %03o and is made writable for its owner again", t->path, name,
                    (unsigned)st->st_mode & 0777);
        if (fd >= 0)
            close(fd);
    }
    return hth_sys_open_file(dir, name, O_RDWR);
}
