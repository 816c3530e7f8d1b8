/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of one rank per node on this machine: a process each, and the engine that it starts. The
 * parent speaks to them in orders of fixed size and never uses the library itself.
 */
#include "bench.h"
#include "port.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS     120000u
#define READ_SLICES 100u
#define CALL_SLICES 1000u /* in one call */

struct ordered {
    uint32_t order;
    uint64_t step;
};

static struct {
    struct hearth *h;
    struct hearth_bootstrap *boot;
    uint64_t *data;
    uint64_t bytes;
    uint32_t rank;
    char root[256];
} me;

void job_root(const struct job *j, uint32_t node, char out[256])
{
    snprintf(out, 256, "%.200s/n%u", j->base, node);
}

static int all_of(int fd, void *bytes, size_t len, int writing)
{
    for (size_t at = 0; at < len;) {
        char *p = (char *)bytes + at;
        ssize_t n = writing ? write(fd, p, len - at) : read(fd, p, len - at);

        if (n <= 0 && !(n < 0 && errno == EINTR))
            return -1;
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* ---- the rank -------------------------------------------------------------------------------- */

static uint64_t seed_of(uint32_t rank, uint64_t step)
{
    return step * 64 + rank + 1;
}

static struct hearth_piece my_piece(char key[16], int64_t *n)
{
    snprintf(key, 16, "rank/%u", me.rank);
    *n = (int64_t)(me.bytes / 8);
    return (struct hearth_piece){ .struct_size = sizeof(struct hearth_piece),
        .key = key,
        .key_len = strlen(key),
        .data = me.data,
        .dtype = HEARTH_INT64,
        .ndim = 1,
        .shape = n };
}

static const char *key_file(const struct job *j, uint32_t rank)
{
    static char path[512];
    int fd;

    snprintf(path, sizeof(path), "%s/key-%u", j->base, rank);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bench_key, sizeof(bench_key)) != sizeof(bench_key) || close(fd))
        die("%s: no key file", path);
    return path;
}

static int open_confined(const struct hearth_opts *o, struct hearth_error *err)
{
    cpu_set_t all, one;
    int rc, cpu = 0;

    if (sched_getaffinity(0, sizeof(all), &all))
        die("no processors");
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
    rc = hearth_open(o, &me.h, err);
    sched_setaffinity(0, sizeof(all), &all);
    return rc;
}

static int rank_open(const struct job *j, uint32_t rank, uint16_t port, struct hearth_error *err)
{
    struct backend b = backend_of(j->backend);
    struct hearth_opts o = HEARTH_OPTS_INIT;
    char node[32], key[16], bind[32];
    struct hearth_piece p;
    uint64_t need;
    int64_t n;
    int rc;

    me.rank = rank;
    me.bytes = j->bytes[rank];
    if (!me.data)
        me.data = memory(me.bytes);
    p = my_piece(key, &n);
    need = hearth_save_bytes(&p, 1, NULL, 0);
    job_root(j, rank, me.root);
    snprintf(node, sizeof(node), "n%u-%u", rank, j->lives[rank]);
    snprintf(bind, sizeof(bind), "127.0.0.%u", rank + 1);
    rc = hearth_bootstrap_tcp("127.0.0.1", port, rank, j->nodes, 20000, &me.boot, err);
    o.root = me.root, o.job = "bench", o.node = node, o.bind = bind;
    o.machine = node; /* nodes of the bench stand for machines */
    o.transport = b.transport, o.provider = b.provider;
    if (b.trusted)
        o.network = HEARTH_NETWORK_TRUSTED;
    o.rank = rank, o.world = j->nodes, o.bootstrap = me.boot, o.copies = j->copies;
    o.object_bytes = &need, o.object_count = !j->unsaid, o.linger_s = 60;
    o.heartbeat_ms = j->heartbeat_ms, o.dead_ms = j->dead_ms;
    o.copy_threads = j->copy_threads;
    o.key_file = b.keyed ? key_file(j, rank) : NULL;
    if (rc)
        return rc;
    /* an engine is not confined, so it must run before */
    return j->confined && engine_pid(me.root) ? open_confined(&o, err)
                                              : hearth_open(&o, &me.h, err);
}

static int rank_recover(struct said *out, struct hearth_error *err)
{
    struct hearth_checkpoint *ckpt = NULL;
    double begin = now_s();
    char key[16];
    int64_t n;
    struct hearth_piece p = my_piece(key, &n);
    int rc = hearth_recover(me.h, NULL, &ckpt, err);

    out->recover_s = now_s() - begin;
    out->recovery.struct_size = sizeof(out->recovery);
    if (rc || !ckpt)
        return rc;
    memset(me.data, 0xee, me.bytes);
    if (!(rc = hearth_checkpoint_info(ckpt, &out->recovery, err)))
        rc = hearth_load(ckpt, &p, 1, 0, NULL, err);
    hearth_checkpoint_close(ckpt);
    if (!rc)
        check(me.data, me.bytes, seed_of(me.rank, out->recovery.step));
    return rc;
}

