/* SPDX-License-Identifier: Apache-2.0 */
/* A save in parts: sealed before it is committed, passed from process to process, read again in
 * the epoch that wrote it. One case each. */
#include "party.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct party p;

static void start(uint32_t nodes, uint32_t ranks)
{
    party_open(&p, nodes, ranks, 128);
    p.opts.dead_ms = p.opts.stall_ms = 30000; /* engines are stopped, and shall not be missed */
    party_start(&p);
    party_recover(&p, 0, 0);
}

/* ---- seal ----------------------------------------------------------------------------------- */

static void do_seal(struct me *me, const uint64_t arg[3], struct answer *out)
{
    do_begin(me, (uint64_t[3]){ arg[0], 10000, 0 }, out);
    if (!out->rc)
        do_write(me, arg, out);
    if (!out->rc)
        out->rc = hearth_save_seal(me->save, &out->err);
}

static void do_put_and_commit(struct me *me, const uint64_t arg[3], struct answer *out)
{
    if (me->rank == 0)
        out->rc = hearth_save_put_common(me->save, ".metadata", "late", 4, &out->err);
    if (!out->rc)
        do_commit(me, arg, out);
}

static void count_copy(const char *path, void *arg)
{
    *(int *)arg += strstr(path, "/pool/") == NULL && strstr(path, "src0.distcp") != NULL &&
                   strstr(path, ".tmp") == NULL;
}

static void sealed_copies_travel_before_commit(void)
{
    uint64_t until = now_ms() + 10000;
    int copies = 0;

    start(2, 2);
    party_all(&p, do_seal, 1, 1, 0);
    while (!copies && now_ms() < until) {
        nap_ms(10);
        party_find(p.root[1], count_copy, &copies);
    }
    CHECK(copies, "rank 0 has sealed, and after 10 s the other node has no copy");
    party_all(&p, do_put_and_commit, 1, 0, 0);
    party_all(&p, do_wait, 1, HEARTH_PROTECTED, 15000);
    party_restart(&p);
    party_recover(&p, 1, 1);
}

static void sealed_and_not_committed_is_no_save(void)
{
    start(2, 2);
    party_save(&p, 1, 1);
    party_all(&p, do_seal, 2, 2, 0);
    party_restart(&p);
    party_recover(&p, 1, 1);
    party_save(&p, 3, 3);
}

/* ---- reading in the epoch ------------------------------------------------------------------- */

static int same(
        const struct me *me, const unsigned char *got, uint64_t step, uint64_t tag, uint32_t rank)
{
    unsigned char *want = malloc(me->bytes);
    int rc;

    fill(want, me->bytes, seed_of(step, tag, rank));
    rc = memcmp(want, got, me->bytes) == 0;
    free(want);
    return rc;
}

/* Rank arg[2]'s tensor by object and offset, of an open checkpoint. v: 1: it is on this node. */
static void read_box(
        struct me *me, struct hearth_checkpoint *c, const uint64_t arg[3], struct answer *out)
{
    struct hearth_item item = { .struct_size = sizeof(item) };
    int64_t zero = 0, shape[1] = { (int64_t)me->bytes / 8 };
    char name[64];
    struct hearth_box box = { .struct_size = sizeof(box),
        .object = name,
        .dtype = HEARTH_INT64,
        .ndim = 1,
        .offset = &zero,
        .shape = shape,
        .dst = me->data };

    snprintf(name, sizeof(name), "__%u__0_src%u.distcp", (unsigned)arg[2], (unsigned)arg[2]);
    memset(me->data, 0xee, me->bytes);
    out->rc = hearth_item_in(c, name, 0, &item, &out->err);
    out->v[0] = item.local;
    if (!out->rc)
        out->rc = hearth_read_boxes(c, &box, 1, &out->err);
    if (!out->rc && !same(me, me->data, arg[0], arg[1], (uint32_t)arg[2])) {
        out->rc = 1;
        snprintf(out->err.text, sizeof(out->err.text), "WRONG BYTES for rank %u", (unsigned)arg[2]);
    }
}

