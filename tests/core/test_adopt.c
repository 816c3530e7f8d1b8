/* SPDX-License-Identifier: Apache-2.0 */
/* Opening what is there: locks, other people's directories, half-done renames. */
#include "adopt_rig.h"
#include "pod.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct hth_save_id save_b = { 7, 11, 40, 2 };

TestSuite(adopt, .init = setup, .fini = teardown);

Test(adopt, a_second_engine_is_kept_out_and_told_by_whom)
{
    struct hth_store_tmpfs_opts opts = options();
    struct hth_store *second;
    struct hearth_error err;
    char want[64];
    struct hth_lock_holder holder = { .held = 1 };
    int records, fd;

    must_fail(hth_store_records(root, "job", &records, &err), HEARTH_ENOENT);
    must_fail(hth_store_locked(root, "job", &holder, &err), HEARTH_ENOENT);
    must(open_store(NULL));
    snprintf(want, sizeof(want), "engine with pid %ld", (long)getpid());
    must_fail(hth_store_tmpfs_open(&opts, &second, &err), HEARTH_ELOCKED);
    cr_assert(strstr(err.text, want) != NULL, "%s", err.text);
    must(hth_store_records(root, "job", &records, NULL));
    must_fail(hth_store_lock(records, "job", &fd, &err), HEARTH_ELOCKED);
    must(hth_store_locked(root, "job", &holder, &err), err);
    cr_assert(eq(int, holder.pid, getpid()));
    close_store();
    must(hth_store_locked(root, "job", &holder, &err), err);
    cr_assert(zero(int, holder.held));
    must(hth_store_lock(records, "job", &fd, &err), err);
    close(records);
    must_fail(open_store(&err), HEARTH_ELOCKED);
    close(fd);
    must(open_store(NULL));
}

/* As in another pod, which counts pids for itself. 0: it has the job's store, and reports that
 * through the pipe. */
static int hold_elsewhere(int told)
{
    struct hth_store *own;
    struct hth_store_tmpfs_opts opts = options();

    if (getpid() != 1 || unshare(CLONE_NEWUTS) || sethostname("pod-b", 5) ||
            hth_store_tmpfs_open(&opts, &own, NULL))
        return 1;
    if (write(told, "x", 1) != 1)
        return 1;
    pause();
    return 0;
}

Test(adopt, of_an_engine_in_another_pod_the_host_is_told_and_no_pid_of_ours)
{
    struct hth_store_tmpfs_opts opts = options();
    struct hth_lock_holder holder = { 0 };
    struct hth_store *second;
    struct hearth_error err;
    char byte, text[HTH_LOCK_HOLDER_TEXT];
    int ends[2];
    pid_t pid;

    if (geteuid())
        cr_skip_test("only root makes a namespace of pids");
    cr_assert(zero(int, pipe2(ends, O_CLOEXEC)));
    pid = pod_fork();
    if (!pid)
        _exit(hold_elsewhere(ends[1]));
    close(ends[1]);
    cr_assert(eq(long, read(ends[0], &byte, 1), 1), "it did not open the store");
    must_fail(hth_store_tmpfs_open(&opts, &second, &err), HEARTH_ELOCKED);
    cr_assert(ne(ptr, strstr(err.text, "host pod-b, pid 1 there"), NULL), "%s", err.text);
    cr_assert(eq(ptr, strstr(err.text, "with pid"), NULL), "%s", err.text);
    must(hth_store_locked(root, "job", &holder, NULL));
    cr_assert(eq(int, holder.held, 1));
    cr_assert(zero(int, holder.pid));
    cr_assert(zero(int, strcmp(hth_lock_holder_text(&holder, text),
                                "in another pod or container: host pod-b, pid 1 there")));
    cr_assert(zero(int, kill(pid, SIGKILL)));
    cr_assert(eq(int, waitpid(pid, NULL, 0), pid));
    close(ends[0]);
}

