/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "engines.h"
#include "rank.h"
#include "tmp_root.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rank r;
static struct hearth_checkpoint *ckpt;
static struct hearth_save *save;
static struct hearth_handle *handle;
static struct hearth_view view = { .struct_size = sizeof(view) };
static float x = 6;

/* 0, or the number of the call that was not refused. */
static int calls_of_a_child(void)
{
    struct hearth_status st = { .struct_size = sizeof(st) };
    struct hearth_recovery info = { .struct_size = sizeof(info) };
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);
    struct hearth_view other;
    struct hearth_checkpoint *c;
    struct hearth_save *s;
    char text[10];

    if (hearth_recover(r.h, NULL, &c, NULL) != HEARTH_EFORK)
        return 1;
    if (hearth_save_begin(r.h, 9, 1, NULL, &s, NULL) != HEARTH_EFORK)
        return 2;
    if (hearth_save_add(save, &piece, 1, NULL) != HEARTH_EFORK)
        return 3;
    if (hearth_save_commit(save, NULL, NULL) != HEARTH_EFORK)
        return 4;
    if (hearth_wait(handle, HEARTH_SEALED, 1, NULL) != HEARTH_EFORK)
        return 5;
    if (hearth_test(handle, &st, NULL) != HEARTH_EFORK)
        return 6;
    if (hearth_checkpoint_info(ckpt, &info, NULL) != HEARTH_EFORK)
        return 7;
    if (hearth_load(ckpt, &piece, 1, 0, NULL, NULL) != HEARTH_EFORK)
        return 8;
    if (hearth_item_at(ckpt, 0, 0, &item, NULL) != HEARTH_EFORK)
        return 9;
    if (hearth_log_poll(r.h, NULL, text, sizeof(text)) != 0)
        return 10;
    if (memcmp(view.data, &x, sizeof(x)) != 0)
        return 11;
    other = view;
    hearth_view_close(r.h, &view);
    if (view.data || memcmp(other.data, &x, sizeof(x)) != 0)
        return 12;
    hearth_save_abort(save);
    hearth_handle_close(handle);
    hearth_checkpoint_close(ckpt);
    hearth_close(r.h, HEARTH_DROP);
    return 0;
}

Test(fork, a_child_is_refused_everything_but_the_views_it_inherits)
{
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_error err = { 0 };
    uint32_t clients;
    int status = 0;
    pid_t child;

    rank_start(&r);
    rank_open(&r);
    rank_save(r.h, 1, &piece, 1, NULL, 0);
    ckpt = rank_recover(r.h, 1);
    must(hearth_item_at(ckpt, 0, 0, &item, &err), err);
    must(hearth_view_open(ckpt, &item, &view, &err), err);
    must(hearth_save_begin(r.h, 2, 8192, NULL, &save, &err), err);
    must(hearth_save_add(save, &piece, 1, &err), err);
    must(hearth_save_commit(save, &handle, &err), err);
    must(hearth_save_begin(r.h, 3, 8192, NULL, &save, &err), err);
    clients = fake_counts(r.fake).clients;
    child = fork();
    if (child == 0)
        _exit(calls_of_a_child());
    cr_assert(eq(int, (int)waitpid(child, &status, 0), (int)child));
    cr_assert(eq(int, status, 0), "call %d", WEXITSTATUS(status));
    /* The parent has lost nothing. */
    cr_assert(eq(u32, fake_counts(r.fake).clients, clients));
    cr_assert(eq(u32, fake_counts(r.fake).closes, 0));
    must(hearth_save_add(save, &piece, 1, &err), err);
    hearth_handle_close(handle);
    must(hearth_save_commit(save, &handle, &err), err);
    must(hearth_wait(handle, HEARTH_PROTECTED, 5000, &err), err);
    cr_assert(zero(int, memcmp(view.data, &x, sizeof(x))));
    hearth_view_close(r.h, &view);
    hearth_handle_close(handle);
    hearth_checkpoint_close(ckpt);
    rank_end(&r);
}

