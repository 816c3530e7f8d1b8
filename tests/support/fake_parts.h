/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two files of the fake engine. */
#ifndef FAKE_PARTS_H
#define FAKE_PARTS_H

#include "fake_engine.h"

#include "core/base/auth.h"
#include "core/format/manifest.h"
#include <pthread.h>

#define CLIENTS 32
#define SLOTS   128
#define OBJECTS 64
#define SAVES   32
#define LEASES  256
#define STORE   UINT64_C(0x5709e)

struct slot {
    int fd; /* -1: none */
    unsigned char *base;
    uint64_t cap, generation;
    int busy;
};

struct object {
    struct hth_object o;
    int slot; /* index; -1: raw */
    void *raw;
};

struct save {
    struct hth_save_id id;
    int used, code, world_done;
    uint32_t level, objects;
    struct object object[OBJECTS];
};

struct loan { /* of a client: its part of a save */
    int save; /* index; -1: step not known yet */
    uint64_t token, bytes;
    int slot[OBJECTS], committed;
    char name[OBJECTS][HTH_NAME_MAX + 8];
    uint32_t lent;
    int given;
    struct hth_local_written written;
};

struct client {
    int fd;
    uint32_t rank, world;
    struct loan loan[SAVES];
};

struct fake_engine {
    char dir[512];
    pthread_t thread;
    pthread_mutex_t lock;
    int wake, listener, stop;
    struct client *client; /* [CLIENTS] */
    struct slot slot[SLOTS];
    struct save save[SAVES];
    struct lease {
        uint64_t id; /* 0: free */
        const struct client *client;
        int slot; /* not lent again before it goes */
    } lease[LEASES];
    uint64_t epoch, nonce, tokens, leases;
    int recovered, remote, without_sums, flip, cut, forge;
    uint32_t strong, runs;
    unsigned char key[HTH_KEY];
    int has_key;
    uint32_t gather; /* requests for ranges that are answered together; 0: each at once */
    struct hth_local_map gathered[OBJECTS];
    uint32_t waiting;
    uint32_t refuse, silence, hold;
    struct hth_local_map unanswered; /* the last MAP that was met with silence */
    struct client *asker;            /* its */
    int refuse_code;
    char refuse_text[200], why[200];
    struct fake_counts counts;
};

/* fake_saves.c; all with the lock */
void fake_put(
        int fd, void *msg, size_t len, uint32_t type, uint64_t request, uint64_t token, int attach);
void fake_put_error(struct client *c, uint64_t request, int code, const char *text);
void fake_put_ok(struct client *c, uint64_t request);
/* sum: CRC32C as the bytes were meant to be; NULL: none is sent */
void fake_put_bytes(
        struct client *c, uint64_t request, const void *bytes, size_t len, const uint32_t *sum);
void fake_put_event(
        struct fake_engine *f, struct client *c, const struct loan *l, uint64_t request);
void fake_free_save(struct fake_engine *f, struct save *s);
void fake_advance(struct fake_engine *f, int save); /* as far as it may go; what is older goes */
void fake_fail_save(struct fake_engine *f, int save, const char *why);
int fake_newest(const struct fake_engine *f);
int fake_find_save(const struct fake_engine *f, struct hth_local_save id);
int fake_save_of_step(struct fake_engine *f, const struct client *c, uint64_t step);
int fake_take_slot(struct fake_engine *f, uint64_t bytes);
struct loan *fake_find_loan(struct client *c, uint64_t token);
struct loan *fake_new_loan(struct fake_engine *f, struct client *c);

/* fake_serve.c */
void fake_answer_map(struct fake_engine *f, struct client *c, const struct hth_local_map *m);
void fake_answer(struct fake_engine *f, struct client *c, const void *msg, int fd);

#endif