static int rank_save(uint64_t step, struct said *out, struct hearth_error *err)
{
    struct hearth_begin_opts o = { .struct_size = sizeof(o), .wait_ms = WAIT_MS };
    char key[16];
    int64_t n;
    struct hearth_piece p = my_piece(key, &n);
    struct hearth_handle *handle;
    struct hearth_save *save;
    pid_t engine = engine_pid(me.root);
    double begin, written, used, commit;
    int rc;

    fill(me.data, me.bytes, seed_of(me.rank, step));
    begin = now_s();
    if ((rc = hearth_save_begin(me.h, step, hearth_save_bytes(&p, 1, NULL, 0), &o, &save, err)) ||
            (rc = hearth_save_add(save, &p, 1, err)))
        return rc;
    commit = now_s();
    if ((rc = hearth_save_commit(save, &handle, err)))
        return rc;
    written = now_s();
    out->commit_s = written - commit;
    used = cpu_of(engine);
    out->blocked_s = written - begin;
    if (!(rc = hearth_wait(handle, HEARTH_SEALED, WAIT_MS, err)))
        out->sealed_s = now_s() - written;
    out->sealing_cpu_s = cpu_of(engine) - used;
    if (!rc && !(rc = hearth_wait(handle, HEARTH_PROTECTED, WAIT_MS, err)))
        out->protected_s = now_s() - written;
    hearth_handle_close(handle);
    return rc;
}

/* Where slice i of a tensor begins: each at another place, in no order. */
static uint64_t slice_at(const struct hearth_item *item, uint64_t i, uint64_t len)
{
    return (i * UINT64_C(2654435761) + 12345) % (item->bytes / 8 - len / 8);
}

/* All of them in one call. */
static int rank_read_call(
        struct hearth_checkpoint *ckpt, uint64_t len, struct said *out, struct hearth_error *err)
{
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_box *box = memory(CALL_SLICES * sizeof(*box));
    int64_t at[CALL_SLICES], shape = (int64_t)(len / 8);
    char *got = memory(CALL_SLICES * len);
    size_t found = 0;
    double began;
    int rc = hearth_item_find(ckpt, "rank/0", 6, &item, 1, &found, err);

    for (uint64_t i = 0; i < CALL_SLICES && !rc && found; i++) {
        at[i] = (int64_t)slice_at(&item, i, len);
        box[i] = (struct hearth_box){ .struct_size = sizeof(box[i]),
            .object = item.object,
            .item = item.offset,
            .dtype = item.dtype,
            .ndim = 1,
            .offset = &at[i],
            .shape = &shape,
            .dst = got + i * len };
    }
    began = now_s();
    if (!rc && found)
        rc = hearth_read_boxes(ckpt, box, CALL_SLICES, err);
    out->read_s = now_s() - began;
    for (uint64_t i = 0; i < CALL_SLICES && !rc && found; i++)
        check_from((uint64_t *)(got + i * len), (uint64_t)at[i], len, seed_of(0, 1));
    out->slices = CALL_SLICES;
    out->asked = CALL_SLICES * len;
    return rc;
}

static int rank_read_slices(
        struct hearth_checkpoint *ckpt, uint64_t len, struct said *out, struct hearth_error *err)
{
    struct hearth_item item = { .struct_size = sizeof(item) };
    uint64_t at, *got = memory(len);
    double began = now_s();
    size_t found = 0;
    int rc = hearth_item_find(ckpt, "rank/0", 6, &item, 1, &found, err);

    for (uint64_t i = 0; i < READ_SLICES && !rc && found; i++) {
        at = slice_at(&item, i, len);
        rc = hearth_read_bytes(ckpt, &item, at * 8, got, len, err);
        if (!rc)
            check_from(got, at, len, seed_of(0, 1));
        out->asked += len;
        out->slices++;
    }
    out->read_s = now_s() - began;
    return rc;
}

static int rank_read(
        uint32_t nodes, uint64_t len, int in_one_call, struct said *out, struct hearth_error *err)
{
    struct hearth_checkpoint *ckpt;
    int rc;

    if (me.rank + 1 < nodes)
        return HEARTH_OK;
    if ((rc = hearth_checkpoint_open(me.h, 1, &ckpt, err)))
        return rc;
    rc = in_one_call ? rank_read_call(ckpt, len, out, err) : rank_read_slices(ckpt, len, out, err);
    hearth_checkpoint_close(ckpt);
    return rc;
}

static void rank_close(enum order leave)
{
    hearth_close(me.h, leave == ORDER_DROP ? HEARTH_DROP : HEARTH_KEEP);
    hearth_bootstrap_close(me.boot);
}

static int rank_again(const struct job *j, uint64_t port, struct hearth_error *err)
{
    rank_close(ORDER_KEEP);
    return rank_open(j, me.rank, (uint16_t)port, err);
}

