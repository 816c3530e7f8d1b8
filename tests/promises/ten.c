/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ten ways in which checkpoints in memory get lost or spoiled, each with the test that it does not
 * happen here. Two machines with a rank each, unless it says otherwise.
 */
#include "party.h"

#include "damage.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct party p;

/* ---- 1: the first save after a restart leaves alone what the restart went on from
 * ------------- */

static void restart_does_not_touch_what_it_recovered(void)
{
    char path[256];
    uint64_t sum;

    party_open(&p, 1, 1, 64);
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 10, 1);
    party_path(&p, 0, "step-10_ckpt/__0__0_src0.distcp", path, sizeof(path));
    sum = damage_sum(path);
    for (uint64_t tag = 2; tag < 5; tag++) { /* crash, again and again, in the next save */
        party_kill_ranks(&p);
        party_kill_engine(&p, 0);
        party_start(&p);
        party_recover(&p, 10, 1);
        party_all(&p, do_begin, 15, 5000, 0);
        party_all(&p, do_write, 15, tag, 0);
        if (tag == 4)
            party_all(&p, do_commit, 15, 0, 0);
        if (tag < 4)
            CHECK(damage_sum(path) == sum, "the recovered object has changed");
    }
    party_all(&p, do_wait, 15, HEARTH_PROTECTED, 15000);
    party_restart(&p);
    party_recover(&p, 15, 4);
}

/* ---- 2: a transfer that was cut is not completed by the next object's bytes ------------------ */

static void stop_in_a_pull(const struct party *q, struct me *me)
{
    me->opts.inflight_mib = 4;
    me->opts.stall_ms = me->opts.dead_ms = 20000;
    if (q->launches == 1 && me->rank == 1)
        setenv("HEARTH_STOP_POINT", "pull", 1);
}

/* The engine stands before its first pull: let it go, and stop it a moment later in the middle. */
static pid_t stopped_in_a_pull(uint32_t node)
{
    pid_t engine;

    party_wait_stopped(&p, node);
    engine = party_engine(&p, node);
    CHECK(engine, "n%u has no engine", node);
    kill(engine, SIGCONT);
    nap_ms(4);
    kill(engine, SIGSTOP);
    return engine;
}

/* Of whatever lies under a final name, each byte is that of its step. */
static void cut_transfer_never_mixes_objects(void)
{
    party_needs_points();
    party_open(&p, 2, 2, 512);
    p.bytes = 32 << 20;
    p.adjust = stop_in_a_pull;
    party_start(&p);
    party_recover(&p, 0, 0);
    party_tell(&p, 1, do_save, 1, 1, 0);
    party_tell(&p, 0, do_save, 1, 1, 0);
    stopped_in_a_pull(1);
    party_kill_rank(&p, 1); /* which would start another engine, with the same point */
    party_kill_engine(&p, 1);
    CHECK(party_hear(&p, 0, 20000).rc == 0, "the other rank's save is not its neighbour's");
    party_restart(&p);
    for (uint32_t r = 0; r < 2; r++)
        party_tell(&p, r, do_recover, 0, 0, 0);
    for (uint32_t r = 0; r < 2; r++) {
        struct answer a = party_hear(&p, r, 30000);

        CHECK(a.rc == 0 && a.v[0] <= 1, "rank %u: %s", r, a.err.text);
        if (a.v[0] == 1) {
            a = party_ask(&p, r, do_verify, 1, 1, 0);
            CHECK(a.rc == 0, "rank %u: %s", r, a.err.text);
        }
    }
    party_save(&p, 2, 2);
    party_lose_node(&p, 0);
    party_restart(&p);
    party_recover(&p, 2, 2);
}

/* ---- 3: the older step stays until the newer one is protected -------------------------------- */

