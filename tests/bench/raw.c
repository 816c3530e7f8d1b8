/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport alone: an owner and a puller, each a process with one transport, sleeping on its
 * descriptor. The puller brings the owner's region over in pieces as the engine does, without
 * sessions, checksums or a catalogue.
 */
#include "bench.h"
#include "side.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE  (UINT64_C(4) << 20)
#define WINDOW 4u

static struct side side;
static struct {
    struct hth_region *region;
    uint64_t *at, bytes, issued, here;
    unsigned under_way;
    int granted;
    unsigned char desc[HTH_DESC_MAX];
    uint32_t desc_len;
} pulls;

static void owner_asked(struct side *s, hth_conn conn, const void *bytes, size_t len)
{
    struct hearth_error err = { 0 };

    (void)bytes, (void)len;
    if (s->t->ops->grant(
                s->t, pulls.region, 0, pulls.bytes, conn, pulls.desc, &pulls.desc_len, &err))
        die("raw grant: %s", err.text);
    side_send(s, conn, pulls.desc, pulls.desc_len);
}

static void puller_told(struct side *s, hth_conn conn, const void *bytes, size_t len)
{
    (void)s, (void)conn;
    memcpy(pulls.desc, bytes, len);
    pulls.desc_len = (uint32_t)len;
    pulls.granted = 1;
}

static void pull_ended(struct side *s, uint64_t cookie, int code)
{
    if (code)
        die("%s: raw pull: %s", s->backend, hearth_strerror(code));
    pulls.here += cookie;
    pulls.under_way--;
}

static void half_open(const char *backend, const char *base, uint64_t bytes, const char *bind)
{
    struct hearth_error err = { 0 };

    pulls.at = file_memory(base, bind, bytes);
    pulls.bytes = bytes;
    fill(pulls.at, bytes, (uint64_t)bind[8]); /* by the last number of the address */
    side_open(&side, backend, bind);
    if (side.t->ops->reg(side.t, pulls.at, bytes, &pulls.region, &err))
        die("%s: %s", backend, err.text);
}

static void issue(void)
{
    while (pulls.under_way < WINDOW && pulls.issued < pulls.bytes) {
        uint64_t left = pulls.bytes - pulls.issued, len = left < PIECE ? left : PIECE;
        int rc = side.t->ops->pull(side.t, side.conn, pulls.desc, pulls.desc_len, pulls.issued,
                pulls.region, pulls.issued, len, len);

        if (rc == HEARTH_EBUSY)
            return;
        if (rc)
            die("raw pull: %s", hearth_strerror(rc));
        pulls.issued += len;
        pulls.under_way++;
    }
}

static void owner_run(const void *arg, int out)
{
    const struct pull_job *job = arg;

    side.on_message = owner_asked;
    half_open(job->backend, job->base, job->bytes, "127.0.0.1");
    side_serve(&side, out);
}

static void puller_run(const void *arg, int address, int in, int out)
{
    const struct pull_job *job = arg;
    int first = 1;
    char order;

    side.on_message = puller_told;
    side.on_pull = pull_ended;
    half_open(job->backend, job->base, job->bytes, "127.0.0.2");
    side_dial(&side, address);
    side_send(&side, side.conn, "?", 1);
    while (!pulls.granted)
        side_turn(&side, -1, 0);
    for (;;) {
        double took;

        while (!side_turn(&side, in, 0))
            continue;
        if (read(in, &order, 1) != 1)
            _exit(0);
        took = -now_s();
        for (pulls.here = pulls.issued = 0; pulls.here < pulls.bytes; side_turn(&side, -1, 0))
            issue();
        took += now_s();
        if (first)
            check(pulls.at, pulls.bytes, '1');
        first = 0;
        if (write(out, &took, sizeof(took)) != sizeof(took))
            _exit(1);
    }
}

void raw_start(struct peers *p, const struct pull_job *job)
{
    peers_start(p, owner_run, puller_run, job);
    peers_pull(p); /* pages, paths and comparison of the first time */
}
