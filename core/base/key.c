/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job key: its file, which is refused where others could have read or written it, and the one
 * place where it lies in memory. There are two while it is being changed:
 *
 *     file [old]  ─add─►  [old, new]  ─rotate─►  [new, old]  ─drop─►  [new]
 *
 * The first one dials and proves, both are taken, so that engines which have read the file at
 * different times, one step apart, understand each other.
 */
#include "auth.h"
#include "bytes.h"
#include "full.h"
#include "open.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT 64 /* hex digits */
#define KEYS 2

/* Root reads every file, and made this one readable by that group: as a Secret's with fsGroup. */
static int file_is_of_root_for_us(const struct stat *st)
{
    gid_t group[256];
    int n;

    if (st->st_uid != 0 || st->st_mode & 07337)
        return 0;
    if (!(st->st_mode & 0040) || st->st_gid == getegid())
        return 1;
    n = getgroups(sizeof(group) / sizeof(group[0]), group);
    for (int i = 0; i < n; i++)
        if (group[i] == st->st_gid)
            return 1;
    return 0;
}

static int file_check(int fd, const char *path, struct hearth_error *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return hth_fail(err, HEARTH_EINVAL, errno, "key file %s: %s", path, strerrordesc_np(errno));
    if (!S_ISREG(st.st_mode))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "key file %s is not a regular file: name the file itself", path);
    if (file_is_of_root_for_us(&st))
        return HEARTH_OK;
    if (st.st_uid != geteuid())
        return hth_fail(err, HEARTH_EINVAL, 0,
                "key file %s belongs to user %u with mode %04o and group %u, and this process is "
                "of user %u: chown it, make a copy of that user's own, or, if it is root's, chmod "
                "440 it and chgrp it to a group of that user",
                path, (unsigned)st.st_uid, (unsigned)st.st_mode & 07777, (unsigned)st.st_gid,
                (unsigned)geteuid());
    if (!st.st_nlink) /* it has no name that others could open, and as a memfd every bit of a mode */
        return HEARTH_OK;
    if (st.st_mode & 07177)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "key file %s has mode %04o, which lets others at it: chmod 600 it", path,
                (unsigned)st.st_mode & 07777);
    return HEARTH_OK;
}

static int key_digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Hex digits of one key. */
static int from_hex(unsigned char out[HTH_KEY], const unsigned char *text)
{
    for (size_t i = 0; i < HTH_KEY; i++, text += 2) {
        int high = key_digit(text[0]), low = key_digit(text[1]);

        if (high < 0 || low < 0)
            return 0;
        out[i] = (unsigned char)(high << 4 | low);
    }
    return 1;
}

/* How many keys text[n] is, the last one with or without its newline; 0: it is none. */
static unsigned keys_parse(unsigned char out[KEYS][HTH_KEY], const unsigned char *text, size_t n)
{
    unsigned count = n > TEXT + 1 ? 2 : 1;

    if (n == HTH_KEY) {
        memcpy(out[0], text, HTH_KEY);
        return 1;
    }
    if (n == (size_t)count * (TEXT + 1) && text[n - 1] == '\n')
        n--;
    if (n != (size_t)count * (TEXT + 1) - 1 || (count == 2 && text[TEXT] != '\n'))
        return 0;
    for (unsigned i = 0; i < count; i++)
        if (!from_hex(out[i], text + (size_t)i * (TEXT + 1)))
            return 0;
    return count;
}

/* Fewer values than 32 random bytes ever have (12 of 256: once in 10^25), alone or as steps from
 * one byte to the next: zeros, a few bytes again and again, a count. */
static int key_is_even(const unsigned char key[HTH_KEY])
{
    unsigned char value[256] = { 0 }, step[256] = { 0 };
    unsigned values = 0, steps = 0;

    for (unsigned i = 0; i < HTH_KEY; i++) {
        values += !value[key[i]];
        value[key[i]] = 1;
    }
    for (unsigned i = 1; i < HTH_KEY; i++) {
        unsigned char s = (unsigned char)(key[i] - key[i - 1]);

        steps += !step[s];
        step[s] = 1;
    }
    hth_wipe(value, sizeof(value));
    hth_wipe(step, sizeof(step));
    return values < 12 || steps < 12;
}