Test(adopt, wrong_roots_jobs_and_stores_are_refused_with_a_sentence)
{
    struct hth_store_tmpfs_opts opts = options();
    struct hearth_error err;
    char from[512];

    opts.job = "../other";
    must_fail(hth_store_tmpfs_open(&opts, &s, &err), HEARTH_EINVAL);
    opts = options();
    opts.root = "/nowhere/at/all";
    must_fail(hth_store_tmpfs_open(&opts, &s, &err), HEARTH_EINVAL);
    opts.root = "/proc";
    must_fail(hth_store_tmpfs_open(&opts, &s, &err), HEARTH_EINVAL);
    cr_assert(strstr(err.text, "is not on a tmpfs; mount one there") != NULL, "%s", err.text);

    must(open_store(NULL));
    close_store();
    snprintf(from, sizeof(from), "%s", at(""));
    from[strlen(from) - 1] = '\0';
    char to[512];
    snprintf(to, sizeof(to), "%s/renamed", root);
    must(rename(from, to));
    opts = options();
    opts.job = "renamed";
    must_fail(hth_store_tmpfs_open(&opts, &s, &err), HEARTH_ECORRUPT);
    cr_assert(strstr(err.text, "belongs to job job") != NULL, "%s", err.text);
    must(rename(to, from));
    put(".hearth/store", "HTHSTORE\1\0\0\0", 12);
    must_fail(open_store(&err), HEARTH_EUNSUPPORTED);
    cr_assert(strstr(err.text, "of version 1, and this Hearth reads") != NULL, "%s", err.text);
    put(".hearth/store", "HTHSTORE\377\0\0\0", 12);
    must_fail(open_store(&err), HEARTH_EUNSUPPORTED);
    put(".hearth/store", "HTHSTORE\5\0\0\0", 12);
    must_fail(open_store(&err), HEARTH_ECORRUPT);
    put(".hearth/store", "", 0);
    must_fail(open_store(&err), HEARTH_ECORRUPT);
    must(chmod(from, 0777));
    must_fail(open_store(&err), HEARTH_EINVAL);
    s = NULL;
}

Test(adopt, every_byte_of_the_store_record_is_checked)
{
    unsigned char bytes[96], bad[96];
    int fd;

    must(open_store(NULL));
    close_store();
    fd = open(at(".hearth/store"), O_RDWR);
    cr_assert(eq(int, (int)read(fd, bytes, 96), 96));
    for (int i = 0; i < 96; i++) {
        memcpy(bad, bytes, 96);
        bad[i] ^= 0x20;
        cr_assert(eq(int, (int)pwrite(fd, bad, 96, 0), 96));
        cr_assert(lt(int, open_store(NULL), 0), "byte %d", i);
    }
    cr_assert(eq(int, (int)pwrite(fd, bytes, 96, 0), 96));
    close(fd);
    must(open_store(NULL));
}

Test(adopt, links_in_place_of_our_directories_and_files_are_not_followed)
{
    struct hth_slot *slot;
    struct seen seen;

    must(open_store(NULL));
    sealed(save_a, "obj", 1);
    must(s->ops->publish(s, save_a, NULL));
    close_store();
    must(symlink("/etc/passwd", at("step-40_ckpt/link")));
    must(symlink("/etc", at("step-41_ckpt")));
    must(symlink("/etc/passwd", at(".hearth/pool/0000000000000001")));
    must(mkfifo(at("step-40_ckpt/pipe"), 0600));
    must(mkdir(at("step-40_ckpt/sub"), 0700));
    must(symlink("/etc/hosts", at(".hearth/new")));
    must(open_store(NULL));
    seen = scan();
    cr_assert(eq(int, seen.count, 1));
    must(s->ops->take(s, MIB, &slot, NULL));
    must(s->ops->record_put(s, "keep", "x", 1, NULL));
    close_store();
    must(unlink(at(".hearth/lock")));
    must(symlink("/tmp/elsewhere", at(".hearth/lock")));
    cr_assert(lt(int, open_store(NULL), 0));
    s = NULL;
}

static void stop(void *arg, const char *point)
{
    if (!strcmp(point, arg))
        _exit(9);
}

/* In a child that dies between the exchange of two directories and the rename after it. */
static void die_in(void (*what)(void))
{
    struct hth_store_tmpfs_opts opts = options();
    pid_t pid = fork();
    int status;

    if (!pid) {
        static char point[] = "exchange";
        opts.points = (struct hth_points){ stop, point };
        if (hth_store_tmpfs_open(&opts, &s, NULL) ||
                s->ops->scan(s, see, &(struct seen){ 0 }, NULL))
            _exit(1);
        what();
        _exit(2);
    }
    cr_assert(eq(int, (int)waitpid(pid, &status, 0), pid));
    cr_assert(eq(int, WEXITSTATUS(status), 9));
}