Test(fork, a_child_that_execs_has_no_descriptor_of_ours)
{
    char sh[] = "sh", c[] = "-c", script[] = "ls -l /proc/$$/fd | grep -c -e memfd -e SEQPACKET";
    char *argv[] = { sh, c, script, NULL };
    char out[16] = "";
    int ends[2], status;
    pid_t child;

    rank_start(&r);
    rank_open(&r);
    fake_stop(r.fake);
    r.fake = NULL;
    cr_assert(eq(int, pipe(ends), 0));
    child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        execv("/bin/sh", argv);
        _exit(9);
    }
    close(ends[1]);
    cr_assert(gt(int, (int)read(ends[0], out, sizeof(out) - 1), 0));
    waitpid(child, &status, 0);
    cr_assert(eq(int, out[0], '0'), "%s", out);
    rank_end(&r);
}

static int descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

static void start_engine(enum hearth_start how)
{
    static char hearthd[512];
    const char *bin = getenv("HEARTH_TEST_BIN");

    rank_start(&r);
    fake_stop(r.fake);
    r.fake = NULL;
    r.opts.start = how;
    r.opts.open_ms = 20000;
    r.opts.linger_s = 20;
    if (bin) {
        snprintf(hearthd, sizeof(hearthd), "%s/hearthd", bin);
        r.opts.engine = hearthd;
    }
}

static void end_engine(void)
{
    hearth_close(r.h, HEARTH_KEEP);
    cr_assert(ge(int, engines_signal(r.root, NULL, SIGKILL), 0));
    tmp_root_remove(r.root);
}

/* Descriptors that a child of a rank with an engine has more than the rank had before it opened. */
static void leaves_a_child_nothing(enum hearth_start how)
{
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);
    int before, status = 0;
    pid_t child;

    start_engine(how);
    before = descriptors();
    rank_open(&r);
    rank_save(r.h, 1, &piece, 1, NULL, 0);
    usleep(200000); /* a slot is lent ahead */
    child = fork();
    if (child == 0)
        _exit(descriptors() - before);
    cr_assert(eq(int, (int)waitpid(child, &status, 0), (int)child));
    cr_assert(zero(int, status), "%d", WEXITSTATUS(status));
    end_engine();
}

Test(fork, a_child_inherits_no_descriptor_of_ours_nor_of_an_engine)
{
    leaves_a_child_nothing(HEARTH_START_AUTO);
}

Test(fork, nor_of_an_engine_inside)
{
    leaves_a_child_nothing(HEARTH_START_IN_PROCESS);
}

static int of_a_child(int count(void))
{
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        _exit(count());
    cr_assert(eq(int, (int)waitpid(child, &status, 0), (int)child));
    return WEXITSTATUS(status);
}

/* Mappings of memory that an engine, which is a thread here, or the library has. */
static int mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;

    while (maps && fgets(line, sizeof(line), maps))
        count += strstr(line, "memfd:") != NULL;
    if (maps)
        fclose(maps);
    return count;
}

/* A child of a data loader lives as long as training does, and so would the bytes. */
Test(fork, nor_bytes_that_were_asked_for_ahead)
{
    static const int64_t shape = 1, origin = 0;
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_box box[3];
    struct hearth_piece piece[3];
    static const char *key[] = { "a", "b", "c" };
    struct hearth_save *s;
    struct hearth_handle *done;
    int before, child_before, mapped;

    rank_start(&r);
    rank_open(&r);
    for (int i = 0; i < 3; i++) {
        struct hearth_begin_opts o = { .struct_size = sizeof(o), .name = key[i] };

        piece[i] = rank_piece(key[i], &x, 1, &shape);
        if (i)
            must(hearth_save_next_object(s, key[i], 4096, NULL));
        else
            must(hearth_save_begin(r.h, 1, 4096, &o, &s, NULL));
        must(hearth_save_add(s, &piece[i], 1, NULL));
        box[i] = (struct hearth_box){ .struct_size = sizeof(box[i]),
            .object = key[i],
            .dtype = HEARTH_FLOAT32,
            .ndim = 1,
            .offset = &origin,
            .shape = &shape,
            .dst = &x };
    }
    must(hearth_save_commit(s, &done, NULL));
    must(hearth_wait(done, HEARTH_PROTECTED, 5000, NULL));
    hearth_handle_close(done);
    fake_remote(r.fake, 1);
    ckpt = rank_recover(r.h, 1);
    must(hearth_item_at(ckpt, 1, 2, &item, NULL)); /* the tables are here */
    fake_counts(r.fake);
    before = descriptors();
    child_before = of_a_child(descriptors);
    mapped = of_a_child(mappings);
    must(hearth_prefetch_boxes(ckpt, box, 2, NULL));
    must(hearth_read_boxes(ckpt, &box[2], 1, NULL)); /* asked for behind those */
    fake_counts(r.fake);                             /* it has closed its own of them */
    cr_expect(eq(int, descriptors(), before + 2));
    cr_expect(eq(int, of_a_child(descriptors), child_before));
    cr_expect(eq(int, of_a_child(mappings), mapped));
    must(hearth_read_boxes(ckpt, box, 2, NULL));
    hearth_checkpoint_close(ckpt);
    fake_counts(r.fake);
    cr_expect(eq(int, descriptors(), before));
    rank_end(&r);
}

