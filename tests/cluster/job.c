/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a job whose bytes say who wrote them. Its launcher tells it what to do, a line each;
 * every line is answered by one of its own:
 *
 *     recover [1]        ok recover STEP TAG PULLED DEGRADED BEYOND      (STEP 0: from scratch)
 *     peek               ok peek              the next rank's piece, wherever it is
 *     read RANK TIMES STEP [TAG]  ok read     that rank's piece, so often, the checkpoint opened anew; of that tag
 *     save STEP TAG      ok save
 *     save STEP TAG RANK,RANK...  ok save     of these ranks alone, which share the rows of all (`rows`)
 *     hold STEP TAG RANK,...  ok hold         begins such a save and writes nothing yet
 *     fill               ok fill              writes all of what is held
 *     commit             ok commit            hands over what is held
 *     cut                ok cut               its connection to the engine ends, and the process does not notice
 *     wait STEP LEVEL MS ok wait LEVEL DEGRADED
 *     fork               ok fork PID          a child that outlives us
 *     meet ADDRESS PORT  ok meet              from now on: rank 0 has moved
 *     close keep|drop    ok close             and the process ends
 *                        err WHAT CODE SENTENCE
 *
 * Each element of a piece is a function of step, rank, tag and place, where the tag is the
 * launcher's name for one save: two saves of one step differ in every byte. With `rows` the tensor
 * has so many in all, whatever the number of ranks, and its elements say nothing of ranks.
 */
#include <hearth/hearth.h>

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COLS    64
#define HANDLES 64
#define SOME    64 /* ranks that a save is of, where these are not all */

struct who {
    uint64_t step, tag, rank;
};

static struct {
    const char *root, *job, *node, *bind, *meet, *transport, *provider, *engine, *domain, *machine,
            *start, *fabric_library, *ucx_library, *key_file;
    unsigned long port, rank, world, copies, min_copies, keep, degraded, kib, any_root, save_ms,
            recover_ms, open_ms, common_kib, allow_slower, strong, trusted, rows, whole, untold,
            dead_ms;
} arg;

static struct hearth *h;
static struct hearth_bootstrap *meeting;
static struct hearth_checkpoint *ckpt;
static struct hearth_handle *handle[HANDLES];
static uint64_t *data, *common; /* ours; what every node gets */
static int64_t rows;
static size_t common_words;
static struct { /* who takes part in the save; count 0: all */
    uint32_t rank[SOME];
    size_t count, mine; /* our place among them */
} some;

static uint64_t element(const struct who *w, uint64_t i)
{
    uint64_t x = i + (w->step << 48) + (w->tag << 38) + (w->rank << 26);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}

static void complain(const char *what, const struct hearth_error *err)
{
    say("err %s %d %s", what, err->code, err->text);
}

static void on_log(void *self, enum hearth_log_level level, const char *event, const char *text)
{
    (void)self, (void)level;
    say("log %s: %s", event, text);
}

/* ---- what is saved ------------------------------------------------------------------------- */

struct boxes {
    int64_t shape[2], global[2], offset[2];
    char who[32];
};

static struct hearth_piece piece_of(struct boxes *b, uint64_t rank, void *at)
{
    *b = (struct boxes){ .shape = { rows, COLS },
        .global = { rows * (int64_t)arg.world, COLS },
        .offset = { rows * (int64_t)rank, 0 } };
    snprintf(b->who, sizeof(b->who), "who/%lu", (unsigned long)rank);
    return (struct hearth_piece){ .struct_size = sizeof(struct hearth_piece),
        .key = "weights",
        .key_len = 7,
        .data = at,
        .dtype = HEARTH_INT64,
        .ndim = 2,
        .shape = b->shape,
        .global_shape = b->global,
        .global_offset = b->offset };
}

/* Our part of the rows; of a save of some ranks a larger one. */
static int64_t part_first, part_rows;

static void part_of(struct hearth_piece *p, struct boxes *b)
{
    int64_t all = rows * (int64_t)arg.world, count = (int64_t)some.count;

    part_first = some.count ? all * (int64_t)some.mine / count : rows * (int64_t)arg.rank;
    part_rows = some.count ? all * ((int64_t)some.mine + 1) / count - part_first : rows;
    b->shape[0] = part_rows;
    b->offset[0] = part_first;
    p->data = data;
}