static void older_kept_until_newer_protected(void)
{
    char path[256];
    struct answer a;

    party_open(&p, 2, 2, 128);
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    kill(party_engine(&p, 1), SIGSTOP); /* from here on no engine copies */
    a = party_ask(&p, 0, do_save, 2, 1, 0);
    CHECK(a.rc == 0, "%s", a.err.text);
    a = party_ask(&p, 0, do_wait, 2, HEARTH_SEALED, 10000);
    CHECK(a.rc == 0, "%s", a.err.text);
    a = party_ask(&p, 0, do_wait, 2, HEARTH_PROTECTED, 3500); /* past the peer's death */
    CHECK(a.rc != 0, "step 2 is PROTECTED with one copy");
    for (uint32_t k = 0; k < 2; k++) {
        party_path(&p, k, "step-1_ckpt/__0__0_src0.distcp", path, sizeof(path));
        CHECK(!access(path, F_OK), "%s is gone, and nothing newer is protected", path);
    }
    party_lose_node(&p, 0);
    party_kill_rank(&p, 1);
    party_kill_engine(&p, 1);
    party_start(&p);
    party_recover(&p, 1, 1);
}

/* ---- 4: a slot that a peer still pulls from is not written again under it
 * --------------------- */

static void slot_not_recycled_under_a_pull(void)
{
    struct answer a;
    pid_t engine;

    party_needs_points();
    party_open(&p, 2, 2, 512);
    p.bytes = 32 << 20;
    p.adjust = stop_in_a_pull;
    party_start(&p);
    party_recover(&p, 0, 0);
    party_tell(&p, 1, do_save, 1, 1, 0);
    party_tell(&p, 0, do_save, 1, 1, 0);
    engine = stopped_in_a_pull(1);
    CHECK(party_hear(&p, 0, 20000).rc == 0, "rank 0's save");
    a = party_ask(&p, 0, do_save, 2, 2, 0);
    CHECK(a.rc == 0, "%s", a.err.text);
    a = party_ask(&p, 0, do_begin, 3, 0, 0);
    party_must_fail(&a, HEARTH_EBUSY, "step 1", NULL);
    a = party_ask(&p, 0, do_begin, 3, 3000, 1); /* now the slot may go; the reads are still due */
    if (!a.rc) {
        a = party_ask(&p, 0, do_write, 3, 3, 0);
        CHECK(a.rc == 0, "%s", a.err.text);
        party_ask(&p, 0, do_abort, 0, 0, 0);
    }
    CHECK(!kill(engine, SIGCONT), "the engine of n1 is gone");
    party_hear(&p, 1, 20000);
    party_save(&p, 4, 4);
    party_lose_node(&p, 0);
    party_restart(&p);
    party_recover(&p, 4, 4);
}

/* ---- 5: torn objects do not count
 * ------------------------------------------------------------- */

static void torn_objects_do_not_count(void)
{
    static const char name[] = "__0__0_src0.distcp";
    uint64_t step = 1;
    struct answer a;
    char path[256];

    party_open(&p, 2, 2, 128);
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, step, 1);
    for (enum damage d = 0; d < DAMAGES; d++) {
        party_kill_ranks(&p);
        party_kill_engine(&p, 0);
        party_kill_engine(&p, 1);
        snprintf(path, sizeof(path), "%s/job/step-1_ckpt/%s", p.root[d % 2], name);
        damage(path, d);
        party_start(&p);
        for (uint32_t r = 0; r < 2; r++)
            party_tell(&p, r, do_recover, 0, 0, 0);
        for (uint32_t r = 0; r < 2; r++) {
            a = party_hear(&p, r, 20000);
            CHECK(a.rc == 0 && a.v[0] == 1, "damage %d, rank %u: %s", (int)d, r, a.err.text);
        }
        party_all(&p, do_verify, 1, 1, 0);
        damage_wait_whole(path, p.bytes); /* it is brought back */
    }
    party_kill_ranks(&p);
    for (uint32_t k = 0; k < 2; k++) {
        party_kill_engine(&p, k);
        snprintf(path, sizeof(path), "%s/job/step-1_ckpt/%s", p.root[k], name);
        damage(path, k ? DAMAGE_HALF : DAMAGE_EMPTY);
    }
    party_start(&p);
    party_tell(&p, 1, do_recover, 0, 0, 0);
    a = party_ask(&p, 0, do_recover, 0, 0, 0);
    party_must_fail(&a, HEARTH_ELOST, "step 1", name);
}

