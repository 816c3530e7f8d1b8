/* SPDX-License-Identifier: Apache-2.0 */
/* Raw objects of the store in memory: a file in no directory until it is sealed. */
#include "store_mem_parts.h"

#include "core/format/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct raw {
    struct hth_raw pub; /* first */
    struct file *file;
    struct hth_save_id save;
};

static int raw_of_file(struct mem *m, struct hth_save_id save, struct file *f, struct hth_raw **out)
{
    struct raw *r = calloc(1, sizeof(*r));

    if (!r) {
        mem_file_end(m, f);
        return HEARTH_ENOMEM;
    }
    r->pub = (struct hth_raw){ f->len ? f->bytes : NULL, f->len, -1 };
    r->file = f;
    r->save = save;
    f->users++;
    *out = &r->pub;
    return 0;
}

int mem_raw_make(struct hth_store *s, struct hth_save_id save, const char *name, uint64_t len,
        struct hth_raw **out, struct hearth_error *err)
{
    struct mem *m = mem_of(s);
    struct file *f = NULL;
    struct dir *dir = NULL;
    int rc = hth_object_name_check(name, err);

    if (!rc && len > HTH_RAW_MAX)
        rc = hth_fail(err, HEARTH_EINVAL, 0, "'%s' of %" PRIu64 " bytes is too large", name, len);
    if (!rc)
        rc = mem_dir_get(m, save, &dir, err);
    if (!rc && mem_slot_named(m, dir, name, SEALED))
        rc = hth_fail(err, HEARTH_EEXIST, 0, "%s is an object of this save already", name);
    if (!rc)
        rc = mem_file_new(m, len, &f, err);
    if (!f)
        return rc;
    snprintf(f->name, sizeof(f->name), "%s", name);
    return raw_of_file(m, save, f, out);
}

int mem_raw_back(struct hth_store *s, struct hth_raw *raw, uint64_t off, uint64_t len,
        struct hearth_error *err)
{
    (void)raw, (void)off, (void)len;
    return mem_charge(mem_of(s), 0, err); /* made already */
}

int mem_raw_seal(struct hth_store *s, struct hth_raw *raw, struct hearth_error *err)
{
    struct raw *r = (struct raw *)raw;
    struct dir *dir = mem_dir_find(mem_of(s), r->save);
    char name[RECORD_MAX + 1];
    int rc;

    if (!dir)
        return hth_fail(err, HEARTH_ENOENT, 0, "the save is not here any more");
    if (mem_slot_named(mem_of(s), dir, r->file->name, SEALED))
        return hth_fail(err, HEARTH_EEXIST, 0, "%s is an object already", r->file->name);
    rc = mem_charge(mem_of(s), 0, err);
    if (rc)
        return rc;
    memcpy(name, r->file->name, sizeof(name));
    mem_file_name(mem_of(s), r->file, dir, name);
    return 0;
}

int mem_raw_open(struct hth_store *s, struct hth_save_id save, const char *name,
        struct hth_raw **out, struct hearth_error *err)
{
    struct dir *dir = mem_dir_find(mem_of(s), save);
    struct file *f = dir ? *mem_file_find(mem_of(s), dir, name) : NULL;

    if (!f)
        return hth_fail(
                err, HEARTH_ENOENT, 0, "there is no %s of " HTH_SAVE, name, HTH_SAVE_ARGS(save));
    return raw_of_file(mem_of(s), save, f, out);
}

void mem_raw_close(struct hth_store *s, struct hth_raw *raw)
{
    struct raw *r = (struct raw *)raw;

    if (!r)
        return;
    r->file->users--;
    mem_file_end(mem_of(s), r->file);
    free(r);
}
