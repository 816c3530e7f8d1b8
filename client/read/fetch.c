/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that the engine has or brings: asked for, and mapped as they come. */
#include "fetch.h"

#include "core/base/fail.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int hth_map_answer(int fd, uint64_t len, void **out, struct hearth_error *err)
{
    struct stat st;
    void *p = NULL;
    int ok, why;

    if (fd < 0)
        return hth_fail(err, HEARTH_EPROTO, 0, HTH_NO_DESCRIPTOR);
    ok = fstat(fd, &st) == 0 && (uint64_t)st.st_size >= len;
    if (ok && len)
        p = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
    why = errno;
    close(fd);
    if (!ok)
        return hth_fail(err, HEARTH_EPROTO, 0,
                "the engine sent less than the %" PRIu64 " bytes it spoke of", len);
    if (p == MAP_FAILED)
        return hth_fail(err, HEARTH_ENOMEM, why, "map %" PRIu64 " bytes: %s", len, strerror(why));
    *out = p;
    return HEARTH_OK;
}

struct hth_ask hth_bytes_ask(enum hth_local_type type, struct hth_local_map *m,
        struct hth_local_bytes *answer, int *out_fd)
{
    return (struct hth_ask){ .msg = m,
        .len = sizeof(*m),
        .type = type,
        .want = HTH_LOCAL_BYTES,
        .fd = -1,
        .again = 1,
        .answer = answer,
        .answer_len = sizeof(*answer),
        .out_fd = out_fd,
        .wait_ms = HTH_REQUEST_MS };
}

struct hth_ask hth_range_ask(struct hth_local_map *m, struct hth_local_bytes *a, int *out_fd)
{
    struct hth_ask ask = hth_bytes_ask(HTH_LOCAL_RANGE, m, a, out_fd);

    ask.wait_ms += (m->len >> 20) * 100;
    ask.what = "fetch from another node";
    return ask;
}

int hth_range(struct hearth *h, struct hth_save_id save, uint64_t object, uint64_t off,
        uint64_t len, struct hth_local_bytes *out, int *out_fd, struct hearth_error *err)
{
    struct hth_local_map m = {
        .save = hth_local_save_of(save), .object = object, .off = off, .len = len
    };
    struct hth_ask ask = hth_range_ask(&m, out, out_fd);
    int rc;

    *out_fd = -1;
    if ((rc = hth_ask(h, &ask, err)))
        return rc;
    if (out->len == len)
        return HEARTH_OK;
    if (*out_fd >= 0)
        close(*out_fd);
    return hth_fail(err, HEARTH_EPROTO, 0,
            "the engine brought %" PRIu64 " bytes where %" PRIu64 " were asked for", out->len, len);
}

void hth_tell_bad(struct hearth *h, struct hth_save_id save, uint64_t object, uint64_t chunk)
{
    struct hth_local_bad m = { .save = hth_local_save_of(save), .object = object, .chunk = chunk };
    struct hth_ask tell = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_BAD,
        .fd = -1,
        .again = 1,
        .what = "tell of a wrong chunk" };

    hth_tell(h, &tell, NULL);
}