/* ---- 6: every byte is checked
 * ----------------------------------------------------------------- */

static void every_byte_is_checked(void)
{
    static const off_t places[] = { 0, 20, 4096, 4096 + 400000,
        -1 }; /* block, header, data, table */
    struct answer a;
    char path[256];

    party_open(&p, 2, 2, 128);
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        party_kill_ranks(&p);
        party_kill_engine(&p, 0);
        party_kill_engine(&p, 1);
        party_path(&p, (uint32_t)(i % 2), "step-1_ckpt/__0__0_src0.distcp", path, sizeof(path));
        damage_flip(path, places[i] < 0 ? damage_table(path) : places[i]);
        party_start(&p);
        party_recover(&p, 1, 1);
        CHECK(party_log_has(&p, (uint32_t)(i % 2), "__0__0_src0.distcp"),
                "place %zu: the log of n%zu does not name the object", i, i % 2);
        damage_wait_whole(path, p.bytes);
    }
    party_kill_ranks(&p);
    for (uint32_t k = 0; k < 2; k++) {
        party_kill_engine(&p, k);
        party_path(&p, k, "step-1_ckpt/__0__0_src0.distcp", path, sizeof(path));
        damage_flip(path, 4096 + 500000);
    }
    party_start(&p);
    party_tell(&p, 1, do_recover, 0, 0, 0);
    a = party_ask(&p, 0, do_recover, 0, 0, 0);
    if (a.rc == 0 && a.v[0]) /* chosen by the tables: then no rank gets the bytes */
        a = party_ask(&p, 0, do_verify, 1, 1, 0);
    party_must_fail(&a, a.rc == HEARTH_ECORRUPT ? HEARTH_ECORRUPT : HEARTH_ELOST,
            "__0__0_src0.distcp", NULL);
}

/* ---- 8: nothing waits for ever
 * ---------------------------------------------------------------- */

static void short_save(const struct party *q, struct me *me)
{
    (void)q;
    me->opts.save_ms = 6000;
}

static void nothing_waits_for_ever(void)
{
    struct answer a;
    pid_t engine;

    party_open(&p, 2, 2, 128);
    p.adjust = short_save;
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    engine = party_engine(&p, 1);
    kill(engine, SIGSTOP);
    a = party_ask(&p, 0, do_save, 2, 2, 0);
    CHECK(a.rc == 0, "%s", a.err.text);
    a = party_ask(&p, 0, do_wait, 2, HEARTH_PROTECTED, 1000);
    party_must_fail(&a, HEARTH_ETIMEOUT, "1000 ms", "n1");
    a = party_ask(&p, 0, do_wait, 2, HEARTH_PROTECTED, 15000); /* by save_ms, or its peer's death */
    party_must_fail(&a, HEARTH_EFAILED, "n1", NULL);
    kill(engine, SIGCONT);
    party_save(&p, 3, 3);
    party_kill_ranks(&p);
    party_start(&p);
    kill(engine, SIGSTOP);
    party_tell(&p, 1, do_recover, 3000, 0, 0);
    a = party_ask(&p, 0, do_recover, 3000, 0, 0);
    CHECK(a.rc == HEARTH_ETIMEOUT || a.rc == HEARTH_EPEER, "%d: %s", a.rc, a.err.text);
    party_must_fail(&a, a.rc, "n1", NULL);
    kill(engine, SIGCONT);
    party_restart(&p);
    party_recover(&p, 3, 3);
}

/* ---- 9: a full tmpfs is an error, and the next save works
 * ------------------------------------- */