#ifdef HEARTH_POINTS
static void publish_b(void)
{
    (void)s->ops->publish(s, save_b, NULL);
}

static void remove_b(void)
{
    s->ops->remove(s, save_b);
}

Test(adopt, a_death_between_the_two_renames_of_an_exchange_does_no_harm)
{
    struct seen seen;
    char text[HTH_SAVE_TEXT], path[128];

    must(open_store(NULL));
    sealed(save_a, "a", 1);
    must(s->ops->publish(s, save_a, NULL));
    must(raw_put(s, save_b, "raw-b", "B", 1, NULL)); /* no block says whose it is */
    close_store();
    die_in(publish_b);
    for (int time = 0; time < 2; time++) {
        must(open_store(NULL));
        seen = scan();
        cr_assert(eq(int, seen.count, 2));
        cr_assert(zero(int, hth_save_cmp(found(&seen, "a")->save, save_a)));
        cr_assert(zero(int, hth_save_cmp(found(&seen, "raw-b")->save, save_b)));
        cr_assert(in_dir(&seen, "raw-b", "step-40_ckpt"));
        hth_save_text(save_a, text);
        cr_assert(in_dir(&seen, "a", text));
        close_store();
    }
    die_in(remove_b);
    must(open_store(NULL));
    seen = scan();
    cr_assert(zero(int, hth_save_cmp(found(&seen, "a")->save, save_a)));
    cr_assert(in_dir(&seen, "a", "step-40_ckpt"));
    s->ops->remove(s, save_b); /* goes on where it was stopped */
    cr_assert(eq(int, scan().count, 1));
    hth_save_text(save_b, text);
    snprintf(path, sizeof(path), ".hearth/%s", text);
    cr_assert(ne(int, access(at(path), F_OK), 0));
}
#endif

Test(adopt, a_name_alone_makes_no_save)
{
    struct seen seen;
    char text[HTH_SAVE_TEXT], from[512];

    must(open_store(NULL));
    sealed(save_a, "a", 1);
    close_store();
    hth_save_text(save_a, text);
    snprintf(from, sizeof(from), ".hearth/%s", text);
    snprintf(from, sizeof(from), "%s/job/.hearth/%s", root, text);
    hth_save_text(save_b, text);
    char to[512];
    snprintf(to, sizeof(to), "%s/job/.hearth/%s", root, text);
    must(rename(from, to)); /* b's name, a's object */
    must(open_store(NULL));
    seen = scan();
    cr_assert(eq(int, seen.count, 1));
    cr_assert(zero(int, hth_save_cmp(seen.f[0].save, save_a)));
    hth_save_text(save_a, text);
    cr_assert(in_dir(&seen, "a", text));
}

Test(adopt, an_object_of_another_job_is_not_taken_for_ours)
{
    struct hth_slot *slot;
    struct hth_block block;
    struct seen seen;

    must(open_store(NULL));
    slot = sealed(save_a, "a", 1);
    must(hth_block_decode(&block, slot->base, HTH_BLOCK, slot->capacity, NULL));
    snprintf(block.job, sizeof(block.job), "other");
    block.save = save_b;
    hth_block_encode(&block, slot->base);
    close_store();
    must(open_store(NULL));
    seen = scan();
    cr_assert(eq(int, seen.count, 1));
    cr_assert(zero(int, hth_save_cmp(seen.f[0].save, save_a))); /* its directory's */
}

Test(adopt, a_slot_is_found_again_with_its_generation)
{
    uint64_t generation;

    must(open_store(NULL));
    generation = sealed(save_a, "a", 1)->generation;
    close_store();
    must(open_store(NULL));
    cr_assert(eq(u64, scan().f[0].slot->generation, generation));
}

static void put_received(void)
{
    static char point[] = "exchange";
    struct hth_slot *slot;

    if (s->ops->take(s, MIB, &slot, NULL) || s->ops->receive(s, slot, save_a, "a", NULL))
        return;
    memset(slot->base, 7, MIB);
    stop(point, point);
}