static uint64_t bytes_of_save(void)
{
    struct boxes b;
    struct hearth_piece p = piece_of(&b, arg.rank, data);
    struct who w = { 0 };
    struct hearth_bytes item = { sizeof(item), b.who, strlen(b.who), &w, sizeof(w) };

    part_of(&p, &b);
    return hearth_save_bytes(&p, 1, &item, 1);
}

/* Whose elements a piece has, and which is its first. */
static struct who author(const struct who *w)
{
    return (struct who){ w->step, w->tag, arg.rows ? 0 : w->rank };
}

static uint64_t first_of(uint64_t rank)
{
    return arg.rows ? rank * (uint64_t)rows * COLS : 0;
}

static void common_of(const struct who *w)
{
    struct who all = { w->step, w->tag, 1000 };

    for (size_t i = 0; i < common_words; i++)
        common[i] = element(&all, i);
}

static int write_save(struct hearth_save *save, struct who *w, struct hearth_error *err)
{
    struct boxes b;
    struct hearth_piece p = piece_of(&b, w->rank, data);
    struct hearth_bytes item = { sizeof(item), b.who, strlen(b.who), w, sizeof(*w) };
    struct who by = author(w);
    void *at;
    int rc;

    part_of(&p, &b);
    for (int64_t i = 0; i < part_rows * COLS; i++)
        data[i] = element(&by, (arg.rows ? (uint64_t)(part_first * COLS) : 0) + (uint64_t)i);
    /* Of every other step the engine makes the checksums: the rank might write there again. */
    rc = w->step % 2 ? hearth_save_stage(save, &p, 1, &at, err) : hearth_save_add(save, &p, 1, err);
    if (rc || (rc = hearth_save_add_bytes(save, &item, 1, err)))
        return rc;
    if (w->rank)
        return 0;
    common_of(w);
    return hearth_save_put_common(save, "common.bin", common, common_words * 8, err);
}

/* "0,2,4": the ranks that take part. Makes more memory if our part is larger then. */
static int name_some(const char *list)
{
    char *end = (char *)(uintptr_t)list;
    uint64_t *more;

    for (some.count = some.mine = 0; *list && some.count < SOME; list = *end ? end + 1 : end) {
        some.rank[some.count] = (uint32_t)strtoul(list, &end, 10);
        some.mine = some.rank[some.count] == arg.rank ? some.count : some.mine;
        some.count++;
    }
    more = some.count ? realloc(data, (size_t)rows * COLS * arg.world * sizeof(*data)) : data;
    data = more ? more : data;
    return more != NULL;
}

static void do_save(uint64_t step, uint64_t tag, const char *list)
{
    struct hearth_begin_opts opts = { .struct_size = sizeof(opts), .wait_ms = 10000 };
    /* the first of some stands for rank 0 */
    struct who w = { step, tag, name_some(list) && some.count && !some.mine ? 0 : arg.rank };
    struct hearth_error err = { 0 };
    struct hearth_save *save;

    hearth_checkpoint_close(ckpt); /* an open one keeps memory that saves would take */
    ckpt = NULL;
    opts.ranks = some.count ? some.rank : NULL;
    opts.rank_count = some.count;
    if (hearth_save_begin(h, step, bytes_of_save(), &opts, &save, &err)) {
        complain("save", &err);
        return;
    }
    hearth_handle_close(handle[step % HANDLES]);
    handle[step % HANDLES] = NULL;
    if (write_save(save, &w, &err)) {
        hearth_save_abort(save);
        complain("save", &err);
    } else if (hearth_save_commit(save, &handle[step % HANDLES], &err)) {
        complain("save", &err);
    } else {
        say("ok save");
    }
}

static struct hearth_save *held;
static struct who held_who;

