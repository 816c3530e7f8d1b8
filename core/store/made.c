/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names are those that store_tmpfs.h draws. An entry that has another name, or a link, or a
 * directory where a file should be, was put there by another program.
 *
 * A save's directory lies beside the user's own files, and its objects have the framework's names.
 * So there the name alone does not count: the object has Hearth's block with this job's name, or
 * the save's manifest lists it. Raw objects have no block, and the manifest goes before them;
 * `<save>.dir` says then that the directory is Hearth's.
 */
#include "made.h"

#include "core/base/open.h"
#include "core/format/block.h"
#include "tmpfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- .hearth/ -------------------------------------------------------------------------------- */

static int made_is_hex(const char *text)
{
    return *text && text[strspn(text, "0123456789abcdef")] == '\0';
}

/* `<save>.dir`, `<save>.manifest`. */
static int made_is_of_save(const char *name)
{
    char text[HTH_SAVE_TEXT];
    struct hth_save_id id;

    if (strnlen(name, HTH_SAVE_TEXT) < HTH_SAVE_TEXT)
        return 0;
    memcpy(text, name, HTH_SAVE_TEXT - 1);
    text[HTH_SAVE_TEXT - 1] = '\0';
    name += HTH_SAVE_TEXT - 1;
    return !hth_save_parse(text, &id) && (!strcmp(name, ".dir") || !strcmp(name, ".manifest"));
}

enum hth_made hth_made_record(const char *name)
{
    static const char *const files[] = { "lock", "store", "sock", "port", "log", "log.1", "epoch",
        "fabric", "handed", "head", "keep", "life", "plans", "running", "stopped", "stopped.new",
        NEW_FILE };
    struct hth_save_id id;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (!strcmp(name, files[i]))
            return HTH_MADE_FILE;
    if (!strcmp(name, "pool"))
        return HTH_MADE_POOL;
    if (!strcmp(name, "evidence"))
        return HTH_MADE_EVIDENCE;
    if (!hth_save_parse(name, &id))
        return HTH_MADE_SAVE;
    if (made_is_of_save(name) || hth_spare_names(name) ||
            (!strncmp(name, NEW_RAW, sizeof(NEW_RAW) - 1) &&
                    made_is_hex(name + sizeof(NEW_RAW) - 1)))
        return HTH_MADE_FILE;
    return HTH_MADE_NOT;
}

/* As hth_slot_name() writes it. */
int hth_made_slot(const char *name)
{
    return strlen(name) == 16 && made_is_hex(name);
}

int hth_made_evidence(const char *name)
{
    size_t hex = strspn(name, "0123456789abcdef");

    return !strncmp(name, "torn-", 5) || (hex && name[hex] == '-');
}

/* ---- a save's directory ---------------------------------------------------------------------- */

static int made_block(int fd, const char *job, struct hth_block *out)
{
    unsigned char bytes[HTH_BLOCK];
    struct stat st;

    return fd >= 0 && !fstat(fd, &st) &&
           pread(fd, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes) &&
           !hth_block_decode(out, bytes, sizeof(bytes), (uint64_t)st.st_size, NULL) && out->own &&
           !strcmp(out->job, job);
}

/* A record whole; NULL: it cannot be read. */
static void *made_read(int records, const char *name, size_t *out_len)
{
    int fd = hth_open_file(records, name, O_RDONLY);
    void *bytes = NULL;
    struct stat st;

    if (fd >= 0 && !fstat(fd, &st) && st.st_size <= (off_t)HTH_SPARE_MAX)
        bytes = calloc(1, (size_t)st.st_size + 1);
    *out_len = bytes ? (size_t)st.st_size : 0;
    if (bytes && pread(fd, bytes, *out_len, 0) != st.st_size) {
        free(bytes);
        bytes = NULL;
    }
    if (fd >= 0)
        close(fd);
    return bytes;
}

/* "inode <hex>" */
static int made_inode(int records, const char *name, uint64_t *out)
{
    static const char front[] = "inode ";
    size_t len;
    char *text = made_read(records, name, &len);
    int is = text && !strncmp(text, front, sizeof(front) - 1);

    if (is)
        *out = strtoull(text + sizeof(front) - 1, NULL, 16);
    free(text);
    return is;
}

/* By a record that names the directory's inode. */
static int made_by_inode(int records, int dir, struct hth_save_id *out)
{
    DIR *list = hth_open_list(records);
    struct dirent *e;
    struct stat st;
    int found = 0;

    while (list && !found && !fstat(dir, &st) && (e = readdir(list))) {
        size_t len = strlen(e->d_name);
        uint64_t inode;

        if (!made_is_of_save(e->d_name) || strcmp(e->d_name + len - 4, ".dir") != 0 ||
                !made_inode(records, e->d_name, &inode) || inode != (uint64_t)st.st_ino)
            continue;
        e->d_name[len - 4] = '\0';
        found = !hth_save_parse(e->d_name, out);
    }
    if (list)
        closedir(list);
    return found;
}

static int made_by_block(int dir, const char *job, struct hth_save_id *out)
{
    DIR *list = hth_open_list(dir);
    const struct dirent *e;
    struct hth_block block;
    int found = 0, fd;

    while (list && !found && (e = readdir(list))) {
        fd = hth_open_file(dir, e->d_name, O_RDONLY);
        found = made_block(fd, job, &block);
        if (fd >= 0)
            close(fd);
    }
    if (list)
        closedir(list);
    if (found)
        *out = block.save;
    return found;
}

static void made_list(struct hth_made_save *save, int records)
{
    char name[FILE_NAME_BYTES], text[HTH_SAVE_TEXT];
    size_t len;
    void *bytes;

    hth_save_text(save->id, text);
    snprintf(name, sizeof(name), "%s.manifest", text);
    bytes = made_read(records, name, &len);
    save->listed = bytes && !hth_manifest_decode(&save->manifest, bytes, len, NULL);
    free(bytes);
}

int hth_made_of(int records, int dir, const char *name, const char *job, struct hth_made_save *out)
{
    struct hth_made_save save = { .job = job, .hidden = name != NULL };
    int known = made_by_block(dir, job, &save.id);
    struct hth_save_id id;

    save.named = made_by_inode(records, dir, &id) || (name && !hth_save_parse(name, &id));
    if (!known && !save.named)
        return 0;
    if (!known)
        save.id = id;
    made_list(&save, records);
    *out = save;
    return 1;
}

void hth_made_fini(struct hth_made_save *save)
{
    if (save->listed)
        hth_manifest_fini(&save->manifest);
    save->listed = 0;
}

/* A name that an object of ours may have, or had while it was received. */
static int made_object_name(const char *name, char plain[HTH_NAME_MAX + 1])
{
    size_t len = strlen(name), tmp = sizeof(TMP_SUFFIX) - 1;

    if (len > tmp && !strcmp(name + len - tmp, TMP_SUFFIX))
        len -= tmp;
    if (len > HTH_NAME_MAX)
        return 0;
    memcpy(plain, name, len);
    plain[len] = '\0';
    return !hth_object_name_check(plain, NULL);
}

int hth_made_object(const struct hth_made_save *save, int fd, const char *name)
{
    char plain[HTH_NAME_MAX + 1];
    struct hth_block block;

    if (made_block(fd, save->job, &block))
        return 1;
    if (!made_object_name(name, plain))
        return 0;
    for (uint32_t i = 0; save->listed && i < save->manifest.objects; i++)
        if (!strcmp(save->manifest.object[i].name, plain))
            return 1;
    return save->hidden || (!save->listed && save->named);
}
