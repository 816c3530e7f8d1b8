/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes at the edges: more bytes than 31 bits count, a million tensors, none, and a tensor that
 * changes while it is copied. Two nodes: what one rank saves, the other reads from its copy. */
#include "party.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* No power of two, so that a read from a wrong multiple of one gives other bytes. */
#define WINDOW  ((size_t)61 << 20)
#define NEED_GB 12
#define MANY    1000000

static struct party p;

static void start(unsigned mib)
{
    party_open(&p, 2, 2, mib);
    p.opts.dead_ms = p.opts.stall_ms = 20000; /* two busy cores */
    p.opts.save_ms = 90000;
    party_start(&p);
    party_recover(&p, 0, 0);
}

/* Both nodes' memory, a source and a destination, all on one machine; where the host makes pages
 * slowly, that takes a minute. */
static void need_memory(void)
{
    static const char available[] = "MemAvailable:";
    unsigned long kib = 0;
    char line[128];
    FILE *f;

    if (!getenv("HEARTH_LONG"))
        party_skip("gigabytes: run by tests/run --long, or with HEARTH_LONG=1");
    alarm(140);
    f = fopen("/proc/meminfo", "re");
    while (f && !kib && fgets(line, sizeof(line), f))
        if (!strncmp(line, available, sizeof(available) - 1))
            kib = strtoul(line + sizeof(available) - 1, NULL, 10);
    if (f)
        fclose(f);
    if (kib >> 20 < NEED_GB)
        party_skip("%lu GiB of memory are available, and %d are needed", kib >> 20, NEED_GB);
}

static void need_tmpfs(void)
{
    for (uint32_t k = 0; k < 2; k++)
        if (party_free_bytes(&p, k) < UINT64_C(5) << 30)
            party_skip("the tmpfs of a node has less than 5 GiB");
}

