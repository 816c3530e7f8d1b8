/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks: forked from the case, so that a question is the address of a function and an answer a
 * struct, over a socket pair. A rank never outlives its case.
 */
#include "party.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MS 40000

struct question {
    deed *what;
    uint64_t arg[3];
};

static void serve(struct me *me, int fd)
{
    struct question q;

    while (recv(fd, &q, sizeof(q), 0) == (ssize_t)sizeof(q)) {
        struct answer a = { 0 };

        q.what(me, q.arg, &a);
        if (send(fd, &a, sizeof(a), MSG_NOSIGNAL) < 0)
            break;
    }
    _exit(0);
}

static uint16_t meeting_port;

void party_start_rank(struct party *p, uint32_t rank)
{
    static struct me me;
    struct seat *s = &p->seat[rank];
    int ends[2];
    pid_t parent = getpid();

    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "%s", strerror(errno));
    fflush(NULL);
    *s = (struct seat){ .pid = fork(), .fd = ends[0], .node = rank % p->nodes };
    CHECK(s->pid >= 0, "fork: %s", strerror(errno));
    if (s->pid > 0) {
        close(ends[1]);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    for (uint32_t r = 0; r < RANKS_MAX; r++)
        if (p->seat[r].pid || r == rank)
            close(p->seat[r].fd);
    me = (struct me){ .opts = p->opts, .rank = rank, .world = p->ranks, .bytes = p->bytes };
    me.opts.root = p->root[s->node];
    me.opts.node = me.opts.machine = p->name[s->node];
    me.opts.rank = rank;
    me.data = calloc(1, me.bytes);
    if (p->adjust)
        p->adjust(p, &me);
    serve(&me, ends[1]);
}

void party_start(struct party *p)
{
    p->launches++;
    meeting_port = port_keep();
    for (uint32_t r = 0; r < p->ranks; r++)
        party_start_rank(p, r);
    party_all(p, do_open, meeting_port, 0, 0);
}

void party_kill_rank(struct party *p, uint32_t rank)
{
    struct seat *s = &p->seat[rank];

    if (!s->pid)
        return;
    kill(s->pid, SIGKILL);
    while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    close(s->fd);
    *s = (struct seat){ .node = s->node };
}

void party_kill_ranks(struct party *p)
{
    for (uint32_t r = 0; r < p->ranks; r++)
        party_kill_rank(p, r);
}

void party_tell(struct party *p, uint32_t rank, deed *f, uint64_t a, uint64_t b, uint64_t c)
{
    struct question q = { f, { a, b, c } };

    CHECK(p->seat[rank].pid && send(p->seat[rank].fd, &q, sizeof(q), MSG_NOSIGNAL) > 0,
            "rank %u is not there to be told anything", rank);
}

int party_heard(struct party *p, uint32_t rank, unsigned ms)
{
    struct pollfd f = { .fd = p->seat[rank].fd, .events = POLLIN };

    return poll(&f, 1, (int)ms) > 0;
}

struct answer party_hear(struct party *p, uint32_t rank, unsigned ms)
{
    struct answer a = { 0 };

    CHECK(party_heard(p, rank, ms), "rank %u did not answer in %u ms", rank, ms);
    CHECK(recv(p->seat[rank].fd, &a, sizeof(a), 0) == (ssize_t)sizeof(a), "rank %u has died", rank);
    return a;
}

struct answer party_ask(struct party *p, uint32_t rank, deed *f, uint64_t a, uint64_t b, uint64_t c)
{
    party_tell(p, rank, f, a, b, c);
    return party_hear(p, rank, ANSWER_MS);
}

void party_all(struct party *p, deed *f, uint64_t a, uint64_t b, uint64_t c)
{
    for (uint32_t r = 0; r < p->ranks; r++)
        party_tell(p, r, f, a, b, c);
    for (uint32_t r = 0; r < p->ranks; r++) {
        struct answer got = party_hear(p, r, ANSWER_MS);

        CHECK(got.rc == 0, "rank %u: %s", r, got.err.text);
    }
}

/* One sentence that names the fault and has these words in it. */
void party_must_fail(const struct answer *a, int code, const char *part, const char *part2)
{
    CHECK(a->rc == code, "%d (%s) was due, but it is %d: %s", code, hearth_strerror(code), a->rc,
            a->err.text);
    CHECK(strlen(a->err.text) > 10 && !strchr(a->err.text, '\n'), "no sentence: '%s'", a->err.text);
    CHECK(!part || strstr(a->err.text, part), "'%s' is not in: %s", part, a->err.text);
    CHECK(!part2 || strstr(a->err.text, part2), "'%s' is not in: %s", part2, a->err.text);
}

/* ---- whole steps ----------------------------------------------------------------------------- */

void party_save(struct party *p, uint64_t step, uint64_t tag)
{
    party_all(p, do_save, step, tag, 0);
    party_all(p, do_wait, step, HEARTH_PROTECTED, 15000);
}

void party_recover(struct party *p, uint64_t step, uint64_t tag)
{
    for (uint32_t r = 0; r < p->ranks; r++)
        party_tell(p, r, do_recover, 0, 0, 0);
    for (uint32_t r = 0; r < p->ranks; r++) {
        struct answer a = party_hear(p, r, ANSWER_MS);

        CHECK(a.rc == 0, "rank %u: %s", r, a.err.text);
        CHECK(a.v[0] == step, "rank %u recovered step %llu, and %llu was due", r,
                (unsigned long long)a.v[0], (unsigned long long)step);
    }
    if (step)
        party_all(p, do_verify, step, tag, 0);
}

void party_restart(struct party *p)
{
    party_kill_ranks(p);
    party_start(p);
}
