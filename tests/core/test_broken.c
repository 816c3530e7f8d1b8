/* SPDX-License-Identifier: Apache-2.0 */
/* Slots whose files another program removes or cuts short under the engine, and room beside slots
 * in use. */
#include "check.h"
#include "tmp_root.h"

#include "core/base/guard.h"
#include "core/store/store_tmpfs.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB  (UINT64_C(1) << 20)
#define SIZE (4 * MIB)

static const struct hth_save_id save = { 3, 5, 9, 1 };
static const char *root;
static struct hth_store *s;

static int lost; /* slots that nothing takes the place of */

static void on_line(void *arg, enum hearth_log_level level, const char *event, const char *text)
{
    (void)arg, (void)level, (void)text;
    lost += !strcmp(event, "slot-lost");
}

static void setup(void)
{
    struct hth_store_tmpfs_opts opts = { .job = "job", .log = { .emit = on_line } };

    alarm(60);
    root = opts.root = tmp_root(64 * MIB);
    cr_assert(root != NULL);
    must(hth_store_tmpfs_open(&opts, &s, NULL));
}

static void teardown(void)
{
    s->ops->close(s);
    tmp_root_remove(root);
}

TestSuite(broken, .init = setup, .fini = teardown);

static void work_all(void)
{
    while (s->ops->work(s, HTH_WORK_ALL) != HTH_NEVER)
        continue;
}

static void reserve(size_t count)
{
    uint64_t sizes[8];

    for (size_t i = 0; i < count; i++)
        sizes[i] = SIZE;
    must(s->ops->reserve(s, sizes, count, NULL));
    work_all();
}

static struct hth_slot *take(void)
{
    struct hth_slot *slot;
    struct hearth_error err = { 0 };
    int rc = s->ops->take(s, SIZE, &slot, &err);

    cr_assert(zero(int, rc), "%s", err.text);
    return slot;
}

/* Each way in which a file of the pool, or of a save, can be spoiled. */
enum spoil { REMOVED, CUT, EMPTIED, PUNCHED, WAYS };

static void spoil(const char *path, enum spoil how)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    cr_assert(ge(int, fd, 0), "%s", path);
    if (how == REMOVED)
        cr_assert(zero(int, unlink(path)));
    else if (how == CUT)
        cr_assert(zero(int, ftruncate(fd, 4096)));
    else if (how == EMPTIED)
        cr_assert(zero(int, ftruncate(fd, 0)));
    else
        cr_assert(zero(
                int, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, MIB, (off_t)MIB)));
    close(fd);
}

static void spoil_pooled(const struct hth_slot *slot, enum spoil how)
{
    char path[200];

    snprintf(path, sizeof(path), "%s/job/.hearth/pool/%016lx", root, (unsigned long)slot->id);
    spoil(path, how);
}

/* The engine does this before it asks for slots. */
static unsigned mend(void)
{
    struct hearth_error why = { 0 };
    struct hth_slot *slot;
    unsigned n = 0;

    while ((slot = s->ops->broken(s, &why))) {
        cr_assert(strstr(why.text, "by another program") != NULL, "%s", why.text);
        s->ops->condemn(s, slot, "cut");
        n++;
    }
    cr_assert(zero(int, lost));
    return n;
}

Test(broken, a_free_slot_that_was_spoiled_is_not_handed_out_and_another_is_made)
{
    for (int how = 0; how < WAYS; how++) {
        struct hth_slot *slot, *other;
        uint64_t id;

        reserve(2);
        must(s->ops->take(s, SIZE, &slot, NULL));
        s->ops->give(s, slot);
        id = slot->id;
        cr_assert(zero(uint, mend()), "way %d", how); /* all is well */
        spoil_pooled(slot, how);
        slot = take();
        cr_assert(ne(u64, slot->id, id), "way %d", how);
        cr_assert(eq(uint, mend(), 1), "way %d", how);
        work_all();
        other = take();
        memset(slot->base, 1, slot->capacity);
        memset(other->base, 2, other->capacity);
        must(s->ops->seal(s, slot, save, "a", NULL));
        must(s->ops->seal(s, other, save, "b", NULL));
        s->ops->give(s, slot);
        s->ops->give(s, other);
        s->ops->remove(s, save);
        cr_assert(zero(uint, mend()), "way %d", how);
    }
}