const char *hth_key_weak(const unsigned char key[HTH_KEY])
{
    unsigned letters = 0;

    for (unsigned i = 0; i < HTH_KEY; i++)
        letters += key[i] >= ' ' && key[i] <= '~';
    if (letters == HTH_KEY)
        return "a text";
    return key_is_even(key) ? "a few bytes again and again, or a count" : NULL;
}

/* All that ever holds digits of the keys. */
struct hth_key_place {
    unsigned char key[KEYS][HTH_KEY];  /* in use; what is free has random bytes */
    unsigned char read[KEYS][HTH_KEY]; /* from the file */
    unsigned char text[KEYS * (TEXT + 1) + 1];
};

/* An attacker tries keys that are not random, and 32 zeros first. */
static int keys_check(const char *path, const struct hth_key_place *place, unsigned count,
        struct hearth_error *err)
{
    for (unsigned i = 0; i < count; i++) {
        const char *weak = hth_key_weak(place->read[i]);

        if (weak)
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "key file %s holds %s in the place of %d random bytes, which can be guessed: make a "
                    "key with `hearth key new`",
                    path, weak, HTH_KEY);
    }
    if (count == 2 && hth_secret_equal(place->read[0], place->read[1], HTH_KEY))
        return hth_fail(
                err, HEARTH_EINVAL, 0, "key file %s holds the same key twice: leave one out", path);
    return HEARTH_OK;
}

int hth_key_fd(const char *path)
{
    char *end;
    long fd;

    if (strncmp(path, "fd:", 3) != 0 || path[3] < '0' || path[3] > '9')
        return -1;
    fd = strtol(path + 3, &end, 10);
    return *end || fd > INT_MAX ? -1 : (int)fd;
}

/* A new descriptor of this process; for "fd:N" a duplicate, so that N stays open. */
static int key_file_open(const struct hth_key_opener *opener, const char *path)
{
    int fd = hth_key_fd(path);

    if (fd >= 0)
        return fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return opener ? opener->open(opener->self) : hth_open_named(path, O_RDONLY | O_NOFOLLOW);
}

/* To place->read; how many. */
static int key_load(const struct hth_key_opener *opener, const char *path,
        struct hth_key_place *place, unsigned *out_count, struct hearth_error *err)
{
    int fd = key_file_open(opener, path);
    ssize_t n = 0;
    int rc;

    if (fd < 0 && errno == ELOOP)
        return hth_fail(err, HEARTH_EINVAL, ELOOP,
                "key file %s is a symbolic link: name the file itself", path);
    if (fd < 0 && errno == EPIPE)
        return hth_fail(err, HEARTH_EINVAL, EPIPE,
                "key file %s: the process hearthd-key, which opens it for this engine, has ended: end "
                "the engine, so that another is started",
                path);
    if (fd < 0)
        return hth_fail(err, HEARTH_EINVAL, errno, "key file %s: %s%s", path,
                strerrordesc_np(errno),
                errno == EACCES
                        ? ": this user needs a copy of its own, or, if the file is root's, a "
                          "group that may read it (chmod 440, chgrp; fsGroup of a pod)"
                        : hth_limit_text(errno));

    rc = file_check(fd, path, err);
    if (!rc && (n = pread(fd, place->text, sizeof(place->text), 0)) < 0)
        rc = hth_fail(err, HEARTH_EINVAL, errno, "key file %s: %s", path, strerrordesc_np(errno));
    if (!rc && !(*out_count = keys_parse(place->read, place->text, (size_t)n)))
        rc = hth_fail(err, HEARTH_EINVAL, 0,
                "key file %s holds no key: write %d random bytes into it, or one or two lines of %d "
                "hex digits; `hearth key new` makes one",
                path, HTH_KEY, TEXT);
    rc = rc ? rc : keys_check(path, place, *out_count, err);
    close(fd);
    hth_wipe(place->text, sizeof(place->text));
    return rc;
}

