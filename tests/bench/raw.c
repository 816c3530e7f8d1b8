/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport alone: an owner and a puller, each a process with one transport, sleeping on its
 * descriptor. The puller brings the owner's region over in pieces as the engine does, without
 * sessions, checksums or a catalogue.
 */
#include "bench.h"
#include "side.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

/* A destination as a fresh node has it: a file's memory that no process has touched, and that was
 * never registered. */
static void make_new(const struct pull_job *job)
{
    struct hearth_error err = { 0 };
    char path[512];
    void *p;
    int fd;

    snprintf(path, sizeof(path), "%s/new", job->base);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || unlink(path) || fallocate(fd, 0, 0, (off_t)pulls.bytes))
        die("%s: %s", path, strerror(errno));
    p = mmap(NULL, pulls.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        die("%s: %s", path, strerror(errno));
    pulls.at = p;
    if (side.t->ops->reg(side.t, p, pulls.bytes, &pulls.region, &err))
        die("%s: %s", job->backend, err.text);
}

static void drop_new(void)
{
    side.t->ops->dereg(side.t, pulls.region);
    munmap(pulls.at, pulls.bytes);
}

static void pull_all(void)
{
    for (pulls.here = pulls.issued = 0; pulls.here < pulls.bytes; side_turn(&side, -1, 0))
        issue();
}

static double pull_into_new(const struct pull_job *job)
{
    struct hth_region *region = pulls.region;
    uint64_t *at = pulls.at;
    double took = -now_s();

    make_new(job);
    pull_all();
    took += now_s();
    drop_new();
    pulls.at = at;
    pulls.region = region;
    return took;
}

static void owner_run(const void *arg, int out)
{
    const struct pull_job *job = arg;

    side.on_message = owner_asked;
    side.port = job->port;
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
        if (order == 'n') {
            took = pull_into_new(job);
        } else {
            took = -now_s();
            pull_all();
            took += now_s();
        }
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
