/* SPDX-License-Identifier: Apache-2.0 */
/* Views of objects of this node: as many as the caller wants, of one mapping and one lease an
 * object. */
#include "check.h"
#include "rank.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define ITEMS   50 /* in each of two objects */
#define FLOATS  300
#define MILLION 1000000u
#define CLOSERS 4u

static struct rank r;
static float stored[2 * ITEMS][FLOATS];
static char keys[2 * ITEMS][8];

static void save_items(uint64_t step)
{
    static const int64_t shape[] = { FLOATS };
    struct hearth_piece piece[2 * ITEMS];
    struct hearth_handle *handle;
    struct hearth_save *save;

    for (size_t i = 0; i < (size_t)2 * ITEMS; i++) {
        rank_fill(stored[i], FLOATS, (float)(step * 1000 + i));
        snprintf(keys[i], sizeof(keys[i]), "k%zu", i);
        piece[i] = rank_piece(keys[i], stored[i], 1, shape);
    }
    must(hearth_save_begin(r.h, step, hearth_save_bytes(piece, ITEMS, NULL, 0), NULL, &save, NULL));
    must(hearth_save_add(save, piece, ITEMS, NULL));
    must(hearth_save_next_object(
            save, "second", hearth_save_bytes(piece + ITEMS, ITEMS, NULL, 0), NULL));
    must(hearth_save_add(save, piece + ITEMS, ITEMS, NULL));
    must(hearth_save_commit(save, &handle, NULL));
    must(hearth_wait(handle, HEARTH_PROTECTED, 5000, NULL));
    hearth_handle_close(handle);
}

static struct hearth_checkpoint *start(void)
{
    rank_start(&r);
    rank_open(&r);
    save_items(3);
    return rank_recover(r.h, 3);
}

static struct hearth_item find(struct hearth_checkpoint *c, size_t index)
{
    struct hearth_item item = HEARTH_ITEM_INIT;
    size_t count = 0;

    must(hearth_item_find(c, keys[index], strlen(keys[index]), &item, 1, &count, NULL));
    cr_assert(eq(sz, count, 1));
    return item;
}

static struct hearth_view view_of(struct hearth_checkpoint *c, size_t index)
{
    struct hearth_item item = find(c, index);
    struct hearth_view view = HEARTH_VIEW_INIT;

    must(hearth_view_open(c, &item, &view, NULL));
    cr_assert(eq(u64, view.bytes, sizeof(stored[index])));
    cr_assert(zero(int, memcmp(view.data, stored[index], view.bytes)));
    return view;
}

/* Leases at the engine, when what was given back has come there. */
static uint32_t leases(uint32_t want)
{
    for (int i = 0; i < 5000 && fake_counts(r.fake).leases != want; i++)
        usleep(1000);
    return fake_counts(r.fake).leases;
}

static int count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    int count = 0;

    for (int c = 0; maps && (c = getc(maps)) != EOF;)
        count += c == '\n';
    if (maps)
        fclose(maps);
    return count;
}

struct closer {
    struct hearth_view *views; /* [count] */
    const uint32_t *order;     /* [count] */
    uint32_t count, wrong;
};

static void *close_views(void *arg)
{
    struct closer *closer = arg;

    for (uint32_t i = 0; i < closer->count; i++) {
        uint32_t which = closer->order[i];
        struct hearth_view *view = &closer->views[which];

        closer->wrong += memcmp(view->data, stored[which % (2 * ITEMS)], sizeof(stored[0])) != 0;
        hearth_view_close(r.h, view);
    }
    return NULL;
}

/* Views [from, to) of `order`, shared by threads. */
static void close_some(struct hearth_view *views, const uint32_t *order, uint32_t from, uint32_t to)
{
    struct closer closer[CLOSERS];
    pthread_t thread[CLOSERS];
    uint32_t each = (to - from) / CLOSERS;

    for (uint32_t i = 0; i < CLOSERS; i++) {
        closer[i] = (struct closer){ views, order + from + i * each,
            i == CLOSERS - 1 ? to - from - i * each : each, 0 };
        must(pthread_create(&thread[i], NULL, close_views, &closer[i]));
    }
    for (uint32_t i = 0; i < CLOSERS; i++) {
        must(pthread_join(thread[i], NULL));
        cr_assert(zero(u32, closer[i].wrong));
    }
}