Test(broken, what_was_written_into_a_spoiled_slot_is_not_sealed)
{
    for (int how = 0; how < WAYS; how++) {
        struct hth_slot *slot;
        struct hearth_error err;

        reserve(1);
        must(s->ops->take(s, SIZE, &slot, NULL));
        cr_assert(zero(uint, mend()), "way %d", how);
        spoil_pooled(slot, how);
        must_fail(s->ops->seal(s, slot, save, "a", &err), HEARTH_ECORRUPT);
        cr_assert(zero(uint, mend()), "way %d: it is its writer's still", how);
        s->ops->give(s, slot);
        cr_assert(eq(uint, mend(), 1), "way %d", how);
        work_all();
        slot = take();
        must(s->ops->seal(s, slot, save, "a", &err), err);
        s->ops->give(s, slot);
        s->ops->remove(s, save);
    }
}

Test(broken, a_sealed_file_that_was_spoiled_is_lent_to_nobody_and_put_aside)
{
    char path[200], command[200];

    for (int how = 0; how < WAYS; how++) {
        struct hth_slot *slot;
        struct hearth_error err;
        struct stat st;
        int fd;

        reserve(1);
        slot = take();
        must(s->ops->seal(s, slot, save, "a", NULL));
        must(s->ops->publish(s, save, NULL));
        must(s->ops->reader(s, slot, &fd, NULL));
        close(fd);
        snprintf(path, sizeof(path), "%s/job/step-9_ckpt/a", root);
        spoil(path, how);
        must_fail(s->ops->reader(s, slot, &fd, &err), HEARTH_ECORRUPT);
        cr_assert(strstr(err.text, "object a") != NULL, "%s", err.text);
        cr_assert(eq(uint, mend(), 1), "way %d", how);
        snprintf(command, sizeof(command), "test $(ls %s/job/.hearth/evidence | wc -l) = %d", root,
                how);
        cr_assert(zero(int, system(command)), "way %d", how);
        cr_assert(ne(int, stat(path, &st), 0));
        s->ops->remove(s, save);
    }
}

/* A file of another program that has the name by now is not ours to remove. */
Test(broken, another_file_of_that_name_stays)
{
    struct hth_slot *slot;
    char path[200];
    struct stat st;

    reserve(1);
    slot = take();
    must(s->ops->seal(s, slot, save, "a", NULL));
    must(s->ops->publish(s, save, NULL));
    snprintf(path, sizeof(path), "%s/job/step-9_ckpt/a", root);
    spoil(path, REMOVED);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    cr_assert(eq(uint, mend(), 1));
    cr_assert(zero(int, stat(path, &st)));
}

Test(broken, a_reader_keeps_its_slot_until_it_has_ended)
{
    struct hth_slot *slot;

    reserve(1);
    slot = take();
    memset(slot->base, 7, slot->capacity);
    s->ops->lease(s, slot);
    spoil_pooled(slot, REMOVED);
    s->ops->give(s, slot);
    cr_assert(eq(uint, mend(), 1));
    cr_assert(eq(int, slot->base[SIZE - 1], 7));
    s->ops->unlease(s, slot);
    work_all();
    cr_assert(ne(ptr, take(), NULL));
}

/* ---- Between the look and the last byte
 * ---------------------------------------------------------- */

static unsigned patched;

static void on_bus(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    if (!hth_guard_patch(info->si_addr))
        _exit(99);
    patched++;
}

Test(broken, a_mapping_that_is_cut_while_it_is_read_reads_zeros)
{
    struct sigaction action = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };
    struct hth_slot *slot, *whole;
    uint64_t sum = 0;

    cr_assert(zero(int, sigaction(SIGBUS, &action, NULL)));
    reserve(2);
    slot = take();
    whole = take();
    memset(slot->base, 1, slot->capacity);
    memset(whole->base, 1, whole->capacity);
    spoil_pooled(slot, CUT);
    for (uint64_t i = 0; i < slot->capacity; i++)
        sum += slot->base[i];
    cr_assert(eq(u64, sum, 4096));
    slot->base[SIZE - 1] = 3; /* and written to: it goes nowhere */
    cr_assert(eq(uint, patched, 1));
    for (uint64_t i = 0; i < whole->capacity; i++)
        cr_assert(eq(int, whole->base[i], 1));
    s->ops->give(s, slot);
    cr_assert(eq(uint, mend(), 1));
}

Test(broken, other_memory_is_not_patched, .exit_code = 99)
{
    struct sigaction action = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };
    volatile unsigned char *base;
    char path[200];
    int fd;

    cr_assert(zero(int, sigaction(SIGBUS, &action, NULL)));
    snprintf(path, sizeof(path), "%s/mine", root);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    base = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    cr_assert(zero(int, base[0])); /* of an empty file */
}

