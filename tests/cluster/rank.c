/* SPDX-License-Identifier: Apache-2.0 */
/* A rank: cluster_job at the other end of two pipes. One line asks, one line answers. */
#include "cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGS 40

struct args {
    char text[ARGS][256];
    char *argv[ARGS + 2];
    int count;
};

__attribute__((format(printf, 2, 3))) static void add(struct args *a, const char *format, ...)
{
    va_list ap;

    if (a->count == ARGS)
        return;
    va_start(ap, format);
    vsnprintf(a->text[a->count], sizeof(a->text[0]), format, ap);
    va_end(ap);
    a->argv[a->count + 1] = a->text[a->count];
    a->count++;
}

uint32_t rank_port(const struct world *w)
{
    return 7000 + w->launches % 1000;
}

static void fill(const struct world *w, uint32_t r, const struct node *n, struct args *a)
{
    add(a, "root=%s", n->root);
    add(a, "job=job");
    add(a, "node=%s", n->name);
    add(a, "bind=%s", n->bind);
    if (w->no_tcp & 1u << w->seat[r])
        add(a, "engine=%.240s/without-tcp/bin/hearthd", w->dir);
    else
        add(a, "engine=%.240s/hearthd", w->bin);
    add(a, "transport=%s", w->transport);
    if (w->provider)
        add(a, "provider=%s", w->provider);
    add(a, "rank=%u", r);
    add(a, "world=%u", w->ranks);
    add(a, "meet=%s", w->node[w->seat[0]].address);
    add(a, "port=%u", rank_port(w));
    add(a, "copies=%u", w->copies);
    add(a, "min_copies=%u", w->min_copies);
    add(a, "keep=%u", w->keep);
    add(a, "degraded=%u", w->degraded);
    add(a, "kib=%u", w->kib);
    add(a, "any_root=%d", !w->namespaces);
    add(a, "open_ms=%u", w->open_ms);
    add(a, "save_ms=%u", w->save_ms);
    add(a, "recover_ms=%u", w->recover_ms);
    add(a, "common_kib=%u", w->common_kib);
    add(a, "rows=%u", w->rows);
    add(a, "whole=%u", w->whole);
    add(a, "untold=%u", w->untold);
    add(a, "dead_ms=%u", w->dead_ms ? w->dead_ms : 2000);
    if (w->start)
        add(a, "start=%s", w->start);
    if (w->no_ofi & 1u << w->seat[r])
        add(a, "fabric_library=/nonexistent/libfabric.so.1");
    if (w->no_ucx & 1u << w->seat[r])
        add(a, "ucx_library=/nonexistent/libucp.so.0");
    if (w->key[0])
        add(a, "key_file=%s", w->key);
    if (!w->key[0] || w->trusted)
        add(a, "trusted=1");
    if (w->strong)
        add(a, "strong=1");
    if (w->allow_slower)
        add(a, "allow_slower=1");
    add(a, "machine=m%u", w->seat[r] / (w->pods ? w->pods : 1));
    if (w->racks)
        add(a, "domain=rack%u", w->seat[r] % w->racks);
}

static void be_rank(const struct world *w, uint32_t r, uint32_t node, int in, int out)
{
    static struct args a;
    char program[400];
    int log = fileno(w->log);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in, 0);
    dup2(out, 1);
    dup2(log, 2);
    fill(w, r, &w->node[node], &a);
    snprintf(program, sizeof(program), "%s/cluster_job", w->bin);
    a.argv[0] = program;
    execv(program, a.argv);
    _exit(127);
}