static void rank_obey(const struct job *j, const struct ordered *order, struct said *out,
        struct hearth_error *err)
{
    switch (order->order) {
    case ORDER_RECOVER:
        out->code = rank_recover(out, err);
        break;
    case ORDER_SAVE:
    case ORDER_TRY:
        out->code = rank_save(order->step, out, err);
        break;
    case ORDER_READ:
    case ORDER_READ_CALL:
        out->code = rank_read(j->nodes, order->step, order->order == ORDER_READ_CALL, out, err);
        break;
    case ORDER_AGAIN:
        out->code = rank_again(j, order->step, err);
        break;
    default:
        rank_close(order->order);
        _exit(0);
    }
}

static void rank_run(const struct job *j, uint32_t rank, int in, int out)
{
    struct hearth_error err = { 0 };
    struct ordered order = { 0 };
    struct said said = { .code = rank_open(j, rank, j->port, &err) };

    for (;;) {
        memcpy(said.text, err.text, sizeof(said.text) - 1);
        if (all_of(out, &said, sizeof(said), 1) || (said.code && order.order != ORDER_TRY) ||
                all_of(in, &order, sizeof(order), 0))
            _exit(1);
        memset(&said, 0, sizeof(said));
        rank_obey(j, &order, &said, &err);
    }
}

/* ---- the parent ------------------------------------------------------------------------------ */

static void spawn(struct job *j, uint32_t rank)
{
    int in[2], out[2];

    if (pipe(in) || pipe(out))
        die("no pipe");
    fflush(NULL);
    j->pid[rank] = fork();
    if (j->pid[rank] == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (uint32_t r = 0; r < j->nodes; r++) {
            if (r == rank || !j->to[r])
                continue;
            close(j->to[r]);
            close(j->from[r]);
        }
        close(in[1]);
        close(out[0]);
        rank_run(j, rank, in[0], out[1]);
    }
    close(in[0]);
    close(out[1]);
    j->to[rank] = in[1];
    j->from[rank] = out[0];
}

static void hear(struct job *j, struct said out[NODES_MAX], const char *what)
{
    for (uint32_t r = 0; r < j->nodes; r++) {
        if (all_of(j->from[r], &out[r], sizeof(out[r]), 0))
            die("%s: rank %u is gone", what, r);
        if (out[r].code)
            die("%s: rank %u: %s", what, r, out[r].text);
    }
}

void job_start(struct job *j)
{
    struct said said[NODES_MAX];
    char root[256];

    j->port = port_keep();
    for (uint32_t r = 0; r < j->nodes; r++) {
        job_root(j, r, root);
        mkdir(root, 0700);
        spawn(j, r);
    }
    hear(j, said, "open");
}

void job_all(struct job *j, enum order order, uint64_t step, struct said out[NODES_MAX])
{
    struct ordered o = { .order = order, .step = step };

    for (uint32_t r = 0; r < j->nodes; r++)
        if (all_of(j->to[r], &o, sizeof(o), 1))
            die("rank %u is gone", r);
    hear(j, out, order == ORDER_SAVE ? "save" : "recover");
}

void job_end(struct job *j, enum order leave)
{
    struct ordered o = { .order = leave };

    for (uint32_t r = 0; r < j->nodes; r++) {
        all_of(j->to[r], &o, sizeof(o), 1);
        close(j->to[r]);
    }
    for (uint32_t r = 0; r < j->nodes; r++) {
        waitpid(j->pid[r], NULL, 0);
        close(j->from[r]);
        j->to[r] = j->from[r] = 0; /* the next job's pipes have these numbers */
    }
}

void job_lose(struct job *j, uint32_t node)
{
    char root[256];

    job_root(j, node, root);
    engine_end(root);
    j->lives[node]++;
}

void job_kill(struct job *j, uint32_t node)
{
    kill(j->pid[node], SIGKILL);
    job_lose(j, node);
    waitpid(j->pid[node], NULL, 0);
    close(j->to[node]);
    close(j->from[node]);
    j->to[node] = j->from[node] = 0;
}

void job_others(struct job *j, uint32_t but, enum order order, uint64_t step)
{
    struct ordered o = { .order = order, .step = step };

    for (uint32_t r = 0; r < j->nodes; r++)
        if (r != but && all_of(j->to[r], &o, sizeof(o), 1))
            die("rank %u is gone", r);
}

void job_others_failed(struct job *j, uint32_t but, struct said out[NODES_MAX])
{
    for (uint32_t r = 0; r < j->nodes; r++) {
        if (r == but)
            continue;
        if (all_of(j->from[r], &out[r], sizeof(out[r]), 0))
            die("rank %u is gone", r);
        if (!out[r].code)
            die("rank %u saved without the one that was lost", r);
    }
}

void job_again(struct job *j, uint32_t fresh)
{
    struct said said[NODES_MAX];
    char root[256];

    j->port = port_keep();
    job_root(j, fresh, root);
    mkdir(root, 0700);
    job_others(j, fresh, ORDER_AGAIN, j->port);
    spawn(j, fresh);
    hear(j, said, "open again");
}