/* Memory of a slot stays as long as a process has it open. */
Test(fork, nor_of_objects_that_are_read)
{
    static const int64_t shape = 1, origin = 0;
    struct hearth_piece piece = rank_piece("x", &x, 1, &shape);
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_box box = { .struct_size = sizeof(box),
        .dtype = HEARTH_FLOAT32,
        .ndim = 1,
        .offset = &origin,
        .shape = &shape,
        .dst = &x };
    int before, child_before, fd;
    uint64_t offset, bytes;

    rank_start(&r);
    rank_open(&r);
    rank_save(r.h, 1, &piece, 1, NULL, 0);
    ckpt = rank_recover(r.h, 1);
    fake_counts(r.fake);
    before = descriptors();
    child_before = of_a_child(descriptors);
    must(hearth_item_at(ckpt, 0, 0, &item, NULL));
    box.object = item.object;
    box.item = item.offset;
    must(hearth_read_boxes(ckpt, &box, 1, NULL));
    fake_counts(r.fake);
    cr_expect(eq(int, descriptors(), before + 1));
    cr_expect(eq(int, of_a_child(descriptors), child_before));
    must(hearth_object_fd(ckpt, item.object, &fd, &offset, &bytes, NULL)); /* this process has it */
    close(fd);
    hearth_checkpoint_close(ckpt);
    cr_expect(eq(int, descriptors(), before));
    rank_end(&r);
}

static int slots(void)
{
    char command[160];
    FILE *found;
    int count = 0;

    snprintf(command, sizeof(command), "find %s -type f -size +3000k | wc -l", r.root);
    found = popen(command, "r");
    cr_assert(eq(int, fscanf(found, "%d", &count), 1));
    pclose(found);
    return count;
}

/* An engine lends no slot that another process has open. */
Test(fork, nor_does_a_child_keep_slots_from_the_next_saves)
{
    static float large[1 << 20];
    static const int64_t shape = 1 << 20, origin = 0, one = 1;
    struct hearth_piece piece = rank_piece("x", large, 1, &shape);
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_box box = { .struct_size = sizeof(box),
        .dtype = HEARTH_FLOAT32,
        .ndim = 1,
        .offset = &origin,
        .shape = &one,
        .dst = &x };
    pid_t child[3];
    int before = 0;

    start_engine(HEARTH_START_AUTO);
    rank_open(&r);
    for (int step = 1; step <= 6; step++) {
        rank_save(r.h, (uint64_t)step, &piece, 1, NULL, 0);
        usleep(200000); /* slots go back */
        before = step == 3 ? slots() : before;
        if (step < 3 || step == 6)
            continue;
        must(hearth_checkpoint_open(r.h, (uint64_t)step, &ckpt, NULL));
        must(hearth_item_at(ckpt, 0, 0, &item, NULL));
        box.object = item.object;
        box.item = item.offset;
        must(hearth_read_boxes(ckpt, &box, 1, NULL));
        must(hearth_view_open(ckpt, &item, &view, NULL)); /* a child would inherit this one */
        hearth_view_close(r.h, &view);
        if (!(child[step - 3] = fork())) {
            pause();
            _exit(0);
        }
        hearth_checkpoint_close(ckpt);
    }
    cr_expect(eq(int, slots(), before));
    for (int i = 0; i < 3; i++) {
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
    }
    end_engine();
}