static void do_hold(uint64_t step, uint64_t tag, const char *list)
{
    struct hearth_begin_opts opts = { .struct_size = sizeof(opts), .wait_ms = 10000 };
    struct hearth_error err = { 0 };

    held_who =
            (struct who){ step, tag, name_some(list) && some.count && !some.mine ? 0 : arg.rank };
    opts.ranks = some.count ? some.rank : NULL;
    opts.rank_count = some.count;
    if (hearth_save_begin(h, step, bytes_of_save(), &opts, &held, &err))
        complain("hold", &err);
    else
        say("ok hold");
}

static void do_fill(void)
{
    struct hearth_error err = { 0 };

    if (!held || write_save(held, &held_who, &err))
        complain("fill", &err);
    else
        say("ok fill");
}

static void do_commit(void)
{
    struct hearth_handle **at = &handle[held_who.step % HANDLES];
    struct hearth_error err = { 0 };
    struct hearth_save *save = held;

    held = NULL;
    hearth_handle_close(*at);
    *at = NULL;
    if (!save || hearth_save_commit(save, at, &err))
        complain("commit", &err);
    else
        say("ok commit");
}

/* Staged saves without a step: as many as the engine allows. */
static struct hearth_save *pile[HANDLES];
static unsigned piled;

static void do_pile(uint32_t wait_ms)
{
    struct hearth_begin_opts opts = { .struct_size = sizeof(opts), .wait_ms = wait_ms };
    struct hearth_error err = { 0 };

    piled = 0;
    while (piled < HANDLES &&
            !hearth_save_begin(h, HEARTH_STEP_LATER, bytes_of_save(), &opts, &pile[piled], &err))
        piled++;
    say("ok pile %u %d %s", piled, err.code, err.text);
}

static int pile_one(struct hearth_save *save, struct who *w, struct hearth_error *err)
{
    struct hearth_handle *one = NULL;
    int rc = hearth_save_set_step(save, w->step, err);

    if (!rc)
        rc = write_save(save, w, err);
    if (rc)
        hearth_save_abort(save);
    else if (!(rc = hearth_save_commit(save, &one, err)))
        rc = hearth_wait(one, HEARTH_PROTECTED, 10000, err);
    hearth_handle_close(one);
    return rc;
}

/* Each of the first `count` saves gets its step, and is waited for; the others are given up. */
static void do_piled(uint64_t step, uint64_t tag, unsigned count)
{
    struct hearth_error err = { 0 };
    int rc = 0;

    for (unsigned i = 0; i < piled; i++) {
        struct who w = { step + i, tag + i, arg.rank };

        if (rc || i >= count)
            hearth_save_abort(pile[i]);
        else
            rc = pile_one(pile[i], &w, &err);
    }
    piled = 0;
    if (rc)
        complain("piled", &err);
    else
        say("ok piled");
}

/* As after an error of the connection that the process has not noticed: all that it has sent
 * arrives. */
static void do_cut(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_storage peer;
        socklen_t len = sizeof(peer);

        if (!getsockname(fd, (struct sockaddr *)&peer, &len) && peer.ss_family == AF_UNIX)
            shutdown(fd, SHUT_RDWR);
    }
    say("ok cut");
}

static void do_wait(uint64_t step, unsigned level, unsigned ms)
{
    struct hearth_handle *s = handle[step % HANDLES];
    struct hearth_status now = { .struct_size = sizeof(now) };
    struct hearth_error err = { 0 };

    if (hearth_wait(s, (enum hearth_level)level, ms, &err) || hearth_test(s, &now, &err))
        complain("wait", &err);
    else
        say("ok wait %u %u", now.level, now.degraded);
}

/* ---- what comes back ----------------------------------------------------------------------- */

static int read_who(uint64_t rank, struct who *out, struct hearth_error *err)
{
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct boxes b;
    size_t found = 0;
    int rc;

    piece_of(&b, rank, NULL);
    rc = hearth_item_find(ckpt, b.who, strlen(b.who), &item, 1, &found, err);
    if (!rc && found != 1) {
        err->code = HEARTH_ECORRUPT;
        snprintf(err->text, sizeof(err->text), "%s is there %zu times", b.who, found);
        rc = err->code;
    }
    return rc ? rc : hearth_read_bytes(ckpt, &item, 0, out, sizeof(*out), err);
}