static void give_tmp(void *arg, const struct hth_store_found *f)
{
    (void)arg;
    if (f->tmp)
        s->ops->give(s, f->slot);
}

/* Free like any other; and what had come is found by its name until the slot is used. */
Test(adopt, what_was_being_received_when_the_engine_died_can_be_gone_on_with)
{
    struct hth_slot *other, *slot = NULL;

    must(open_store(NULL));
    must(s->ops->reserve(s, (const uint64_t[]){ MIB, MIB }, 2, NULL));
    while (s->ops->work(s, HTH_WORK_ALL) != HTH_NEVER)
        continue;
    close_store();
    die_in(put_received);
    must(open_store(NULL));
    must(s->ops->scan(s, give_tmp, NULL, NULL));
    must_fail(s->ops->resume(s, MIB, save_a, "b", &slot), HEARTH_ENOENT);
    must_fail(s->ops->resume(s, MIB, save_b, "a", &slot), HEARTH_ENOENT);
    must_fail(s->ops->resume(s, 64 * MIB, save_a, "a", &slot), HEARTH_ENOENT);
    must(s->ops->lend(s, MIB, 0, &other, NULL));
    must(s->ops->resume(s, MIB, save_a, "a", &slot));
    cr_assert(eq(int, slot->base[MIB - 1], 7));
    s->ops->give(s, slot);
    must_fail(s->ops->resume(s, MIB, save_a, "a", &slot), HEARTH_ENOENT);
    s->ops->give(s, other);
}

static void put_half(void)
{
    static char point[] = "exchange";
    struct hth_raw *raw = NULL;

    if (!s->ops->raw_make(s, save_a, "raw", 2 * MIB, &raw, NULL) &&
            !s->ops->raw_back(s, raw, 0, MIB, NULL))
        stop(point, point);
}

Test(adopt, a_raw_object_whose_maker_died_leaves_nothing)
{
    die_in(put_half);
    must(access(at(".hearth/new-1"), F_OK));
    must(open_store(NULL));
    cr_assert(eq(int, scan().count, 0));
    cr_assert(ne(int, access(at(".hearth/new-1"), F_OK), 0));
}

Test(adopt, a_raw_object_of_a_slots_size_is_still_a_raw_object)
{
    char *bytes = calloc(1, 2 * MIB);
    struct seen seen;

    must(open_store(NULL));
    must(raw_put(s, save_a, "raw", bytes, 2 * MIB, NULL));
    close_store();
    must(open_store(NULL));
    seen = scan();
    cr_assert(eq(int, seen.count, 1));
    cr_assert(found(&seen, "raw")->slot == NULL);
    free(bytes);
}

/* As root, too, so that it shows in the modes alone. */
Test(adopt, a_chmod_of_somebody_elses_loses_no_object)
{
    char *bytes = calloc(1, 2 * MIB);
    struct seen seen;
    struct stat st;

    must(open_store(NULL));
    sealed(save_a, "a", 1);
    must(raw_put(s, save_a, "raw", bytes, 2 * MIB, NULL));
    must(s->ops->publish(s, save_a, NULL));
    close_store();
    must(chmod(at("step-40_ckpt/a"), 0444));
    must(chmod(at("step-40_ckpt/raw"), 0444));
    must(chmod(at("step-40_ckpt"), 0555));
    must(open_store(NULL));
    seen = scan();
    cr_assert(eq(int, seen.count, 2));
    cr_assert(ne(ptr, found(&seen, "a")->slot, NULL));
    cr_assert(zero(int, hth_save_cmp(found(&seen, "a")->save, save_a)));
    cr_assert(eq(ptr, found(&seen, "raw")->slot, NULL));
    must(stat(at("step-40_ckpt/a"), &st));
    cr_assert(eq(u32, st.st_mode & 0777, 0600));
    free(bytes);
}

