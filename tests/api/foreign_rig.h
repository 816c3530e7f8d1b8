/* SPDX-License-Identifier: Apache-2.0 */
/* Containers in ml-flashpoint's layout, recovered by two hearthd over loopback: two roots, two
 * nodes. The expected items stand beside the containers, in expected.json. */
#ifndef HEARTH_TESTS_API_FOREIGN_RIG_H
#define HEARTH_TESTS_API_FOREIGN_RIG_H

#include "check.h"
#include "engines.h"
#include "port.h"
#include "rank.h"
#include "tmp_root.h"

#include "core/base/id.h"
#include <hearth/metadata.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define NODES 2

struct one { /* a rank, alone on its node */
    char root[64];
    struct hearth_opts opts;
    struct hearth *h;
    struct hearth_checkpoint *c;
    const char *common[1];
    struct hearth_recovery info;
    int rc;
    struct hearth_error err;
    uint64_t step; /* to be saved */
};

#define RENAMED "__1__1_src1.distcp"

static struct one one[NODES];
static const char *renamed; /* what RENAMED is called now; NULL: that */
static char hearthd[512];
static uint16_t port;

__attribute__((format(printf, 1, 2))) static inline void sh(const char *fmt, ...)
{
    char line[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    cr_assert(eq(int, system(line), 0), "%s", line);
}

static inline const char *data(void)
{
    const char *dir = getenv("HEARTH_TEST_DATA");

    return dir ? dir : "tests/data";
}

static inline void start(void)
{
    const char *bin = getenv("HEARTH_TEST_BIN");

    alarm(110);
    port = port_keep();
    snprintf(hearthd, sizeof(hearthd), "%s/hearthd", bin ? bin : "bin");
    for (uint32_t i = 0; i < NODES; i++) {
        struct one *o = &one[i];

        strcpy(o->root, "/dev/shm/hearth-foreign-XXXXXX");
        cr_assert(ne(ptr, mkdtemp(o->root), NULL));
        sh("mkdir -m 700 %s/job", o->root);
        o->common[0] = "common.pt";
        o->opts = (struct hearth_opts){ .struct_size = sizeof(o->opts),
            .root = o->root,
            .job = "job",
            .rank = i,
            .world = NODES,
            .node = i ? "node-b" : "node-a",
            .machine = i ? "machine-b" : "machine-a",
            .engine = bin ? hearthd : NULL,
            .transport = "tcp",
            .open_ms = 20000,
            .recover_ms = 20000,
            .linger_s = 20 };
    }
}

static inline void put(uint32_t node, uint32_t step)
{
    sh("cp -r %s/container/step-%u_ckpt %s/job/ && chmod -R u+rwX %s/job", data(), step,
            one[node].root, one[node].root);
}

/* The ranks go; their engines linger. */
static inline void part(void)
{
    for (int i = 0; i < NODES; i++) {
        hearth_checkpoint_close(one[i].c);
        hearth_close(one[i].h, HEARTH_KEEP);
        one[i].h = NULL;
        one[i].c = NULL;
    }
}

static inline void leave(void)
{
    part();
    for (int i = 0; i < NODES; i++)
        engines_signal(one[i].root, NULL, SIGKILL);
}

static inline void end(void)
{
    leave();
    for (int i = 0; i < NODES; i++)
        tmp_root_remove(one[i].root);
}

static inline void *run(void *arg)
{
    struct hearth_recover_opts opts = { .struct_size = sizeof(opts), .common_count = 1 };
    struct hearth_bootstrap *b = NULL;
    struct one *o = arg;

    opts.common = o->common;
    o->rc = hearth_bootstrap_tcp("127.0.0.1", port, o->opts.rank, NODES, 20000, &b, &o->err);
    o->opts.bootstrap = b;
    if (!o->rc)
        o->rc = hearth_open(&o->opts, &o->h, &o->err);
    if (!o->rc)
        o->rc = hearth_recover(o->h, &opts, &o->c, &o->err);
    o->info = (struct hearth_recovery){ .struct_size = sizeof(o->info) };
    if (!o->rc && o->c)
        o->rc = hearth_checkpoint_info(o->c, &o->info, &o->err);
    hearth_bootstrap_close(b);
    return NULL;
}

static inline void *save(void *arg)
{
    struct one *o = arg;
    float x = (float)o->opts.rank;
    struct hearth_piece piece = rank_piece(o->opts.rank ? "x1" : "x0", &x, 0, NULL);

    rank_save(o->h, o->step, &piece, 1, NULL, 0);
    return NULL;
}

static inline void all(void *(*what)(void *))
{
    pthread_t t[NODES];

    for (int i = 0; i < NODES; i++)
        pthread_create(&t[i], NULL, what, &one[i]);
    for (int i = 0; i < NODES; i++)
        pthread_join(t[i], NULL);
}

static inline void recover_step(uint64_t step)
{
    all(run);
    for (int i = 0; i < NODES; i++) {
        cr_assert(eq(int, one[i].rc, 0), "rank %d: %s", i, one[i].err.text);
        cr_assert(ne(ptr, one[i].c, NULL));
        cr_assert(eq(u64, one[i].info.step, step));
    }
}

/* ---- Is it what expected.json says? ---------------------------------------------------------- */

/* The bytes [off, off + len) of an object's data, out of the item that has them. */
static inline void hash_of(struct one *o, int every, const char *object, uint64_t off, uint64_t len,
        struct hearth_item *out, char hex[crypto_hash_sha256_BYTES * 2 + 1])
{
    struct hearth_item item = { .struct_size = sizeof(item) };
    unsigned char digest[crypto_hash_sha256_BYTES], *bytes = malloc(len + 1);
    uint64_t begin = 0;
    int found = 0;

    for (size_t i = 0; !found && !hearth_item_at(o->c, every, i, &item, NULL); i++) {
        begin = item.offset;
        found = !strcmp(item.object, object) && begin <= off &&
                off + len <= begin + item.bytes + 200;
        if (found && item.kind == 10) { /* the payload stands behind the tensor's header */
            json_int_t to_end = (json_int_t)(off + len) - (json_int_t)begin;

            begin += (uint64_t)to_end - item.bytes;
            found = begin == off && item.bytes == len;
        }
        found = found && off + len <= begin + item.bytes;
    }
    cr_assert(found, "%s: no item has bytes %lu to %lu", object, off, off + len);
    cr_assert(eq(int, hearth_read_bytes(o->c, &item, off - begin, bytes, len, &o->err), 0), "%s",
            o->err.text);
    crypto_hash_sha256(digest, bytes, len);
    sodium_bin2hex(hex, sizeof(digest) * 2 + 1, digest, sizeof(digest));
    free(bytes);
    *out = item;
}

static inline uint64_t number(const json_t *o, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(o, name));
}