static int wrong(struct hearth_error *err, const char *what, uint64_t at)
{
    err->code = HEARTH_ECORRUPT;
    snprintf(err->text, sizeof(err->text), "WRONG BYTES handed out: %s, place %llu", what,
            (unsigned long long)at);
    return err->code;
}

/* The piece of `rank`, element by element. */
static int check_piece(uint64_t rank, struct who *w, struct hearth_error *err)
{
    uint64_t saver = arg.rows ? 0 : rank; /* there may have been fewer */
    struct boxes b;
    struct hearth_piece p = piece_of(&b, rank, data);
    struct who by;
    int rc = read_who(saver, w, err);

    if (rc)
        return rc;
    by = author(w);
    memset(data, 0xee, (size_t)(rows * COLS) * sizeof(*data));
    if ((rc = hearth_load(ckpt, &p, 1, 0, NULL, err)))
        return rc;
    if (w->rank != saver)
        return wrong(err, "another rank's", w->rank);
    for (int64_t i = 0; i < rows * COLS; i++)
        if (data[i] != element(&by, first_of(rank) + (uint64_t)i))
            return wrong(err, "weights", (uint64_t)i);
    return 0;
}

static int check_common(const struct who *w, struct hearth_error *err)
{
    size_t len = 0;
    void *got;
    int rc = hearth_read_common(ckpt, "common.bin", &got, &len, err);

    if (rc)
        return rc;
    common_of(w);
    if (len != common_words * 8 || memcmp(got, common, len) != 0)
        rc = wrong(err, "common.bin", len);
    hearth_free(got);
    return rc;
}

static void do_recover(uint32_t accept_loss)
{
    struct hearth_recover_opts o = { .struct_size = sizeof(o), .accept_loss = accept_loss };
    struct hearth_recovery info = { .struct_size = sizeof(info) };
    struct hearth_error err = { 0 };
    struct who w = { 0 };
    int rc;

    hearth_checkpoint_close(ckpt);
    ckpt = NULL;
    rc = hearth_recover(h, &o, &ckpt, &err);
    if (!rc && ckpt && !(rc = hearth_checkpoint_info(ckpt, &info, &err)) &&
            !(rc = check_piece(arg.rank, &w, &err)) && !(rc = check_common(&w, &err)) &&
            w.step != info.step)
        rc = wrong(&err, "another step's", w.step);
    if (rc)
        complain("recover", &err);
    else
        say("ok recover %llu %llu %llu %u %u", (unsigned long long)w.step,
                (unsigned long long)w.tag, (unsigned long long)info.pulled_bytes, info.degraded,
                info.beyond);
}

static void do_peek(void)
{
    struct hearth_error err = { 0 };
    struct who w;

    if (!ckpt)
        say("err peek 0 nothing was recovered");
    else if (check_piece((arg.rank + 1) % arg.world, &w, &err))
        complain("peek", &err);
    else
        say("ok peek");
}

/* An open checkpoint keeps what it fetched last. */
static void do_read(uint64_t rank, uint64_t times, uint64_t step, uint64_t tag)
{
    struct hearth_error err = { 0 };
    int rc = 0;

    for (uint64_t i = 0; !rc && i < times; i++) {
        struct who w;

        hearth_checkpoint_close(ckpt);
        ckpt = NULL;
        if (!(rc = hearth_checkpoint_open(h, step, &ckpt, &err)))
            rc = check_piece(rank, &w, &err);
        if (!rc && tag && w.tag != tag)
            rc = wrong(&err, "another save's, of tag", w.tag);
    }
    if (rc)
        complain("read", &err);
    else
        say("ok read");
}

/* A child that holds all our descriptors and sleeps: past what the library does at a fork, as a
 * program may that makes its children itself. */
static void do_fork(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, 0);
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        sleep(60);
        _exit(0);
    }
    say(pid < 0 ? "err fork 0 %d" : "ok fork %d", (int)pid);
}

/* ---- being told ---------------------------------------------------------------------------- */