/* step, tag, rank. v[1]: the step opened without a number. */
static void do_look(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct hearth_recovery info = { .struct_size = sizeof(info) };
    struct hearth_checkpoint *c = NULL, *newest = NULL;

    out->rc = hearth_checkpoint_open(me->h, arg[0], &c, &out->err);
    if (!out->rc)
        out->rc = hearth_checkpoint_open(me->h, HEARTH_STEP_NEWEST, &newest, &out->err);
    if (!out->rc)
        out->rc = hearth_checkpoint_info(newest, &info, &out->err);
    if (!out->rc)
        read_box(me, c, arg, out);
    out->v[1] = info.step;
    hearth_checkpoint_close(newest);
    hearth_checkpoint_close(c);
}

static struct hearth_checkpoint *kept;

static void do_keep_open(struct me *me, const uint64_t arg[3], struct answer *out)
{
    out->rc = hearth_checkpoint_open(me->h, arg[0], &kept, &out->err);
    if (!out->rc)
        read_box(me, kept, (uint64_t[3]){ arg[0], arg[1], me->rank }, out);
}

static void do_read_kept(struct me *me, const uint64_t arg[3], struct answer *out)
{
    read_box(me, kept, arg, out);
}

static void a_step_of_this_epoch_is_read_by_any_rank(void)
{
    struct answer a;
    uint32_t remote = 0;

    start(3, 3);
    party_save(&p, 1, 1);
    for (uint32_t r = 0; r < 3; r++)
        for (uint32_t of = 0; of < 3; of++) {
            a = party_ask(&p, r, do_look, 1, 1, of);
            CHECK(a.rc == 0, "rank %u reads what rank %u wrote: %s", r, of, a.err.text);
            CHECK(a.v[1] == 1, "the newest is step %u", (unsigned)a.v[1]);
            remote += !a.v[0];
        }
    CHECK(remote == 3, "%u of 9 reads were of another node's object, and 3 were due", remote);
    a = party_ask(&p, 0, do_look, 2, 2, 0);
    party_must_fail(&a, HEARTH_ENOENT, "no PROTECTED step 2", "there is: 1");
}

static void an_open_step_stays_as_far_as_it_was_read(void)
{
    struct answer a;

    start(3, 3);
    party_save(&p, 1, 1);
    party_all(&p, do_keep_open, 1, 1, 0);
    party_save(&p, 2, 2);
    party_save(&p, 3, 3);
    for (uint32_t r = 0; r < 3; r++) {
        uint32_t far = 3;

        a = party_ask(&p, r, do_read_kept, 1, 1, r); /* leased */
        CHECK(a.rc == 0, "%s", a.err.text);
        a = party_ask(&p, r, do_look, 3, 3, (r + 1) % 3);
        CHECK(a.rc == 0 && a.v[1] == 3, "%s", a.err.text);
        for (uint32_t of = 0; of < 3; of++) {
            a = party_ask(&p, r, do_look, 3, 3, of);
            far = a.v[0] ? far : of;
        }
        a = party_ask(&p, r, do_read_kept, 1, 1, far);
        CHECK(a.rc == HEARTH_ELOST || a.rc == HEARTH_ENOENT, "%d: %s", a.rc, a.err.text);
        a = party_ask(&p, r, do_look, 1, 1, r);
        party_must_fail(&a, HEARTH_ENOENT, "step 1", "3");
    }
}

/* ---- give and take -------------------------------------------------------------------------- */

/* The helper's life: a ticket comes, the save goes on; orphan: only when the giver is dead. */
static int help(struct me *me, int in, int out, uint64_t step, int orphan)
{
    struct hearth_opts opts = me->opts;
    struct hearth_bytes note = { .struct_size = sizeof(note), .key = "note", .key_len = 4 };
    struct hearth_handle *handle = NULL;
    struct hearth_ticket ticket;
    struct hearth_save *save;
    struct hearth_error err = { .text = "no ticket came" };
    struct hearth *h = NULL;
    char word[] = "helped", byte = 'k';

    note.data = word, note.len = sizeof(word);
    opts.helper = 1;
    opts.bootstrap = NULL;
    if (read(in, &ticket, sizeof(ticket)) == (ssize_t)sizeof(ticket) &&
            !hearth_open(&opts, &h, &err) && !hearth_save_take(h, &ticket, &save, &err) &&
            write(out, &byte, 1) == 1 && (!orphan || read(in, &byte, 1) == 0) &&
            !hearth_save_add_bytes(save, &note, 1, &err) &&
            !hearth_save_set_step(save, step, &err) &&
            !hearth_save_put_common(save, ".metadata", "m", 1, &err) &&
            !hearth_save_seal(save, &err) && !hearth_save_commit(save, &handle, &err) &&
            !hearth_wait(handle, HEARTH_PROTECTED, 15000, &err)) {
        hearth_handle_close(handle);
        hearth_close(h, HEARTH_KEEP);
        return 0;
    }
    fprintf(stderr, "helper: %s\n", err.text);
    return 1;
}