/* Only the manifest has its kind. */
Test(adopt, a_raw_object_of_a_slots_size_that_became_writable_is_still_a_raw_object)
{
    struct hth_object object = {
        .id = 1, .kind = HTH_OBJECT_RAW, .data_len = 2 * MIB, .name = "raw"
    };
    struct hth_manifest m = {
        .save = save_a, .world = 1, .nodes = 1, .job = "job", .objects = 1, .object = &object
    };
    unsigned char *bytes = calloc(1, 2 * MIB);
    char name[HTH_SAVE_TEXT + 16];
    struct seen seen;

    must(open_store(NULL));
    must(raw_put(s, save_a, "raw", bytes, 2 * MIB, NULL));
    must(hth_manifest_encode(&m, bytes, NULL));
    hth_save_text(save_a, name);
    strcat(name, ".manifest");
    must(s->ops->record_put(s, name, bytes, hth_manifest_bytes(&m), NULL));
    must(s->ops->publish(s, save_a, NULL));
    close_store();
    must(chmod(at("step-40_ckpt/raw"), 0644));
    must(open_store(NULL));
    seen = scan();
    cr_assert(eq(ptr, found(&seen, "raw")->slot, NULL));
    free(bytes);
}

/* By rsync, or in an image: the files have other inodes, of which some are those of the names of
 * others. */
Test(adopt, a_job_directory_that_was_copied_works)
{
    struct hth_slot *one;
    char from[64], to[64];
    uint64_t id[4];
    struct seen seen;

    must(open_store(NULL));
    sealed(save_a, "a", 1);
    for (int i = 0; i < 4; i++) {
        must(s->ops->take(s, MIB, &one, NULL));
        id[i] = one->id;
    }
    close_store();
    must(rename(at(".hearth/pool"), at(".hearth/copied")));
    must(mkdir(at(".hearth/pool"), 0700));
    for (int i = 0; i < 4; i++) {
        snprintf(from, sizeof(from), ".hearth/copied/%016" PRIx64, id[i]);
        snprintf(to, sizeof(to), ".hearth/pool/%016" PRIx64, id[(i + 1) % 4]);
        must(rename(at(from), at(to)));
    }
    must(rmdir(at(".hearth/copied")));
    must(open_store(NULL));
    seen = scan();
    cr_assert(eq(int, seen.count, 1));
    cr_assert(zero(int, hth_save_cmp(seen.f[0].save, save_a)));
    cr_assert(eq(ptr, strstr(said, "left alone"), NULL), "%s", said);
    for (int i = 0; i < 4; i++) {
        must(s->ops->take(s, MIB, &one, NULL));
        /* No number is used again by which a rank or a record may name a slot. */
        for (int k = 0; k < 4; k++)
            cr_assert(ne(u64, one->id, id[k]));
    }
    s->ops->give(s, seen.f[0].slot);
}

Test(adopt, broken_things_in_the_pool_are_no_slots)
{
    struct hth_slot *slot;
    struct seen seen;

    must(open_store(NULL));
    sealed(save_a, "a", 1);
    close_store();
    put(".hearth/pool/00000000000000aa", "short", 5);
    put(".hearth/pool/x", "", 0);
    put(".hearth/new", "half", 4);
    put(".hearth/not-a-save", "?", 1);
    must(mkdir(at(".hearth/pool/dir"), 0700));
    must(open_store(NULL));
    seen = scan();
    cr_assert(eq(int, seen.count, 1));
    must(s->ops->take(s, 2 * MIB, &slot, NULL));
    memset(slot->base, 1, slot->capacity);
}

/* The store writes into a slot and empties a save's directory: a file with another owner or another
 * name belongs to a program that does not expect that. */
Test(adopt, what_is_also_somebody_elses_is_left_alone)
{
    struct hth_slot *slot;
    struct seen seen;
    char name[64];
    struct stat st;

    must(open_store(NULL));
    sealed(save_a, "a", 1);
    sealed(save_a, "b", 2);
    slot = sealed(save_b, "c", 3);
    must(s->ops->publish(s, save_a, NULL));
    s->ops->give(s, slot);
    snprintf(name, sizeof(name), ".hearth/pool/%016" PRIx64, slot->id);
    close_store();
    must(link(at(name), at("free")));
    must(link(at("step-40_ckpt/a"), at("precious")));
    must(open_store(NULL));
    seen = scan();
    cr_assert(eq(int, seen.count, 1), "%s", said);
    (void)found(&seen, "b");
    s->ops->remove(s, save_a);
    for (int i = 0; i < 3; i++) {
        must(s->ops->take(s, MIB, &slot, NULL));
        memset(slot->base, 9, slot->capacity);
    }
    close_store();
    cr_assert(eq(int, byte_at(at("precious"), MIB), 1));
    cr_assert(eq(int, byte_at(at("free"), MIB), 3));
    if (geteuid() != 0)
        return;
    must(mkdir(at("step-41_ckpt"), 0700));
    put("step-41_ckpt/__0__0_src0.distcp", "theirs", 6);
    must(chown(at("step-41_ckpt"), 65534, 65534));
    must(open_store(NULL));
    said[0] = '\0';
    seen = scan();
    cr_assert(eq(int, seen.count, 1), "only 'b' is found again: %s", said);
    cr_assert(strstr(said, "belongs to user 65534") != NULL, "%s", said);
    cr_assert(zero(int, stat(at("step-41_ckpt/__0__0_src0.distcp"), &st)));
}