static int take_arg(const char *text)
{
    const struct {
        const char *name;
        const char **string;
        unsigned long *number;
    } known[] = { { "root", &arg.root, NULL }, { "job", &arg.job, NULL },
        { "node", &arg.node, NULL }, { "bind", &arg.bind, NULL }, { "meet", &arg.meet, NULL },
        { "transport", &arg.transport, NULL }, { "provider", &arg.provider, NULL },
        { "engine", &arg.engine, NULL }, { "domain", &arg.domain, NULL },
        { "machine", &arg.machine, NULL }, { "start", &arg.start, NULL },
        { "fabric_library", &arg.fabric_library, NULL }, { "key_file", &arg.key_file, NULL },
        { "ucx_library", &arg.ucx_library, NULL }, { "allow_slower", NULL, &arg.allow_slower },
        { "strong", NULL, &arg.strong }, { "trusted", NULL, &arg.trusted },
        { "port", NULL, &arg.port }, { "rank", NULL, &arg.rank }, { "world", NULL, &arg.world },
        { "copies", NULL, &arg.copies }, { "min_copies", NULL, &arg.min_copies },
        { "keep", NULL, &arg.keep }, { "degraded", NULL, &arg.degraded }, { "kib", NULL, &arg.kib },
        { "any_root", NULL, &arg.any_root }, { "save_ms", NULL, &arg.save_ms },
        { "recover_ms", NULL, &arg.recover_ms }, { "open_ms", NULL, &arg.open_ms },
        { "common_kib", NULL, &arg.common_kib }, { "rows", NULL, &arg.rows },
        { "whole", NULL, &arg.whole }, { "untold", NULL, &arg.untold },
        { "dead_ms", NULL, &arg.dead_ms } };
    size_t len = strcspn(text, "=");

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && text[len]; i++)
        if (strlen(known[i].name) == len && !strncmp(known[i].name, text, len)) {
            if (known[i].string)
                *known[i].string = text + len + 1;
            else
                *known[i].number = strtoul(text + len + 1, NULL, 10);
            return 0;
        }
    fprintf(stderr, "cluster_job: '%s' is no argument\n", text);
    return -1;
}

static int meet_at(const char *address, unsigned long port, struct hearth_error *err)
{
    struct hearth_bootstrap *next;
    int rc = hearth_bootstrap_tcp(address, (uint16_t)port, (uint32_t)arg.rank, (uint32_t)arg.world,
            (uint32_t)arg.open_ms, &next, err);

    if (!rc) {
        hearth_bootstrap_close(meeting);
        meeting = next;
    }
    return rc;
}

/* The library keeps this one for good; where the ranks meet may change between two calls. */
static int gather(void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    (void)self;
    return meeting->allgather(meeting->self, mine, len, all, err);
}

static void do_meet(const char *line)
{
    struct hearth_error err = { 0 };
    unsigned long port = 0;
    char address[64] = "";

    sscanf(line, "%*s %63s %lu", address, &port);
    if (meet_at(address, port, &err))
        complain("meet", &err);
    else
        say("ok meet");
}