/* The same bytes by object and place alone, and nothing behind the end. */
static inline void check_range(struct one *o, const char *object, uint64_t off, uint64_t len,
        const unsigned char *want, size_t want_len)
{
    unsigned char digest[crypto_hash_sha256_BYTES], *bytes = malloc(len + 1);
    struct hearth_range range = { sizeof(range), object, off, len, bytes };

    cr_assert(eq(int, hearth_read_ranges(o->c, &range, 1, &o->err), 0), "%s", o->err.text);
    crypto_hash_sha256(digest, bytes, len);
    cr_assert(zero(int, memcmp(digest, want, want_len)), "%s", object);
    range.len = UINT64_C(1) << 40;
    must_fail(hearth_read_ranges(o->c, &range, 1, &o->err), HEARTH_EINVAL);
    free(bytes);
}

static inline void check_item(struct one *o, int every, const char *object, const json_t *want)
{
    int tensor = !strcmp(json_string_value(json_object_get(want, "kind")), "tensor");
    uint64_t off = number(want, tensor ? "payload_offset" : "offset");
    uint64_t len = number(want, tensor ? "payload_length" : "length");
    unsigned char digest[crypto_hash_sha256_BYTES];
    char hex[crypto_hash_sha256_BYTES * 2 + 1], key[128];
    struct hearth_item item;
    size_t count = 0;

    hash_of(o, every, object, off, len, &item, hex);
    must_say(hex, json_string_value(json_object_get(want, tensor ? "payload_sha256" : "sha256")));
    sodium_hex2bin(digest, sizeof(digest), hex, sizeof(hex) - 1, NULL, NULL, NULL);
    check_range(o, object, off, len, digest, sizeof(digest));
    if (!tensor || !json_is_integer(json_object_get(want, "item_header_length")))
        return;
    cr_assert(eq(int, (int)item.kind, 10));
    must_say(hearth_dtype_name((enum hearth_dtype)item.dtype),
            json_string_value(json_object_get(want, "dtype")));
    cr_assert(eq(sz, item.ndim, json_array_size(json_object_get(want, "shape"))));
    for (uint32_t i = 0; i < item.ndim; i++)
        cr_assert(eq(i64, item.shape[i],
                json_integer_value(json_array_get(json_object_get(want, "shape"), i))));
    snprintf(key, sizeof(key), "%s@%lu", object, number(want, "offset"));
    cr_assert(zero(int, memcmp(item.key, key, item.key_len)), "%s", key);
    must(hearth_item_find(o->c, key, strlen(key), NULL, 0, &count, &o->err), o->err);
    cr_assert(eq(sz, count, 1));
}