static void *mapped(size_t len)
{
    void *at = mmap(
            NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(at != MAP_FAILED, "%zu bytes: %s", len, strerror(errno));
    return at;
}

/* Many bytes in little memory: one window again and again. */
static unsigned char *pattern(size_t len)
{
    int fd = memfd_create("pattern", MFD_CLOEXEC);
    unsigned char *at = mapped(len + WINDOW);

    CHECK(fd >= 0 && !ftruncate(fd, (off_t)WINDOW), "memfd: %s", strerror(errno));
    for (size_t off = 0; off < len; off += WINDOW)
        CHECK(mmap(at + off, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
                        MAP_FAILED,
                "mmap: %s", strerror(errno));
    close(fd);
    fill(at, WINDOW, 4711);
    return at;
}

static struct hearth_piece bytes_of(void *data, int64_t shape[1])
{
    return (struct hearth_piece){ .struct_size = sizeof(struct hearth_piece),
        .key = "large",
        .key_len = 5,
        .data = data,
        .dtype = HEARTH_UINT8,
        .ndim = 1,
        .shape = shape };
}

/* step, bytes: rank 0 saves so many, rank 1 none. */
static void do_save_large(struct me *me, const uint64_t arg[3], struct answer *out)
{
    int64_t shape[1] = { (int64_t)arg[1] };
    struct hearth_piece piece = bytes_of(me->rank ? NULL : pattern(arg[1]), shape);
    size_t count = me->rank == 0;

    out->rc = hearth_save_begin(
            me->h, arg[0], hearth_save_bytes(&piece, count, NULL, 0), NULL, &me->save, &out->err);
    if (!out->rc)
        out->rc = hearth_save_add(me->save, &piece, count, &out->err);
    if (!out->rc)
        do_commit(me, arg, out);
}

/* step, bytes. v: 1: it was read on this node. */
static void do_read_large(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_checkpoint *c = NULL;
    unsigned char *got = mapped(arg[1]), *want;
    int64_t shape[1] = { (int64_t)arg[1] };
    struct hearth_piece piece = bytes_of(got, shape);
    size_t found = 0;

    out->rc = hearth_checkpoint_open(me->h, arg[0], &c, &out->err);
    if (!out->rc)
        out->rc = hearth_item_find(c, "large", 5, &item, 1, &found, &out->err);
    out->v[0] = found == 1 && item.local && item.bytes == arg[1];
    if (!out->rc)
        out->rc = hearth_load(c, &piece, 1, 0, NULL, &out->err);
    hearth_checkpoint_close(c);
    want = pattern(arg[1]);
    if (!out->rc && memcmp(got, want, arg[1]) != 0) {
        out->rc = 1;
        snprintf(out->err.text, sizeof(out->err.text), "WRONG BYTES of %llu",
                (unsigned long long)arg[1]);
    }
}

static void large(uint64_t bytes)
{
    struct answer a;

    need_memory();
    start(6 << 10);
    need_tmpfs();
    party_all(&p, do_save_large, 1, bytes, 0);
    for (uint32_t r = 0; r < 2; r++) {
        uint64_t until = now_ms() + 100000;

        do
            a = party_ask(&p, r, do_wait, 1, HEARTH_PROTECTED, 20000);
        while (a.rc == HEARTH_ETIMEOUT && now_ms() < until);
        CHECK(a.rc == 0, "%s", a.err.text);
    }
    a = party_ask(&p, 1, do_read_large, 1, bytes, 0);
    CHECK(a.rc == 0, "%s", a.err.text);
    CHECK(a.v[0], "the copy on node 1 was not what was read");
}

static void a_tensor_of_2_to_the_31_bytes(void)
{
    large(UINT64_C(1) << 31);
}

static void a_tensor_of_2_to_the_31_bytes_and_one(void)
{
    large((UINT64_C(1) << 31) + 1);
}

/* ---- how many -------------------------------------------------------------------------------- */

static char (*keys)[16];
static uint64_t *values;

static struct hearth_piece *scalars(uint64_t seed)
{
    struct hearth_piece *piece = calloc(MANY, sizeof(*piece));

    keys = calloc(MANY, sizeof(*keys));
    values = calloc(MANY, sizeof(*values));
    CHECK(piece && keys && values, "no memory for %d tensors", MANY);
    for (size_t i = 0; i < MANY; i++) {
        values[i] = seed ? i * UINT64_C(0x9e3779b97f4a7c15) + seed : 0;
        piece[i] = (struct hearth_piece){ .struct_size = sizeof(*piece),
            .key = keys[i],
            .key_len = (size_t)snprintf(keys[i], sizeof(keys[i]), "tensor/%zu", i),
            .data = &values[i],
            .dtype = HEARTH_INT64 };
    }
    return piece;
}

static void scalars_free(struct hearth_piece *piece)
{
    free(piece);
    free(keys);
    free(values);
}

/* step, how many: of rank 0; rank 1 saves none. */
static void do_save_many(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct hearth_piece *piece = scalars(1);
    size_t count = me->rank ? 0 : arg[1];

    out->rc = hearth_save_begin(
            me->h, arg[0], hearth_save_bytes(piece, count, NULL, 0), NULL, &me->save, &out->err);
    if (!out->rc)
        out->rc = hearth_save_add(me->save, piece, count, &out->err);
    if (!out->rc)
        do_commit(me, arg, out);
    scalars_free(piece);
}

/* step, how many: all of them, and there is no other item. */
static void do_read_many(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_piece *piece = scalars(0);
    struct hearth_checkpoint *c = NULL;
    size_t wrong = 0;

    out->rc = hearth_checkpoint_open(me->h, arg[0], &c, &out->err);
    if (!out->rc)
        out->rc = hearth_load(c, piece, arg[1], 0, NULL, &out->err);
    for (size_t i = 0; i < arg[1] && !out->rc; i++)
        wrong += values[i] != i * UINT64_C(0x9e3779b97f4a7c15) + 1;
    if (!out->rc && (wrong || hearth_item_at(c, 1, arg[1], &item, NULL) != HEARTH_ENOENT)) {
        out->rc = 1;
        snprintf(out->err.text, sizeof(out->err.text), "%zu tensors are WRONG, or there are more",
                wrong);
    }
    hearth_checkpoint_close(c);
    scalars_free(piece);
}

static void many(uint64_t count)
{
    struct answer a;

    start(2 << 10);
    for (uint64_t step = 1; step <= 2; step++) { /* the second one has the memory of the first */
        party_all(&p, do_save_many, step, count, 0);
        party_all(&p, do_wait, step, HEARTH_PROTECTED, 30000);
    }
    a = party_ask(&p, 1, do_read_many, 2, count, 0);
    CHECK(a.rc == 0, "%s", a.err.text);
}

static void a_million_tensors(void)
{
    many(MANY);
}

static void no_tensor_on_any_rank(void)
{
    many(0);
    party_restart(&p);
    party_all(&p, do_recover, 0, 0, 0);
    party_all(&p, do_save_many, 3, 1, 0);
    party_all(&p, do_wait, 3, HEARTH_PROTECTED, 30000);
}

/* ---- a source that changes ------------------------------------------------------------------- */

#define WORDS  8192 /* few, so that changes meet reads often */
#define PIECES 3000

static uint64_t changing[WORDS];
static atomic_int changes;

static void *change(void *arg)
{
    (void)arg;
    for (uint64_t n = 1; atomic_load(&changes); n++)
        for (size_t i = 0; i < WORDS; i += 5)
            __atomic_store_n(&changing[(n + i) % WORDS], n * i, __ATOMIC_RELAXED);
    return NULL;
}

/* Contiguous and large, small and odd, rows, and columns: each is copied in a way of its own. */
static void changing_pieces(struct hearth_piece piece[PIECES], char key[PIECES][16])
{
    static const int64_t all[] = { WORDS }, rows[] = { 16, 256 }, row_steps[] = { 512, 1 },
                         columns[] = { 64, 64 }, column_steps[] = { 1, 64 };
    static int64_t bytes[PIECES];

    for (size_t i = 0; i < PIECES; i++) {
        struct hearth_piece *one = &piece[i];

        bytes[i] = 1 + (int64_t)(i * 37 % 3000);
        *one = (struct hearth_piece){ .struct_size = sizeof(*one),
            .key = key[i],
            .key_len = (size_t)snprintf(key[i], sizeof(key[i]), "%zu", i),
            .data = changing,
            .dtype = HEARTH_INT64,
            .ndim = 1,
            .shape = all };
        if (i % 8 == 1)
            one->ndim = 2, one->shape = rows, one->strides = row_steps;
        else if (i % 8 == 2)
            one->ndim = 2, one->shape = columns, one->strides = column_steps;
        else if (i % 8)
            one->dtype = HEARTH_UINT8, one->shape = &bytes[i];
    }
}

/* step. If sum and bytes of a chunk did not agree, the other node would refuse it. */
static void do_save_changing(struct me *me, const uint64_t arg[3], struct answer *out)
{
    static struct hearth_piece piece[PIECES];
    static char key[PIECES][16];
    pthread_t thread;

    changing_pieces(piece, key);
    out->rc = hearth_save_begin(
            me->h, arg[0], hearth_save_bytes(piece, PIECES, NULL, 0), NULL, &me->save, &out->err);
    atomic_store(&changes, 1);
    CHECK(!pthread_create(&thread, NULL, change, NULL), "no thread");
    nap_ms(1);
    if (!out->rc)
        out->rc = hearth_save_add(me->save, piece, PIECES, &out->err);
    atomic_store(&changes, 0);
    pthread_join(thread, NULL);
    if (!out->rc)
        do_commit(me, arg, out);
}

static void changing_source(enum hearth_integrity integrity)
{
    party_open(&p, 2, 2, 512);
    p.opts.integrity = integrity;
    party_start(&p);
    party_recover(&p, 0, 0);
    for (uint64_t step = 1; step <= 8; step++) {
        party_all(&p, do_save_changing, step, 0, 0);
        party_all(&p, do_wait, step, HEARTH_PROTECTED, 15000);
    }
    for (uint32_t k = 0; k < 2; k++)
        CHECK(!party_log_has(&p, k, "checksum"), "node %u has found a wrong checksum", k);
}

static void a_source_that_changes_while_it_is_copied(void)
{
    changing_source(HEARTH_INTEGRITY_CRC32C);
}

static void a_source_that_changes_where_integrity_is_strong(void)
{
    changing_source(HEARTH_INTEGRITY_STRONG);
}

/* ---- chunks that travel while their rank writes --------------------------------------------- */

#define TRAVEL ((size_t)264 << 20)

/* All of the tensor, and later a small one: what is complete by then is reported. */
static void do_write_most(struct me *me, const uint64_t arg[3], struct answer *out)
{
    static const int64_t one = 1;
    struct hearth_begin_opts o = { .struct_size = sizeof(o), .wait_ms = 60000 };
    int64_t shape[1];
    struct hearth_piece piece[2] = { weights(me, shape), weights(me, shape) };

    piece[1].key = "late";
    piece[1].key_len = 4;
    piece[1].shape = &one;
    fill(me->data, me->bytes, seed_of(arg[0], arg[1], me->rank));
    out->rc = hearth_save_begin(
            me->h, arg[0], hearth_save_bytes(piece, 2, NULL, 0), &o, &me->save, &out->err);
    if (!out->rc)
        out->rc = hearth_save_add(me->save, &piece[0], 1, &out->err);
    nap_ms(150);
    if (!out->rc)
        out->rc = hearth_save_add(me->save, &piece[1], 1, &out->err);
}

/* By the engine's own status. */
static uint64_t pulled_bytes(uint32_t node)
{
    char command[1024], line[65536];
    unsigned long long bytes = 0;
    const char *at;
    FILE *f;

    snprintf(command, sizeof(command), "%s/hearth ls --root %s job --json",
            getenv("HEARTH_TEST_BIN"), p.root[node]);
    f = popen(command, "r");
    CHECK(f, "%s: %s", command, strerror(errno));
    while (f && fgets(line, sizeof(line), f))
        if ((at = strstr(line, "\"pulled_bytes\"")))
            sscanf(at, "\"pulled_bytes\": %llu", &bytes);
    pclose(f);
    return bytes;
}

static void chunks_travel_while_their_rank_writes(void)
{
    uint64_t until, before, early;
    cpu_set_t set;

    if (!sched_getaffinity(0, sizeof(set), &set) && CPU_COUNT(&set) < 2)
        party_skip("copies leave no processor");
    party_open(&p, 2, 2, 2048);
    p.bytes = TRAVEL;
    p.opts.copy_threads = 1;
    p.opts.dead_ms = p.opts.stall_ms = 20000;
    p.opts.save_ms = 90000;
    alarm(140); /* on a busy machine a slot takes seconds to make */
    party_start(&p);
    party_recover(&p, 0, 0);
    for (uint64_t step = 1; step <= 2; step++) { /* makes the slots of the third */
        party_all(&p, do_write_most, step, step, 0);
        party_all(&p, do_commit, step, 0, 0);
        party_all(&p, do_wait, step, HEARTH_PROTECTED, 90000);
    }
    before = pulled_bytes(1);
    CHECK(before >= TRAVEL, "node 1 has pulled %llu bytes", (unsigned long long)before);
    party_all(&p, do_write_most, 3, 3, 0);
    until = now_ms() + 20000;
    do
        early = pulled_bytes(1) - before;
    while (early < TRAVEL / 2 && now_ms() < until);
    CHECK(early >= TRAVEL / 2, "%llu bytes are pulled while the rank writes",
            (unsigned long long)early);
    party_all(&p, do_commit, 3, 0, 0);
    party_all(&p, do_wait, 3, HEARTH_PROTECTED, 90000);
    CHECK(pulled_bytes(1) - before < TRAVEL + TRAVEL / 4, "chunks are pulled twice");
    party_kill_ranks(&p);
    party_lose_node(&p, 0);
    party_start(&p);
    party_recover(&p, 3, 3);
}

#define CASE(name) { #name, name },

int main(int argc, char **argv)
{
    static const struct party_case cases[] = { /* clang-format off */
    CASE(a_tensor_of_2_to_the_31_bytes)
    CASE(a_tensor_of_2_to_the_31_bytes_and_one)
    CASE(a_million_tensors)
    CASE(no_tensor_on_any_rank)
    CASE(a_source_that_changes_while_it_is_copied)
    CASE(a_source_that_changes_where_integrity_is_strong)
    CASE(chunks_travel_while_their_rank_writes)
        /* clang-format on */
        { NULL, NULL }
    };

    return party_main(argc, argv, cases);
}