static uint32_t *shuffled(uint32_t count)
{
    uint32_t *order = malloc(count * sizeof(*order));
    unsigned seed = 1;

    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = (uint32_t)rand_r(&seed) % i, was = order[i - 1];

        order[i - 1] = order[other];
        order[other] = was;
    }
    return order;
}

Test(view, a_million_take_one_mapping_and_one_lease_an_object, .timeout = 120)
{
    struct hearth_checkpoint *c = start(), *again = NULL;
    struct hearth_view *views = malloc(MILLION * sizeof(*views));
    uint32_t *order = shuffled(MILLION);
    struct hearth_item items[2 * ITEMS];
    int mappings;

    for (size_t i = 0; i < (size_t)2 * ITEMS; i++)
        items[i] = find(c, i);
    mappings = count_mappings();
    for (uint32_t i = 0; i < MILLION; i++) {
        views[i] = (struct hearth_view)HEARTH_VIEW_INIT;
        must(hearth_view_open(c, &items[i % (2 * ITEMS)], &views[i], NULL));
    }
    cr_assert(lt(int, count_mappings(), mappings + 10));
    cr_assert(eq(u32, leases(2), 2));
    hearth_checkpoint_close(c);
    close_some(views, order, 0, MILLION / 2);
    cr_assert(eq(u32, leases(2), 2));
    fake_crash(r.fake);
    fake_back(r.fake);
    must(hearth_checkpoint_open(r.h, HEARTH_STEP_NEWEST, &again, NULL));
    cr_assert(eq(u32, leases(2), 2));
    close_some(views, order, MILLION / 2, MILLION - 1);
    cr_assert(eq(u32, leases(1), 1)); /* that of the last view's object */
    hearth_view_close(r.h, &views[order[MILLION - 1]]);
    cr_assert(eq(u32, leases(0), 0));
    hearth_checkpoint_close(again);
    free(order);
    free(views);
    rank_end(&r);
}

Test(view, checkpoints_of_one_save_and_their_views_share_an_object)
{
    struct hearth_checkpoint *one = start(), *two = NULL, *three = NULL;
    struct hearth_view first = view_of(one, 0), second, third;
    const void *data = first.data;

    must(hearth_checkpoint_open(r.h, 3, &two, NULL));
    second = view_of(two, 0);
    cr_assert(eq(ptr, (void *)(uintptr_t)second.data, (void *)(uintptr_t)data));
    hearth_checkpoint_close(one);
    hearth_checkpoint_close(two);
    hearth_view_close(r.h, &second);
    cr_assert(eq(u32, leases(1), 1));
    must(hearth_checkpoint_open(r.h, 3, &three, NULL)); /* while a view alone keeps it */
    third = view_of(three, 0);
    cr_assert(eq(ptr, (void *)(uintptr_t)third.data, (void *)(uintptr_t)data));
    hearth_checkpoint_close(three);
    hearth_view_close(r.h, &third);
    cr_assert(eq(u32, leases(1), 1));
    cr_assert(zero(int, memcmp(first.data, stored[0], first.bytes)));
    hearth_view_close(r.h, &first);
    hearth_view_close(r.h, &first);
    cr_assert(eq(u32, leases(0), 0));
    rank_end(&r);
}

/* The engine had no lease for the bytes that a view still reads; it has one for the rank that opens
 * it now. */
Test(view, a_lease_that_was_lost_is_replaced_when_the_object_is_opened_again)
{
    struct hearth_checkpoint *c = start(), *again = NULL;
    struct hearth_view view = view_of(c, 0), more;

    hearth_checkpoint_close(c);
    fake_crash(r.fake);
    fake_refuse(r.fake, HTH_LOCAL_MAP, HEARTH_ENOENT, "it is not here");
    fake_back(r.fake);
    must(hearth_checkpoint_open(r.h, 3, &again, NULL));
    cr_assert(eq(u32, leases(0), 0));
    fake_refuse(r.fake, HTH_LOCAL_MAP, HEARTH_OK, "");
    more = view_of(again, 0);
    hearth_checkpoint_close(again);
    hearth_view_close(r.h, &more);
    cr_assert(eq(u32, leases(1), 1));
    hearth_view_close(r.h, &view);
    cr_assert(eq(u32, leases(0), 0));
    rank_end(&r);
}