/* Objects of this rank, or of all. Returns the items looked at. */
static inline size_t check(struct one *o, uint64_t step, int every)
{
    char path[512], own[16];
    json_t *root, *object, *item;
    size_t i, k, count = 0;

    snprintf(path, sizeof(path), "%s/container/step-%lu_ckpt.expected.json", data(), step);
    snprintf(own, sizeof(own), "src%u.", o->opts.rank);
    root = json_load_file(path, 0, NULL);
    cr_assert(ne(ptr, root, NULL), "%s", path);
    json_array_foreach(json_object_get(root, "objects"), i, object)
    {
        const char *name = json_string_value(json_object_get(object, "name"));

        if (!every && !strstr(name, own))
            continue;
        if (renamed && !strcmp(name, RENAMED))
            name = renamed;
        json_array_foreach(json_object_get(object, "items"), k, item)
        {
            check_item(o, every, name, item);
            count++;
        }
    }
    json_decref(root);
    return count;
}

static inline void check_common(struct one *o, uint64_t step, const char *name)
{
    char path[512];
    unsigned char want[8192];
    void *got = NULL;
    size_t len = 0, n;
    FILE *f;

    snprintf(path, sizeof(path), "%s/container/step-%lu_ckpt/%s", data(), step, name);
    f = fopen(path, "re");
    cr_assert(ne(ptr, f, NULL));
    n = fread(want, 1, sizeof(want), f);
    fclose(f);
    cr_assert(eq(int, hearth_read_common(o->c, name, &got, &len, &o->err), 0), "%s", o->err.text);
    cr_assert(eq(sz, len, n));
    cr_assert(zero(int, memcmp(got, want, n)));
    hearth_free(got);
}

static inline void check_all(uint64_t step)
{
    for (int i = 0; i < NODES; i++) {
        cr_assert(gt(sz, check(&one[i], step, 0), 3));
        check_common(&one[i], step, ".metadata");
        check_common(&one[i], step, "common.pt");
    }
}

static inline int is_there(const char *root, const char *name)
{
    char path[256];
    struct stat st;

    snprintf(path, sizeof(path), "%s/job/%s", root, name);
    return !lstat(path, &st);
}

#endif