/* As a rank that outlives its engine has it: mapped, through an open file of that engine. */
Test(adopt, a_slot_that_somebody_still_maps_is_not_handed_out)
{
    struct hth_slot *held, *view, *next;
    unsigned char *rank, *reader;
    char path[512];
    int fd;

    must(open_store(NULL));
    must(s->ops->take(s, 2 * MIB, &held, NULL));
    view = sealed(save_a, "a", 5);
    snprintf(path, sizeof(path), ".hearth/pool/%016" PRIx64, held->id);
    fd = open(at(path), O_RDWR);
    rank = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    fd = open(
            at(".hearth/0000000000000007-000000000000000b-0000000000000028-00000001/a"), O_RDONLY);
    reader = mmap(NULL, 2 * MIB, PROT_READ, MAP_SHARED, fd, 0);
    cr_assert(rank != MAP_FAILED && reader != MAP_FAILED);
    close(fd);
    uint64_t held_id = held->id, view_id = view->id;
    close_store();

    must(open_store(NULL));
    s->ops->give(s, scan().f[0].slot);
    must(s->ops->take(s, 2 * MIB, &next, NULL));
    cr_assert(next->id != held_id && next->id != view_id);
    memset(next->base, 9, next->capacity);
    cr_assert(eq(int, reader[MIB], 5));
    munmap(rank, 2 * MIB);
    must(s->ops->take(s, 2 * MIB, &next, NULL));
    cr_assert(eq(u64, next->id, held_id));
    munmap(reader, 2 * MIB);
    must(s->ops->take(s, 2 * MIB, &next, NULL));
    cr_assert(eq(u64, next->id, view_id));
}

#ifdef HEARTH_POINTS /* only then can a call be made to fail */
Test(adopt, every_allocation_of_open_and_scan_may_fail)
{
    struct seen seen;
    uint64_t n = 0;
    int rc;

    must(open_store(NULL));
    sealed(save_a, "a", 77);
    must(s->ops->publish(s, save_a, NULL));
    must(raw_put(s, save_b, "raw", "x", 1, NULL));
    close_store();
    do {
        faults.calls = 0;
        faults.fail_at = ++n;
        rc = open_store(NULL);
        if (!rc) {
            seen.count = 0;
            rc = s->ops->scan(s, see, &seen, NULL);
            close_store();
        }
        cr_assert(rc == 0 || rc == HEARTH_ENOSPC, "call %d: %d", (int)n, rc);
        faults.fail_at = 0;
        must(open_store(NULL));
        seen = scan();
        cr_assert(eq(int, seen.count, 2), "call %d", (int)n);
        cr_assert(eq(int, found(&seen, "a")->slot->base[MIB], 77), "call %d", (int)n);
        close_store();
    } while (rc);
    cr_assert(gt(u64, n, 5));
}
#endif

Test(adopt, a_directory_on_a_disk_is_used_when_allowed_and_said)
{
    static char path[] = "/tmp/hearth-adopt-XXXXXX";
    struct hth_store_tmpfs_opts opts = options();

    opts.root = mkdtemp(path);
    opts.allow_non_tmpfs = 1;
    must(hth_store_tmpfs_open(&opts, &s, NULL));
    sealed(save_a, "a", 1);
    must(s->ops->publish(s, save_a, NULL));
    close_store();
    must(hth_store_tmpfs_open(&opts, &s, NULL));
    cr_assert(eq(int, scan().count, 1));
    close_store();
    tmp_root_remove(path);
}