/* The index of `read` among the keys in use; KEYS: it is not in use. */
static unsigned key_slot(const struct hth_key_place *place, const unsigned char *read)
{
    unsigned i = 0;

    while (i < KEYS && !hth_secret_equal(place->key[i], read, HTH_KEY))
        i++;
    return i;
}

/* Puts the keys of place->read into use. A handshake under way has a pointer to its key, so a key
 * that stays does not move. The place of a key that goes gets random bytes or the new key, never
 * zeros, which any stranger could guess. */
static void key_take(struct hth_key *key, unsigned count)
{
    struct hth_key_place *place = key->place;
    unsigned slot[KEYS] = { KEYS, KEYS };
    const unsigned char *at[KEYS] = { NULL, NULL };

    for (unsigned i = 0; i < count; i++)
        slot[i] = key_slot(place, place->read[i]);
    for (unsigned k = 0; k < KEYS; k++)
        if (slot[0] != k && slot[1] != k)
            hth_random_bytes(place->key[k], HTH_KEY);
    for (unsigned i = 0; i < count; i++) {
        if (slot[i] == KEYS) {
            slot[i] = slot[!i] == 0;
            memcpy(place->key[slot[i]], place->read[i], HTH_KEY);
        }
        at[i] = place->key[slot[i]];
    }
    key->bytes = at[0];
    key->other = at[1];
    key->id = hth_key_id(key->bytes);
    key->other_id = key->other ? hth_key_id(key->other) : 0;
}

int hth_key_reload(struct hth_key *key, const struct hth_key_opener *opener, const char *path,
        int *out_changed, struct hearth_error *err)
{
    uint32_t id = key->id, other_id = key->other_id;
    unsigned count = 0;
    int rc = key_load(opener, path, key->place, &count, err);

    if (!rc) {
        key_take(key, count);
        *out_changed = key->id != id || key->other_id != other_id;
    }
    hth_wipe(key->place->read, sizeof(key->place->read));
    return rc;
}

int hth_key_open_by(const struct hth_key_opener *opener, const char *path, struct hth_key *out,
        struct hearth_error *err)
{
    struct hth_key key = { 0 };
    int rc, changed;

    key.place = hth_secret_alloc(sizeof(*key.place), &key.locked);
    if (!key.place)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the job key");
    hth_random_bytes(key.place, sizeof(*key.place));
    rc = hth_key_reload(&key, opener, path, &changed, err);
    if (rc)
        hth_secret_free(key.place);
    else
        *out = key;
    return rc;
}

int hth_key_open(const char *path, struct hth_key *out, struct hearth_error *err)
{
    return hth_key_open_by(NULL, path, out, err);
}

void hth_key_close(struct hth_key *key)
{
    if (!key)
        return;
    hth_secret_free(key->place);
    *key = (struct hth_key){ 0 };
}

void hth_key_line(char out[HTH_KEY_LINE], const unsigned char key[HTH_KEY])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < HTH_KEY; i++) {
        out[2 * i] = digits[key[i] >> 4];
        out[2 * i + 1] = digits[key[i] & 15];
    }
    out[HTH_KEY_LINE - 1] = '\n';
}

uint32_t hth_key_id(const unsigned char key[HTH_KEY])
{
    unsigned char out[HTH_KEY];
    uint32_t id;

    hth_subkey(out, key, "hearth key id 1");
    id = hth_get32(out);
    return id ? id : 1;
}

const unsigned char *hth_key_of(const struct hth_key *key, uint32_t id)
{
    if (!id || id == key->id)
        return key->bytes;
    return key->other && id == key->other_id ? key->other : NULL;
}
