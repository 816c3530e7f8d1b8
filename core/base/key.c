/* SPDX-License-Identifier: Apache-2.0 */
/* The job key: its file, which is refused where others could have read or written it, and the one
 * place where it lies in memory. */
#include "auth.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT 64 /* hex digits */

static int file_check(int fd, const char *path, struct hearth_error *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return hth_fail(err, HEARTH_EINVAL, errno, "key file %s: %s", path, strerrordesc_np(errno));
    if (!S_ISREG(st.st_mode))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "key file %s is not a regular file: name the file itself", path);
    if (st.st_uid != geteuid())
        return hth_fail(err, HEARTH_EINVAL, 0,
                "key file %s belongs to user %u and not to us, user %u: chown it, or make an own "
                "copy",
                path, (unsigned)st.st_uid, (unsigned)geteuid());
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

/* 1: text[n] is hex digits, with or without a newline. */
static int from_hex(unsigned char out[HTH_KEY], const unsigned char *text, size_t n)
{
    if (n == TEXT + 1 && text[TEXT] == '\n')
        n--;
    if (n != TEXT)
        return 0;
    for (size_t i = 0; i < HTH_KEY; i++, text += 2) {
        int high = key_digit(text[0]), low = key_digit(text[1]);

        if (high < 0 || low < 0)
            return 0;
        out[i] = (unsigned char)(high << 4 | low);
    }
    return 1;
}

static int key_parse(const char *path, unsigned char out[HTH_KEY], const unsigned char *bytes,
        ssize_t n, struct hearth_error *err)
{
    if (n == HTH_KEY) {
        memcpy(out, bytes, HTH_KEY);
        return HEARTH_OK;
    }
    if (n > 0 && from_hex(out, bytes, (size_t)n))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, 0,
            "key file %s holds no key: write %d random bytes into it, or %d hex digits and a "
            "newline",
            path, HTH_KEY, TEXT);
}

/* All that ever holds digits of the key. */
struct place {
    unsigned char key[HTH_KEY], text[TEXT + 2];
};

static int key_load(const char *path, struct place *place, struct hearth_error *err)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t n = 0;
    int rc;

    if (fd < 0 && errno == ELOOP)
        return hth_fail(err, HEARTH_EINVAL, ELOOP,
                "key file %s is a symbolic link: name the file itself", path);
    if (fd < 0)
        return hth_fail(err, HEARTH_EINVAL, errno, "key file %s: %s", path, strerrordesc_np(errno));

    rc = file_check(fd, path, err);
    if (!rc && (n = read(fd, place->text, sizeof(place->text))) < 0)
        rc = hth_fail(err, HEARTH_EINVAL, errno, "key file %s: %s", path, strerrordesc_np(errno));
    if (!rc)
        rc = key_parse(path, place->key, place->text, n, err);
    close(fd);
    hth_wipe(place->text, sizeof(place->text));
    return rc;
}

int hth_key_open(const char *path, struct hth_key *out, struct hearth_error *err)
{
    struct hth_key key = { NULL, 0 };
    struct place *place = hth_secret_alloc(sizeof(*place), &key.locked);
    int rc;

    if (!place)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the job key");
    rc = key_load(path, place, err);
    if (rc) {
        hth_secret_free(place);
        return rc;
    }
    key.bytes = place->key; /* its first field */
    *out = key;
    return HEARTH_OK;
}

void hth_key_close(struct hth_key *key)
{
    if (!key)
        return;
    hth_secret_free(key->bytes);
    *key = (struct hth_key){ NULL, 0 };
}
