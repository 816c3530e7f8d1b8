/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth key: makes the file of a job key and changes it, in steps that engines which run may read
 * at different times (core/base/key.c). A file is made whole under another name and then put in its
 * place. No key is printed; its id is.
 */
#include "cli.h"

#include "core/base/auth.h"
#include "core/base/full.h"
#include "core/base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file's directory, which is locked, and its name in there. */
struct key_place {
    int dir;
    const char *path, *name;
    char temporary[32];
};

/* In memory that is not swapped. */
struct key_text {
    unsigned char key[2][HTH_KEY];
    char line[2][HTH_KEY_LINE];
};

static int key_refused(int dir, const char *path, int why, struct hearth_error *err)
{
    return hth_fail(err, why == ENOENT || why == ENOTDIR ? HEARTH_ENOENT : HEARTH_EIO, why,
            "key file %s: %s", path, hth_full_text(dir, why));
}

static int key_place_open(struct key_place *p, const char *path, struct hearth_error *err)
{
    const char *slash = strrchr(path, '/');
    char dir[4096] = ".";
    unsigned char random[8];
    uint64_t number = 0;

    *p = (struct key_place){ .path = path, .name = slash ? slash + 1 : path };
    if (slash)
        snprintf(dir, sizeof(dir), "%.*s", (int)(slash == path ? 1 : slash - path), path);
    hth_random_bytes(random, sizeof(random));
    memcpy(&number, random, sizeof(number));
    snprintf(p->temporary, sizeof(p->temporary), ".key-%016" PRIx64, number);
    p->dir = hth_open_named(dir, O_RDONLY | O_DIRECTORY);
    if (p->dir < 0)
        return key_refused(-1, dir, errno, err);
    if (flock(p->dir, LOCK_EX)) { /* two that change the file come one after the other */
        int why = errno;

        close(p->dir);
        return key_refused(-1, dir, why, err);
    }
    return HEARTH_OK;
}

/* 0 or an errno. */
static int key_file_fill(const struct key_place *p, const struct key_text *t, unsigned count)
{
    const size_t len = (size_t)count * HTH_KEY_LINE;
    int fd = hth_open_below(p->dir, p->temporary, O_WRONLY | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
    ssize_t n;
    int why = 0;

    if (fd < 0)
        return errno;
    n = write(fd, t->line, len);
    if (n != (ssize_t)len)
        why = n < 0 ? errno : ENOSPC;
    else if (fsync(fd))
        why = errno;
    close(fd);
    return why;
}

/* `fresh`: there must be none yet. */
static int key_file_put(const struct key_place *p, struct key_text *t, unsigned count, int fresh,
        struct hearth_error *err)
{
    int why;

    for (unsigned i = 0; i < count; i++)
        hth_key_line(t->line[i], t->key[i]);
    why = key_file_fill(p, t, count);
    if (!why && (fresh ? linkat(p->dir, p->temporary, p->dir, p->name, 0)
                       : renameat(p->dir, p->temporary, p->dir, p->name)))
        why = errno;
    if (why || fresh)
        unlinkat(p->dir, p->temporary, 0);
    if (why == EEXIST)
        return hth_fail(err, HEARTH_EEXIST, why,
                "key file %s is there already: hearth key add puts another key beside the one it "
                "holds; remove it yourself if no node needs it",
                p->path);
    if (why)
        return key_refused(p->dir, p->path, why, err);
    fsync(p->dir);
    return HEARTH_OK;
}

/* ---- steps
 * ------------------------------------------------------------------------------------ */

/* Makes the keys that the file is to hold in t->key, and returns how many; or an error. `key` has
 * the keys that it holds now. */
typedef int (*step_fn)(
        const struct hth_key *key, const char *path, struct key_text *t, struct hearth_error *err);

/* Opens the key file. In place of HEARTH_EINVAL it returns HEARTH_ENOENT: there is no file;
 * HEARTH_EIO: it cannot be read; HEARTH_ECORRUPT: it is a link, holds no key, or has the wrong
 * mode. */
static int key_look(const char *path, struct hth_key *out, struct hearth_error *err)
{
    int rc = hth_key_open(path, out, err);

    if (rc != HEARTH_EINVAL)
        return rc;
    err->code = err->native == ENOENT || err->native == ENOTDIR ? HEARTH_ENOENT
                : err->native && err->native != ELOOP           ? HEARTH_EIO
                                                                : HEARTH_ECORRUPT;
    return err->code;
}

static int needs_two(
        const struct hth_key *key, const char *path, const char *what, struct hearth_error *err)
{
    if (key->other)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_ESTATE, 0,
            "key file %s holds one key, %08" PRIx32
            ", and there is none to %s: hearth key add puts "
            "one beside it",
            path, key->id, what);
}