static void full_tmpfs_is_an_error_and_the_next_save_works(void)
{
    char path[256];
    struct answer a;
    uint64_t room;
    int fd;

    party_open(&p, 1, 1, 128);
    p.bytes = 8 << 20;
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    room = party_free_bytes(&p, 0);
    if (room > (UINT64_C(1) << 30))
        party_skip("no right to mount a tmpfs that can be filled");
    snprintf(path, sizeof(path), "%s/filler", p.root[0]);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (room = party_free_bytes(&p, 0); room; room /= 2) /* to the last page, whoever else takes */
        while (room && party_free_bytes(&p, 0) >= room &&
                !posix_fallocate(fd, lseek(fd, 0, SEEK_END), (off_t)room))
            lseek(fd, 0, SEEK_END);
    for (uint64_t step = 2; step < 5; step++) { /* slots that are there do; new memory is refused */
        a = party_ask(&p, 0, do_save, step, step, 0);
        if (!a.rc)
            a = party_ask(&p, 0, do_wait, step, HEARTH_PROTECTED, 10000);
        if (a.rc)
            break;
    }
    CHECK(a.rc == 0 || a.rc == HEARTH_ENOSPC || a.rc == HEARTH_EFAILED || a.rc == HEARTH_EBUSY,
            "%d: %s", a.rc, a.err.text);
    if (a.rc)
        party_must_fail(&a, a.rc, "", NULL);
    close(fd);
    unlink(path);
    party_save(&p, 9, 9);
    party_restart(&p);
    party_recover(&p, 9, 9);
}

/* ---- 10: the third save touches no page for the first time
 * ------------------------------------ */

static void do_faults(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct rusage u;

    (void)me, (void)arg;
    getrusage(RUSAGE_SELF, &u);
    out->v[0] = (uint64_t)u.ru_minflt;
}

static uint64_t engine_faults(uint32_t node)
{
    unsigned long faults = 0;
    char path[64];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)party_engine(&p, node));
    f = fopen(path, "re");
    CHECK(f && fscanf(f, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %lu", &faults) == 1, "%s", path);
    fclose(f);
    return faults;
}

static void sized(const struct party *q, struct me *me)
{
    static uint64_t bytes[1];

    bytes[0] = q->bytes + 4096;
    me->opts.object_bytes = bytes;
    me->opts.object_count = 1;
}

static void third_save_has_no_cold_pages(void)
{
    uint64_t rank[2], engine[2], pages;

    party_open(&p, 2, 2, 512);
    p.bytes = 32 << 20;
    p.adjust = sized;
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    party_save(&p, 2, 2);
    pages = p.bytes / (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t step = 3; step < 9; step++) {
        for (uint32_t k = 0; k < 2; k++) {
            rank[k] = party_ask(&p, k, do_faults, 0, 0, 0).v[0];
            engine[k] = engine_faults(k);
        }
        party_save(&p, step, step);
        nap_ms(50); /* the copy of the older save is on its way out */
        for (uint32_t k = 0; k < 2; k++) {
            rank[k] = party_ask(&p, k, do_faults, 0, 0, 0).v[0] - rank[k];
            engine[k] = engine_faults(k) - engine[k];
            printf("save %llu, n%u: %llu faults in the rank, %llu in the engine, %llu pages\n",
                    (unsigned long long)step, k, (unsigned long long)rank[k],
                    (unsigned long long)engine[k], (unsigned long long)pages);
            CHECK(rank[k] * 100 < pages, "the rank of n%u has touched cold pages", k);
            CHECK(engine[k] * 100 < pages, "the engine of n%u has touched cold pages", k);
        }
    }
}

#define CASE(name) { #name, name },

void stranger_gets_nothing(void); /* 7, in stranger.c */

int main(int argc, char **argv)
{
    static const struct party_case cases[] = { /* clang-format off */
    CASE(restart_does_not_touch_what_it_recovered)
    CASE(cut_transfer_never_mixes_objects)
    CASE(older_kept_until_newer_protected)
    CASE(slot_not_recycled_under_a_pull)
    CASE(torn_objects_do_not_count)
    CASE(every_byte_is_checked)
    CASE(stranger_gets_nothing)
    CASE(nothing_waits_for_ever)
    CASE(full_tmpfs_is_an_error_and_the_next_save_works)
    CASE(third_save_has_no_cold_pages)
        /* clang-format on */
        { NULL, NULL }
    };

    return party_main(argc, argv, cases);
}