int rank_start(struct world *w, uint32_t r, uint32_t node)
{
    struct rank *k = &w->rank[r];
    int in[2], out[2];

    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
        return lost(w, "no pipe: %s", strerror(errno));
    *k = (struct rank){ .node = node, .in = in[1], .out = out[0], .pending = 1 };
    snprintf(k->asked, sizeof(k->asked), "open");
    k->pid = node_fork(w, node);
    if (k->pid == 0)
        be_rank(w, r, node, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    return k->pid > 0 ? 0 : lost(w, "cannot start rank %u on %s", r, w->node[node].name);
}

void rank_kill(struct world *w, uint32_t r)
{
    struct rank *k = &w->rank[r];

    if (!k->pid)
        return;
    kill(k->pid, SIGKILL);
    while (waitpid(k->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    close(k->in);
    close(k->out);
    *k = (struct rank){ .node = k->node };
}

int rank_post(struct world *w, uint32_t r, const char *line)
{
    struct rank *k = &w->rank[r];
    char text[256];
    int n = snprintf(text, sizeof(text), "%s\n", line);

    snprintf(k->asked, sizeof(k->asked), "%.60s", line);
    k->pending = 1;
    note(w, "rank %u <- %s", r, line);
    return k->pid && write(k->in, text, (size_t)n) == n
                   ? 0
                   : lost(w, "rank %u is not there to be told '%s'", r, line);
}

/* The first whole line that was read: 1 and gone from the buffer. */
static int take_line(struct rank *k, char *out, size_t len)
{
    char *end = memchr(k->text, '\n', k->have);
    size_t n = end ? (size_t)(end - k->text) : 0;
    size_t fits = n < len ? n : len - 1;

    if (!end)
        return 0;
    memcpy(out, k->text, fits);
    out[fits] = '\0';
    k->have -= n + 1;
    memmove(k->text, end + 1, k->have);
    return 1;
}

int rank_poll(struct world *w, uint32_t r, unsigned ms)
{
    struct rank *k = &w->rank[r];
    struct pollfd p = { .fd = k->out, .events = POLLIN };
    uint64_t until = now_ms() + ms;
    ssize_t n;

    for (;;) {
        while (k->pending && take_line(k, k->answer, sizeof(k->answer))) {
            note(w, "rank %u -> %s", r, k->answer);
            if (!w->loses_engines && !strncmp(k->answer, "log engine-lost", 15))
                w->surprised = 1;
            if (!strncmp(k->answer, "ok ", 3) || !strncmp(k->answer, "err ", 4))
                k->pending = 0;
        }
        if (!k->pending)
            return 1;
        n = now_ms() < until ? (ssize_t)(until - now_ms()) : 0;
        if (!k->pid || poll(&p, 1, (int)n) <= 0)
            return 0;
        n = read(k->out, k->text + k->have, sizeof(k->text) - k->have);
        if (n <= 0) {
            snprintf(k->answer, sizeof(k->answer), "err end 0 its process has ended");
            k->pending = 0;
            note(w, "rank %u has ended", r);
            return 1;
        }
        k->have += (size_t)n;
    }
}

int rank_answer(struct world *w, uint32_t r, unsigned ms)
{
    struct rank *k = &w->rank[r];

    if (!rank_poll(w, r, ms))
        return lost(w, "rank %u did not answer '%s' in %u ms", r, k->asked, ms);
    if (w->surprised) {
        char words[2400];

        node_last_words(w, words, sizeof(words));
        return lost(w, "an engine ended that nobody had ended, when rank %u was asked '%s'%s", r,
                k->asked, words);
    }
    return !strncmp(k->answer, "ok ", 3) ? 0 : lost(w, "rank %u, %s: %s", r, k->asked, k->answer);
}

int rank_refusal(struct world *w, uint32_t r, unsigned ms, const char *part)
{
    struct rank *k = &w->rank[r];

    if (!rank_poll(w, r, ms))
        return lost(w, "rank %u did not answer '%s' in %u ms", r, k->asked, ms);
    if (strncmp(k->answer, "err ", 4) != 0)
        return lost(w, "rank %u, %s: %s, and an error was due", r, k->asked, k->answer);
    return strstr(k->answer, part) ? 0
                                   : lost(w, "rank %u, %s: the error does not say '%s': %s", r,
                                             k->asked, part, k->answer);
}
