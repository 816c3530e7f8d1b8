/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks `c run` of the pages for users, as they stand there, in a job of one rank:
 *
 *     pages ROOT
 *
 * pages_blocks.h is made of the pages by tests/lint/snippets.py. The blocks check no code, so each
 * of their calls is checked here, and behind a block what it has done.
 */
#include "../lint/snippets.h"

#include <stdio.h>
#include <stdlib.h>

#define ROWS 4096

static const char *root;
static uint16_t memory[ROWS][ROWS], other[ROWS][ROWS];
static const int64_t whole[] = { ROWS, ROWS }, corner[] = { 0, 0 };

struct hearth *h;
struct hearth_error err;
const struct hearth_bootstrap *bootstrap;
struct hearth_checkpoint *ckpt;
struct hearth_recovery info = HEARTH_RECOVERY_INIT;
struct hearth_save *save;
struct hearth_handle *handle;
struct hearth_piece piece, pieces[1];
uint32_t rank, world = 1;
uint64_t bytes, step, last;
size_t n = 1;
int64_t offset[] = { 1, 2 }, shape[] = { 3, 4 };
void *weights = other, *dst = other;

void train(uint64_t now)
{
    memory[ROWS - 1][7] = (uint16_t)now;
}

/* Opens with the options that a job of one rank in one process needs besides, and keeps three
 * steps. */
static int open_alone(struct hearth_opts *with, struct hearth **out, struct hearth_error *e)
{
    with->allow_degraded = 1;
    with->keep = 3;
    with->start = HEARTH_START_IN_PROCESS;
    with->transport = "tcp";
    return hearth_open(with, out, e);
}

static int must(int rc, const char *call)
{
    if (rc) {
        fprintf(stderr, "pages: step %llu: %s: %s\n", (unsigned long long)step, call, err.text);
        exit(1);
    }
    return rc;
}

#define hearth_open(...)            must(open_alone(__VA_ARGS__), "open")
#define hearth_recover(...)         must(hearth_recover(__VA_ARGS__), "recover")
#define hearth_load(...)            must(hearth_load(__VA_ARGS__), "load")
#define hearth_checkpoint_info(...) must(hearth_checkpoint_info(__VA_ARGS__), "info")
#define hearth_checkpoint_open(...) must(hearth_checkpoint_open(__VA_ARGS__), "checkpoint_open")
#define hearth_save_begin(...)      must(hearth_save_begin(__VA_ARGS__), "save_begin")
#define hearth_save_add(...)        must(hearth_save_add(__VA_ARGS__), "save_add")
#define hearth_save_commit(...)     must(hearth_save_commit(__VA_ARGS__), "save_commit")
#define hearth_wait(...)            must(hearth_wait(__VA_ARGS__), "wait")
#define hearth_item_find(...)       must(hearth_item_find(__VA_ARGS__), "item_find")
#define hearth_read_box(...)        must(hearth_read_box(__VA_ARGS__), "read_box")

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* a block declares what its reader does not have yet */
#include "pages_blocks.h"
#pragma GCC diagnostic pop

static void check(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "pages: %s: not what the page says\n", what);
    exit(1);
}

/* What start_c_1() does before its loop. */
static void job_open(void)
{
    struct hearth_opts same = HEARTH_OPTS_INIT;

    same.root = root;
    same.job = "llama-7b";
    same.world = 1;
    h = NULL;
    hearth_open(&same, &h, &err);
    hearth_recover(h, NULL, &ckpt, &err);
    hearth_checkpoint_close(ckpt);
    ckpt = NULL;
}

static uint64_t step_of(struct hearth_checkpoint *of)
{
    struct hearth_recovery found = HEARTH_RECOVERY_INIT;

    hearth_checkpoint_info(of, &found, &err);
    return found.step;
}

static void run_start(void)
{
    last = 39;
    start_c_1();
    check(step == 40, "docs/start/c.md, the training loop");
    memset(memory, 0, sizeof(memory));
    h = NULL;
    handle = NULL;
    ckpt = NULL;
    last = 41;
    start_c_1();
    check(step == 42 && memory[0][0] == 5, "docs/start/c.md, the training loop again");
    start_c_2(); /* a piece of its own */
    job_open();
    start_c_3();
    check(other[0][0] == 5 && other[ROWS - 1][7] == 41, "docs/start/c.md, one tensor");
    start_c_4();
    check(step_of(ckpt) == 40, "docs/start/c.md, an older step");
    hearth_checkpoint_close(ckpt);
    ckpt = NULL;
}

static void run_use(void)
{
    memset(memory, 0, sizeof(memory));
    use_loading_1();
    check(memory[ROWS - 1][7] == 40, "docs/use/loading.md, what was recovered");
    hearth_checkpoint_open(h, HEARTH_STEP_NEWEST, &ckpt, &err);
    memset(other, 0, sizeof(other));
    use_loading_2();
    check(other[0][0] == 5 && other[2047][1] == 6, "docs/use/loading.md, fewer ranks");
    hearth_checkpoint_close(ckpt);
    memset(other, 0, sizeof(other));
    use_loading_3();
    check(other[0][0] == 9 && !other[0][12], "docs/use/loading.md, a box");
    use_recovery_1();
    check(info.step == 40, "docs/use/recovery.md, resume");
    hearth_checkpoint_close(ckpt);
    use_recovery_2();
    check(step_of(ckpt) == 40, "docs/use/recovery.md, an older step");
    hearth_checkpoint_close(ckpt);
}

int main(int argc, char **argv)
{
    struct hearth_piece all = HEARTH_PIECE_INIT;

    root = argc > 1 ? argv[1] : "/dev/shm/hearth";
    all.key = "layers.0.weight";
    all.key_len = strlen(all.key);
    all.dtype = HEARTH_BFLOAT16;
    all.ndim = 2;
    all.shape = whole;
    all.global_shape = whole;
    all.global_offset = corner;
    all.data = memory;
    pieces[0] = piece = all;
    piece.data = other;
    bytes = hearth_save_bytes(pieces, n, NULL, 0);
    memory[0][0] = 5;
    memory[2047][1] = 6;
    memory[1][2] = 9;
    run_start();
    run_use();
    hearth_close(h, HEARTH_DROP);
    puts("all blocks ran");
    return 0;
}