static void *open_newest(void *out)
{
    struct hearth_checkpoint **c = out;

    return (void *)(intptr_t)hearth_checkpoint_open(r.h, HEARTH_STEP_NEWEST, c, NULL);
}

static void until_silenced(uint32_t count)
{
    for (int i = 0; i < 5000 && fake_counts(r.fake).silenced < count; i++)
        usleep(1000);
    cr_assert(eq(u32, fake_counts(r.fake).silenced, count));
}

/* Two are taken again one after the other. The first one is closed when it was taken and the second
 * one was not. */
Test(view, closed_while_leases_are_taken_again_gives_its_new_one_back, .timeout = 30)
{
    struct hearth_checkpoint *c = start(), *newest = NULL;
    struct hearth_view one = view_of(c, 0), two = view_of(c, ITEMS);
    void *rc = NULL;
    pthread_t thread;

    hearth_checkpoint_close(c);
    fake_crash(r.fake);
    fake_silence(r.fake, HTH_LOCAL_MAP);
    fake_back(r.fake);
    must(pthread_create(&thread, NULL, open_newest, &newest));
    until_silenced(1);
    fake_map_late(r.fake);
    until_silenced(2);
    hearth_view_close(r.h, &one);
    hearth_view_close(r.h, &two); /* the answer is on its way */
    fake_map_late(r.fake);
    fake_silence(r.fake, 0);
    must(pthread_join(thread, &rc));
    cr_assert(zero(int, (int)(intptr_t)rc));
    cr_assert(eq(u32, leases(0), 0));
    hearth_checkpoint_close(newest);
    rank_end(&r);
}

/* Signal that ended a child that wrote, 0: none. */
static int signal_of_writing(const struct hearth_view *view)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile char *)(uintptr_t)view->data = 1;
        _exit(0);
    }
    cr_assert(eq(int, (int)waitpid(child, &status, 0), (int)child));
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

Test(view, is_to_read_and_what_writes_there_ends)
{
    struct hearth_checkpoint *c = start();
    struct hearth_view view = view_of(c, 1), again;

    cr_assert(eq(int, signal_of_writing(&view), SIGSEGV));
    again = view_of(c, 1);
    hearth_view_close(r.h, &view);
    hearth_view_close(r.h, &again);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

/* 0: it reads what it inherited, also after it has closed it. */
static int reads_in_a_child(const struct hearth_view *inherited)
{
    struct hearth_view view = *inherited;
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        int wrong = memcmp(view.data, stored[0], view.bytes) != 0;

        hearth_view_close(r.h, &view);
        _exit(wrong || view.data || memcmp(inherited->data, stored[0], inherited->bytes) != 0);
    }
    cr_assert(eq(int, (int)waitpid(child, &status, 0), (int)child));
    return status;
}

Test(view, closed_by_a_child_of_a_fork_is_open_in_its_parent)
{
    struct hearth_checkpoint *c = start();
    struct hearth_view view = view_of(c, 0);

    hearth_checkpoint_close(c);
    cr_assert(zero(int, reads_in_a_child(&view)));
    cr_assert(eq(u32, leases(1), 1));
    cr_assert(zero(int, memcmp(view.data, stored[0], view.bytes)));
    hearth_view_close(r.h, &view);
    cr_assert(eq(u32, leases(0), 0));
    rank_end(&r);
}

Test(view, closed_after_its_job_is_readable_until_then)
{
    struct hearth_checkpoint *c = start();
    struct hearth_view view = view_of(c, 0), again = view_of(c, 2);
    int mappings = count_mappings();

    hearth_checkpoint_close(c);
    rank_end(&r);
    cr_assert(zero(int, memcmp(view.data, stored[0], view.bytes)));
    hearth_view_close(NULL, &view);
    cr_assert(zero(int, memcmp(again.data, stored[2], again.bytes)));
    hearth_view_close(NULL, &again);
    cr_assert(lt(int, count_mappings(), mappings));
}