static int key_add(
        const struct hth_key *key, const char *path, struct key_text *t, struct hearth_error *err)
{
    if (key->other)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "key file %s holds two keys, %08" PRIx32 " and %08" PRIx32
                ": hearth key rotate and drop come before another one",
                path, key->id, key->other_id);
    memcpy(t->key[0], key->bytes, HTH_KEY);
    do
        hth_random_bytes(t->key[1], HTH_KEY);
    while (hth_key_id(t->key[1]) == key->id);
    return 2;
}

static int key_rotate(
        const struct hth_key *key, const char *path, struct key_text *t, struct hearth_error *err)
{
    int rc = needs_two(key, path, "put first", err);

    if (rc)
        return rc;
    memcpy(t->key[0], key->other, HTH_KEY);
    memcpy(t->key[1], key->bytes, HTH_KEY);
    return 2;
}

static int key_drop(
        const struct hth_key *key, const char *path, struct key_text *t, struct hearth_error *err)
{
    int rc = needs_two(key, path, "drop", err);

    if (rc)
        return rc;
    memcpy(t->key[0], key->bytes, HTH_KEY);
    return 1;
}

static int key_step(const char *path, step_fn step, struct key_text *t, struct hearth_error *err)
{
    struct key_place p;
    struct hth_key key;
    int rc = key_place_open(&p, path, err), count;

    if (rc)
        return rc;
    rc = key_look(path, &key, err);
    if (!rc) {
        count = step(&key, path, t, err);
        rc = count < 0 ? count : key_file_put(&p, t, (unsigned)count, 0, err);
        hth_key_close(&key);
    }
    close(p.dir);
    return rc;
}

static int key_new(const char *path, struct key_text *t, struct hearth_error *err)
{
    struct key_place p;
    int rc = key_place_open(&p, path, err);

    if (rc)
        return rc;
    hth_random_bytes(t->key[0], HTH_KEY);
    rc = key_file_put(&p, t, 1, 1, err);
    close(p.dir);
    return rc;
}

/* ---- the command
 * -------------------------------------------------------------------------------- */

static int key_list(const char *path, struct hearth_error *err)
{
    struct hth_key key;
    int rc = key_look(path, &key, err);

    if (rc)
        return rc;
    say("%08" PRIx32 "  dials and proves\n", key.id);
    if (key.other)
        say("%08" PRIx32 "  is taken as well\n", key.other_id);
    hth_key_close(&key);
    return HEARTH_OK;
}

enum status run_key(const struct args *a)
{
    static const struct {
        const char *name;
        step_fn step;
    } steps[] = { { "add", key_add }, { "rotate", key_rotate }, { "drop", key_drop } };
    const char *what = a->value[0], *path = a->value[1];
    struct hearth_error err = { 0 };
    struct key_text *t;
    step_fn step = NULL;
    int rc;

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        if (!strcmp(what, steps[i].name))
            step = steps[i].step;
    if (!step && strcmp(what, "new") != 0 && strcmp(what, "ls") != 0)
        return complain_usage("key: '%.64s' is none of new, add, rotate, drop, ls", what);
    if ((rc = hth_auth_init(&err)))
        return complain(&err);
    t = hth_secret_alloc(sizeof(*t), NULL);
    if (!t)
        rc = hth_fail(&err, HEARTH_ENOMEM, 0, "no memory for a key");
    else if (step)
        rc = key_step(path, step, t, &err);
    else if (!strcmp(what, "new"))
        rc = key_new(path, t, &err);
    hth_secret_free(t);
    if (!rc)
        rc = key_list(path, &err);
    return rc ? complain(&err) : STATUS_OK;
}