static int open_job(struct hearth_error *err)
{
    static const struct hearth_bootstrap bootstrap = { .struct_size = sizeof(bootstrap),
        .allgather = gather };
    struct hearth_opts o = HEARTH_OPTS_INIT;
    uint64_t bytes = bytes_of_save() * (arg.whole ? arg.world : 1);
    int rc = meet_at(arg.meet, arg.port, err);

    o.root = arg.root, o.job = arg.job, o.node = arg.node, o.bind = arg.bind;
    o.rank = (uint32_t)arg.rank, o.world = (uint32_t)arg.world;
    o.bootstrap = &bootstrap;
    o.copies = (uint32_t)arg.copies, o.min_copies = (uint32_t)arg.min_copies;
    o.keep = (uint32_t)arg.keep, o.allow_degraded = (uint32_t)arg.degraded;
    o.machine = arg.machine;
    o.domains = arg.domain ? &arg.domain : NULL;
    o.domain_count = arg.domain != NULL;
    o.object_bytes = &bytes, o.object_count = !arg.untold;
    o.transport = arg.transport, o.provider = arg.provider, o.engine = arg.engine;
    o.fabric_library = arg.fabric_library;
    o.ucx_library = arg.ucx_library ? arg.ucx_library : getenv("HEARTH_UCX_LIBRARY");
    o.allow_slower = (uint32_t)arg.allow_slower;
    o.start = arg.start && !strcmp(arg.start, "never") ? HEARTH_START_NEVER : HEARTH_START_AUTO;
    o.key_file = arg.key_file;
    o.network = arg.trusted ? HEARTH_NETWORK_TRUSTED : HEARTH_NETWORK_HOSTILE;
    o.integrity = arg.strong ? HEARTH_INTEGRITY_STRONG : HEARTH_INTEGRITY_CRC32C;
    o.any_root = (uint32_t)arg.any_root;
    o.open_ms = (uint32_t)arg.open_ms, o.save_ms = (uint32_t)arg.save_ms;
    o.recover_ms = (uint32_t)arg.recover_ms;
    o.heartbeat_ms = 200, o.dead_ms = (uint32_t)arg.dead_ms,
    o.stall_ms = (uint32_t)arg.dead_ms > 2000 ? 5000 : 1000, o.linger_s = 600;
    o.inflight_mib = 64, o.log = on_log, o.log_level = HEARTH_LOG_WARN;
    return rc ? rc : hearth_open(&o, &h, err);
}

/* 1: the last one. */
static int obey(char *line)
{
    unsigned long long a = 0, b = 0, c = 0, d = 0;
    char word[16] = "", how[16] = "", list[200] = "";

    sscanf(line, "%15s %llu %llu %llu", word, &a, &b, &c);
    sscanf(line, "%*s %*s %*s %199s", list);
    sscanf(line, "%*s %*s %*s %*s %llu", &d);
    if (!strcmp(word, "recover")) {
        do_recover(a == 1);
    } else if (!strcmp(word, "peek")) {
        do_peek();
    } else if (!strcmp(word, "read")) {
        do_read(a, b, c, d);
    } else if (!strcmp(word, "save")) {
        do_save(a, b, list);
    } else if (!strcmp(word, "hold")) {
        do_hold(a, b, list);
    } else if (!strcmp(word, "fill")) {
        do_fill();
    } else if (!strcmp(word, "commit")) {
        do_commit();
    } else if (!strcmp(word, "pile")) {
        do_pile((uint32_t)a);
    } else if (!strcmp(word, "piled")) {
        do_piled(a, b, (unsigned)c);
    } else if (!strcmp(word, "cut")) {
        do_cut();
    } else if (!strcmp(word, "wait")) {
        do_wait(a, (unsigned)b, (unsigned)c);
    } else if (!strcmp(word, "fork")) {
        do_fork();
    } else if (!strcmp(word, "meet")) {
        do_meet(line);
    } else if (!strcmp(word, "close")) {
        sscanf(line, "%*s %15s", how);
        for (unsigned i = 0; i < HANDLES; i++)
            hearth_handle_close(handle[i]);
        hearth_checkpoint_close(ckpt);
        hearth_close(h, strcmp(how, "drop") != 0 ? HEARTH_KEEP : HEARTH_DROP);
        say("ok close");
        return 1;
    } else {
        say("err %s 0 unknown", word);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct hearth_error err = { 0 };
    char line[256];

    for (int i = 1; i < argc; i++)
        if (take_arg(argv[i]))
            return 2;
    rows = arg.rows ? (int64_t)(arg.rows / arg.world) : (int64_t)arg.kib * 1024 / (COLS * 8);
    data = calloc((size_t)rows * COLS, sizeof(*data));
    common_words = arg.common_kib ? arg.common_kib * 128 + 1 : 125; /* no whole pages */
    common = calloc(common_words, sizeof(*common));
    if (!data || !common || open_job(&err)) {
        complain("open", &err);
        return 1;
    }
    say("ok open");
    while (fgets(line, sizeof(line), stdin) && !obey(line))
        continue;
    hearth_bootstrap_close(meeting);
    free(common);
    free(data);
    return 0;
}