static int stage_and_give(struct me *me, uint64_t step, int to, struct answer *out)
{
    struct hearth_ticket ticket;
    struct hearth_piece piece;
    int64_t shape[1];
    void *where;

    piece = weights(me, shape);
    fill(me->data, me->bytes, seed_of(step, step, me->rank));
    out->rc = hearth_save_begin(me->h, HEARTH_STEP_LATER,
            hearth_save_bytes(&piece, 1, NULL, 0) + 4096, NULL, &me->save, &out->err);
    if (!out->rc)
        out->rc = hearth_save_stage(me->save, &piece, 1, &where, &out->err);
    if (!out->rc && memcmp(where, me->data, me->bytes) != 0)
        out->rc = 1;
    if (!out->rc)
        out->rc = hearth_save_give(me->save, &ticket, &out->err);
    if (!out->rc && write(to, &ticket, sizeof(ticket)) != (ssize_t)sizeof(ticket))
        out->rc = 1;
    return out->rc;
}

/* step, 1: the helper goes on when this process is dead. */
static void do_give(struct me *me, const uint64_t arg[3], struct answer *out)
{
    int there[2], back[2], status = 1;
    char byte;
    pid_t pid;

    if (pipe(there) || pipe(back)) {
        out->rc = 1;
        return;
    }
    pid = fork();
    if (pid == 0) {
        close(there[1]);
        alarm(40);
        _exit(help(me, there[0], back[1], arg[0], (int)arg[1]));
    }
    close(there[0]);
    close(back[1]);
    if (stage_and_give(me, arg[0], there[1], out))
        kill(pid, SIGKILL);
    if (!out->rc && read(back[0], &byte, 1) != 1)
        out->rc = 1;
    if (arg[1])
        return; /* both live on */
    waitpid(pid, &status, 0);
    if (!out->rc)
        out->rc = status ? 1 : 0;
    close(there[1]);
    close(back[0]);
}

static void a_helper_finishes_what_its_rank_has_staged(void)
{
    struct answer a;

    start(2, 2);
    for (uint64_t step = 1; step < 5; step++) {
        party_tell(&p, 1, do_save, step, step, 0);
        a = party_ask(&p, 0, do_give, step, 0, 0);
        CHECK(a.rc == 0, "step %u: %s", (unsigned)step, a.err.text);
        a = party_hear(&p, 1, 10000);
        CHECK(a.rc == 0, "%s", a.err.text);
    }
    a = party_ask(&p, 0, do_look, 4, 4, 0);
    CHECK(a.rc == 0, "%s", a.err.text);
    party_restart(&p);
    party_recover(&p, 4, 4);
}

static void what_was_taken_outlives_its_giver(void)
{
    uint64_t until = now_ms() + 20000;
    char path[256];
    struct answer a;

    start(1, 1);
    a = party_ask(&p, 0, do_give, 1, 1, 0);
    CHECK(a.rc == 0, "%s", a.err.text);
    party_kill_rank(&p, 0);
    snprintf(path, sizeof(path), "%s/job/step-1_ckpt", p.root[0]);
    while (access(path, F_OK) != 0 && now_ms() < until)
        nap_ms(10);
    CHECK(access(path, F_OK) == 0, "the helper did not finish the save");
    party_restart(&p);
    party_recover(&p, 1, 1);
}

#define CASE(name) { #name, name },

int main(int argc, char **argv)
{
    static const struct party_case cases[] = { /* clang-format off */
    CASE(sealed_copies_travel_before_commit)
    CASE(sealed_and_not_committed_is_no_save)
    CASE(a_step_of_this_epoch_is_read_by_any_rank)
    CASE(an_open_step_stays_as_far_as_it_was_read)
    CASE(a_helper_finishes_what_its_rank_has_staged)
    CASE(what_was_taken_outlives_its_giver)
        /* clang-format on */
        { NULL, NULL }
    };

    return party_main(argc, argv, cases);
}