/* ---- Room beside what is in use
 * ------------------------------------------------------------------- */

Test(broken, slots_in_use_are_not_room_for_what_comes)
{
    struct hth_slot *slot[2], *more;
    uint64_t size = SIZE, sizes[2] = { SIZE, SIZE };

    reserve(2);
    for (int i = 0; i < 2; i++)
        slot[i] = take();
    must_fail(s->ops->take(s, SIZE, &more, NULL), HEARTH_EBUSY);
    must(s->ops->reserve(s, sizes, 2, NULL)); /* what a join says: keeps what is there */
    must_fail(s->ops->take(s, SIZE, &more, NULL), HEARTH_EBUSY);
    must(s->ops->want(s, &size, 1, HTH_WANT_BESIDE, NULL));
    more = take();
    s->ops->give(s, more);
    must(s->ops->want(s, &size, 1, HTH_WANT_BESIDE, NULL)); /* it is there: none is made */
    more = take();
    must_fail(s->ops->take(s, SIZE, &slot[0], NULL), HEARTH_EBUSY);
    (void)slot;
}

/* Where the store has all of /dev/shm, nothing is too much. */
static void needs_a_mount(void)
{
    if (!tmp_root_is_mounted(root))
        cr_skip_test("no right to mount a tmpfs of a given size");
}

Test(broken, what_readers_have_is_room_for_a_save_that_waits_and_not_for_one_that_cannot)
{
    struct hth_slot *slot, *more;
    uint64_t size = SIZE, much[12];

    needs_a_mount();
    reserve(1);
    slot = take();
    s->ops->lease(s, slot);
    s->ops->give(s, slot);
    must(s->ops->want(s, &size, 1, HTH_WANT_OR_READERS,
            NULL)); /* begin: as many as lease_bytes gives, no more */
    must_fail(s->ops->take(s, SIZE, &more, NULL), HEARTH_EBUSY);
    for (int i = 0; i < 12; i++)
        much[i] = SIZE;
    must_fail(s->ops->want(s, much, 12, HTH_WANT_BESIDE, NULL), HEARTH_ENOSPC);
    must(s->ops->want(s, &size, 1, HTH_WANT_BESIDE, NULL)); /* a pull: beside them */
    (void)take();
}

/* Free slots of another world's shards make way; those that are registered, when that has ended. */
Test(broken, free_slots_of_other_sizes_make_way)
{
    struct hth_slot *slot, *seen, *large;
    uint64_t size = 40 * MIB;
    int user;

    needs_a_mount();
    reserve(6);
    slot = take();
    slot->user = &user;
    s->ops->give(s, slot);
    must_fail(s->ops->want(s, &size, 1, HTH_WANT_BESIDE, NULL), HEARTH_ENOSPC);
    must(s->ops->want(s, &size, 1, HTH_WANT_FIRST, NULL));
    work_all();
    must(s->ops->take(s, size, &large, NULL));
    size = 10 * MIB;
    must_fail(s->ops->want(s, &size, 1, HTH_WANT_FIRST, NULL), HEARTH_ENOSPC);
    seen = s->ops->surplus(s);
    cr_assert(eq(ptr, seen, slot));
    seen->user = NULL;
    cr_assert(eq(ptr, s->ops->surplus(s), NULL));
}

static unsigned free_slots(void)
{
    struct hth_slot *slot[8];
    unsigned count = 0;

    s->ops->reserve(s, NULL, 0, NULL); /* take() makes none */
    while (count < 8 && !s->ops->take(s, SIZE, &slot[count], NULL))
        count++;
    for (unsigned i = 0; i < count; i++)
        s->ops->give(s, slot[i]);
    return count;
}

/* Of seven one is in use, one a rank has mapped, one is registered. */
Test(broken, what_is_beyond_the_sizes_that_are_owed_is_given_back)
{
    uint64_t sizes[2] = { SIZE, SIZE };
    struct hth_slot *ranks, *used, *registered;
    int user;

    reserve(7);
    must(s->ops->lend(s, SIZE, 3, &ranks, NULL));
    used = take();
    registered = take();
    registered->user = &user;
    s->ops->give(s, registered);
    s->ops->give(s, ranks);
    s->ops->keep_only(s, sizes, 2);
    cr_assert(eq(ptr, s->ops->surplus(s), registered));
    registered->user = NULL;
    s->ops->keep_only(s, sizes, 2);
    s->ops->give(s, used);
    cr_assert(le(u32, free_slots(), 3), "two are owed, and a rank's");
    cr_assert(ge(u32, free_slots(), 2));
    (void)ranks;
}
