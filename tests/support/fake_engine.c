/* SPDX-License-Identifier: Apache-2.0 */
/* See fake_engine.h. One thread, one lock; everything is decided at once. */
#include "fake_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <hearth/internal/core/auth.h>
#include <hearth/internal/core/crc.h>
#include <hearth/internal/core/manifest.h>
#include <hearth/internal/core/table.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CLIENTS 32
#define SLOTS   64
#define OBJECTS 32
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
    uint64_t lease[LEASES];
    uint64_t epoch, nonce, tokens, leases;
    int recovered, remote, flip;
    uint32_t refuse, silence, hold;
    int refuse_code;
    char refuse_text[200], why[200];
    struct fake_counts counts;
};

/* ---- packets -------------------------------------------------------------------------------- */

static void put(
        int fd, void *msg, size_t len, uint32_t type, uint64_t request, uint64_t token, int attach)
{
    struct hth_local_head head = { (uint32_t)len, type, request, token };
    struct iovec iov = { msg, len };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

    memcpy(msg, &head, sizeof(head));
    if (attach >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof(control);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.head), &attach, sizeof(attach));
    }
    sendmsg(fd, &m, MSG_NOSIGNAL);
}

static void put_error(struct client *c, uint64_t request, int code, const char *text)
{
    struct hth_local_error e = { .code = code };

    snprintf(e.text, sizeof(e.text), "%s", text);
    put(c->fd, &e, sizeof(e), HTH_LOCAL_ERROR, request, 0, -1);
}

static void put_ok(struct client *c, uint64_t request)
{
    struct hth_local_head h;

    put(c->fd, &h, sizeof(h), HTH_LOCAL_OK, request, 0, -1);
}

static void put_bytes(struct client *c, uint64_t request, const void *bytes, size_t len)
{
    struct hth_local_bytes b = { .len = len };
    int fd = memfd_create("fake", MFD_CLOEXEC);

    if (write(fd, bytes, len) == (ssize_t)len)
        put(c->fd, &b, sizeof(b), HTH_LOCAL_BYTES, request, 0, fd);
    close(fd);
}

/* ---- saves ---------------------------------------------------------------------------------- */

static void put_event(
        struct fake_engine *f, struct client *c, const struct loan *l, uint64_t request)
{
    const struct save *s = &f->save[l->save];
    struct hth_local_event e = { .save = hth_local_save_of(s->id),
        .level = s->level,
        .code = s->code,
        .bytes = l->bytes,
        .copied = s->level >= HEARTH_COPIED ? l->bytes : 0 };

    snprintf(e.text, sizeof(e.text), "%s", s->code ? f->why : "waits for node b");
    put(c->fd, &e, sizeof(e), HTH_LOCAL_EVENT, request, l->token, -1);
}

static void tell_all(struct fake_engine *f, int save)
{
    for (int i = 0; i < CLIENTS; i++)
        for (int j = 0; f->client[i].fd >= 0 && j < SAVES; j++) {
            struct loan *l = &f->client[i].loan[j];

            if (l->token && l->save == save && l->committed)
                put_event(f, &f->client[i], l, 0);
        }
}

static void free_save(struct fake_engine *f, struct save *s)
{
    for (uint32_t i = 0; i < s->objects; i++) {
        free(s->object[i].raw);
        if (s->object[i].slot >= 0)
            f->slot[s->object[i].slot].busy = 0;
    }
    *s = (struct save){ 0 };
}

/* As far as it may go; what is older goes. */
static void advance(struct fake_engine *f, int save)
{
    struct save *s = &f->save[save];
    uint32_t world = 1;

    for (int i = 0; i < CLIENTS; i++)
        if (f->client[i].fd >= 0 && f->client[i].world > world)
            world = f->client[i].world;
    s->level = HEARTH_SEALED;
    if ((uint32_t)s->world_done >= world)
        s->level = HEARTH_PROTECTED;
    if (f->hold && s->level > f->hold)
        s->level = f->hold;
    if (s->level == HEARTH_PROTECTED)
        for (int i = 0; i < SAVES; i++)
            if (f->save[i].used && hth_save_cmp(f->save[i].id, s->id) < 0)
                free_save(f, &f->save[i]);
    tell_all(f, save);
}

static int newest(const struct fake_engine *f)
{
    int best = -1;

    for (int i = 0; i < SAVES; i++)
        if (f->save[i].used && f->save[i].level == HEARTH_PROTECTED && !f->save[i].code &&
                (best < 0 || hth_save_cmp(f->save[i].id, f->save[best].id) > 0))
            best = i;
    return best;
}

static int find_save(const struct fake_engine *f, struct hth_local_save id)
{
    for (int i = 0; i < SAVES; i++)
        if (f->save[i].used && !hth_save_cmp(f->save[i].id, hth_local_save_to(id)))
            return i;
    return -1;
}

/* The save of this step that runs, or a new one. */
static int save_of_step(struct fake_engine *f, const struct client *c, uint64_t step)
{
    uint32_t attempt = 1;
    int spare = -1;

    for (int i = 0; i < SAVES; i++) {
        const struct save *s = &f->save[i];
        int mine = 0;

        for (int j = 0; j < SAVES; j++)
            mine |= c->loan[j].token && c->loan[j].save == i;
        if (s->used && s->id.step == step && s->id.epoch == f->epoch) {
            if (!mine && s->level < HEARTH_PROTECTED && !s->code)
                return i;
            attempt = s->id.attempt + 1;
        }
        if (!s->used)
            spare = i;
    }
    f->save[spare] = (struct save){ .used = 1, .id = { f->epoch, f->nonce, step, attempt } };
    return spare;
}

static int take_slot(struct fake_engine *f, uint64_t bytes)
{
    uint64_t cap = (bytes + (2u << 20) - 1) / (2u << 20) * (2u << 20);

    for (int i = 0; i < SLOTS; i++) {
        struct slot *s = &f->slot[i];

        if (s->fd >= 0 && (s->busy || s->cap < bytes))
            continue;
        if (s->fd < 0) {
            s->fd = memfd_create("fake-slot", MFD_CLOEXEC);
            s->cap = cap;
            if (ftruncate(s->fd, (off_t)cap) != 0)
                return -1;
            s->base = mmap(NULL, cap, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
            f->counts.slots++;
        }
        s->busy = 1;
        s->generation++;
        return i;
    }
    return -1;
}

static struct loan *find_loan(struct client *c, uint64_t token)
{
    for (int i = 0; i < SAVES; i++)
        if (c->loan[i].token && c->loan[i].token == token)
            return &c->loan[i];
    return NULL;
}

static struct loan *new_loan(struct fake_engine *f, struct client *c)
{
    for (int i = 0; i < SAVES; i++) {
        struct loan *l = &c->loan[i];

        if (!l->token || (l->committed && f->save[l->save].level >= HEARTH_PROTECTED)) {
            *l = (struct loan){ .token = ++f->tokens, .save = -1 };
            return l;
        }
    }
    abort();
}

/* ---- requests ------------------------------------------------------------------------------- */

static void on_attach(struct fake_engine *f, struct client *c, const struct hth_local_attach *m)
{
    struct hth_local_attached a = { .store = STORE,
        .highest_epoch = f->epoch,
        .wall_ms = 1000,
        .random = 0x5eed + f->epoch,
        .epoch = f->epoch,
        .nonce = f->nonce,
        .recovered = (uint32_t)f->recovered,
        .pid = (uint32_t)getpid(),
        .addr_len = 4,
        .addr = "here" };

    c->rank = m->rank;
    c->world = m->world;
    snprintf(a.node, sizeof(a.node), "fake");
    snprintf(a.log, sizeof(a.log), "%.500s/log", f->dir);
    put(c->fd, &a, sizeof(a), HTH_LOCAL_ATTACHED, m->head.request, 0, -1);
}

static void on_join(struct fake_engine *f, struct client *c, const struct hth_local_join *m, int fd)
{
    size_t len = (size_t)m->world * HTH_GATHER;
    unsigned char *table = calloc(1, len + 1);
    struct hth_local_joined a = { .nodes = 1 };
    struct hearth_error err;
    struct hth_epoch e;

    if (fd < 0 || pread(fd, table, len + 1, 0) != (ssize_t)len ||
            hth_epoch_make(&e, table, m->world, STORE, &err)) {
        put_error(c, m->head.request, HEARTH_EINVAL, fd < 0 ? "no table" : err.text);
        free(table);
        return;
    }
    free(table);
    if (f->epoch != e.epoch || f->nonce != e.nonce)
        f->recovered = 0;
    f->epoch = a.epoch = e.epoch;
    f->nonce = a.nonce = e.nonce;
    hth_epoch_fini(&e);
    put(c->fd, &a, sizeof(a), HTH_LOCAL_JOINED, m->head.request, 0, -1);
}

static void on_recover(struct fake_engine *f, struct client *c, const struct hth_local_recover *m)
{
    struct hth_local_recovered a = { .info = { .pull_ms = 7, .text = "the newest there is" } };
    int s = newest(f);

    f->recovered = 1;
    if (s >= 0)
        a.save = hth_local_save_of(f->save[s].id);
    put(c->fd, &a, sizeof(a), HTH_LOCAL_RECOVERED, m->head.request, 0, -1);
}

static void on_begin(struct fake_engine *f, struct client *c, const struct hth_local_begin *m)
{
    struct loan *l = m->head.token ? find_loan(c, m->head.token) : new_loan(f, c);
    int slot = take_slot(f, m->bytes);
    struct hth_local_lent a;

    f->counts.begins++;
    if (!l || slot < 0 || l->lent != m->index) {
        put_error(c, m->head.request, HEARTH_ESTATE, "no such save, or another object was due");
        return;
    }
    l->slot[l->lent] = slot;
    memcpy(l->name[l->lent++], m->name, sizeof(m->name));
    if (l->save < 0 && m->step != UINT64_MAX)
        l->save = save_of_step(f, c, m->step);
    a = (struct hth_local_lent){ .slot = (uint64_t)slot,
        .generation = f->slot[slot].generation,
        .capacity = f->slot[slot].cap };
    if (l->save >= 0)
        a.save = hth_local_save_of(f->save[l->save].id);
    put(c->fd, &a, sizeof(a), HTH_LOCAL_LENT, m->head.request, l->token, f->slot[slot].fd);
}

static void put_save_id(struct fake_engine *f, struct client *c, const struct loan *l, uint64_t r)
{
    struct hth_local_save_id a = { .save = hth_local_save_of(f->save[l->save].id) };

    put(c->fd, &a, sizeof(a), HTH_LOCAL_SAVE_ID, r, l->token, -1);
}

static void on_seal(struct fake_engine *f, struct client *c, const struct hth_local_seal *m)
{
    struct loan *l = find_loan(c, m->head.token);
    struct slot *slot = l && m->index < l->lent ? &f->slot[l->slot[m->index]] : NULL;
    struct save *s = l && l->save >= 0 ? &f->save[l->save] : NULL;
    uint64_t at = HTH_ALIGN(HTH_BLOCK + m->data_len),
             len = hth_table_bytes(m->data_len, m->items_len);
    uint32_t crc[1024];
    struct hth_table table;
    struct hearth_error err;
    struct object *o;

    if (!slot || !s || m->generation != slot->generation || at + len > slot->cap ||
            HTH_CHUNKS(m->data_len) > 1024) {
        put_error(c, m->head.request, HEARTH_EINVAL, "not lent like this");
        return;
    }
    for (uint64_t i = 0; i < HTH_CHUNKS(m->data_len); i++) {
        uint64_t n =
                m->data_len - i * HTH_CHUNK < HTH_CHUNK ? m->data_len - i * HTH_CHUNK : HTH_CHUNK;

        crc[i] = hth_crc32c(slot->base + HTH_BLOCK + i * HTH_CHUNK, n);
    }
    hth_table_finish(slot->base + at, m->data_len, m->items, m->items_len, crc);
    if (hth_table_decode(&table, slot->base + at, len, &err)) {
        put_error(c, m->head.request, HEARTH_ECORRUPT, err.text);
        return;
    }
    o = &s->object[s->objects++];
    *o = (struct object){ .slot = l->slot[m->index],
        .o = { .id = hth_object_id(c->rank, m->index),
                .owner = c->rank,
                .kind = HTH_OBJECT_SHARD,
                .data_len = m->data_len,
                .table_len = len } };
    snprintf(o->o.name, sizeof(o->o.name), "%.64s", l->name[m->index]);
    hth_digest(o->o.digest, slot->base + at, len);
    l->bytes += m->data_len;
    put_ok(c, m->head.request);
}

static void on_common(
        struct fake_engine *f, struct client *c, const struct hth_local_common *m, int fd)
{
    struct loan *l = find_loan(c, m->head.token);
    struct save *s = l && l->save >= 0 ? &f->save[l->save] : NULL;
    struct object *o;

    if (!s || fd < 0) {
        put_error(c, m->head.request, HEARTH_ESTATE, "no such save, or its step is not known");
        return;
    }
    o = &s->object[s->objects];
    *o = (struct object){ .slot = -1,
        .raw = malloc(m->len + 1),
        .o = { .id = hth_object_id(c->rank, 0x80000000u | s->objects),
                .owner = c->rank,
                .kind = HTH_OBJECT_RAW,
                .data_len = m->len } };
    s->objects += pread(fd, o->raw, m->len, 0) == (ssize_t)m->len;
    snprintf(o->o.name, sizeof(o->o.name), "%.64s", m->name);
    hth_digest(o->o.digest, o->raw, m->len);
    put_ok(c, m->head.request);
}

static void on_commit(struct fake_engine *f, struct client *c, const struct hth_local_head *m)
{
    struct loan *l = find_loan(c, m->token);

    if (!l || l->save < 0) {
        put_error(c, m->request, HEARTH_ESTATE, "no such save");
        return;
    }
    l->committed = 1;
    f->save[l->save].world_done++;
    put_save_id(f, c, l, m->request);
    advance(f, l->save);
}

static void fail_save(struct fake_engine *f, int save, const char *why)
{
    snprintf(f->why, sizeof(f->why), "%s", why);
    f->save[save].code = HEARTH_EFAILED;
    tell_all(f, save);
}

static void on_end(struct fake_engine *f, struct client *c, const struct hth_local_head *m)
{
    struct loan *l = find_loan(c, m->token);

    if (l && l->save >= 0)
        fail_save(f, l->save, "cancelled by a rank");
    if (m->type == HTH_LOCAL_ABORT) {
        f->counts.aborts++;
        if (l)
            l->token = 0;
    }
    put_ok(c, m->request);
}

static void on_set_step(struct fake_engine *f, struct client *c, const struct hth_local_set_step *m)
{
    struct loan *l = find_loan(c, m->head.token);

    if (!l || l->save >= 0) {
        put_error(c, m->head.request, HEARTH_ESTATE, "no such save");
        return;
    }
    l->save = save_of_step(f, c, m->step);
    put_save_id(f, c, l, m->head.request);
}

static void on_follow(struct fake_engine *f, struct client *c, const struct hth_local_follow *m)
{
    int s = find_save(f, m->save);
    struct loan *l = s >= 0 ? new_loan(f, c) : NULL;

    f->counts.follows++;
    if (!l) {
        put_error(c, m->head.request, HEARTH_ENOENT, "nobody knows this save any more");
        return;
    }
    l->token = m->head.token;
    l->save = s;
    l->committed = 1;
    if (!m->committed)
        fail_save(f, s, "the engine died while a rank was writing");
    put_event(f, c, l, m->head.request);
}

static void on_manifest(struct fake_engine *f, struct client *c, const struct hth_local_map *m)
{
    int s = find_save(f, m->save);
    struct hth_object object[OBJECTS];
    struct hth_manifest man = { .object = object, .world = c->world, .nodes = 1, .job = "job" };
    unsigned char *bytes;
    struct hearth_error err;

    if (s < 0) {
        put_error(c, m->head.request, HEARTH_ENOENT, "no such save");
        return;
    }
    man.save = f->save[s].id;
    man.objects = f->save[s].objects;
    for (uint32_t i = 0; i < man.objects; i++)
        object[i] = f->save[s].object[i].o;
    bytes = calloc(1, hth_manifest_bytes(&man));
    if (hth_manifest_encode(&man, bytes, &err))
        put_error(c, m->head.request, HEARTH_EINVAL, err.text);
    else
        put_bytes(c, m->head.request, bytes, hth_manifest_bytes(&man));
    free(bytes);
}

static const struct object *find_object(struct fake_engine *f, const struct hth_local_map *m)
{
    int s = find_save(f, m->save);

    for (uint32_t i = 0; s >= 0 && i < f->save[s].objects; i++)
        if (f->save[s].object[i].o.id == m->object)
            return &f->save[s].object[i];
    return NULL;
}

static void on_map(struct fake_engine *f, struct client *c, const struct hth_local_map *m)
{
    const struct object *o = find_object(f, m);
    struct hth_local_mapped a = { 0 };

    if (!o || o->slot < 0 || f->remote) {
        put_error(c, m->head.request, HEARTH_ENOENT, "not here");
        return;
    }
    a.lease = ++f->leases;
    f->counts.leases++;
    a.slot = (uint64_t)o->slot;
    a.generation = f->slot[o->slot].generation;
    a.capacity = f->slot[o->slot].cap;
    a.data_len = o->o.data_len;
    a.table_off = HTH_ALIGN(HTH_BLOCK + o->o.data_len);
    a.table_len = o->o.table_len;
    put(c->fd, &a, sizeof(a), HTH_LOCAL_MAPPED, m->head.request, 0, f->slot[o->slot].fd);
}

static void on_range(struct fake_engine *f, struct client *c, const struct hth_local_map *m)
{
    const struct object *o = find_object(f, m);
    unsigned char *bytes;

    if (!o || o->slot < 0 || m->off + m->len > f->slot[o->slot].cap) {
        put_error(c, m->head.request, HEARTH_EINVAL, "no such range");
        return;
    }
    f->counts.ranges++;
    f->counts.range_bytes += m->len;
    bytes = malloc(m->len + 1);
    memcpy(bytes, f->slot[o->slot].base + m->off, m->len);
    if (f->flip > 0 && m->len) {
        f->flip--;
        bytes[m->len / 2] ^= 1;
    }
    put_bytes(c, m->head.request, bytes, m->len);
    free(bytes);
}

static void on_common_get(struct fake_engine *f, struct client *c, const struct hth_local_common *m)
{
    int s = find_save(f, m->save);

    for (uint32_t i = 0; s >= 0 && i < f->save[s].objects; i++) {
        const struct object *o = &f->save[s].object[i];

        if (o->raw && !strcmp(o->o.name, m->name)) {
            put_bytes(c, m->head.request, o->raw, o->o.data_len);
            return;
        }
    }
    put_error(c, m->head.request, HEARTH_ENOENT, "no such common object");
}

static void answer(struct fake_engine *f, struct client *c, const void *msg, int fd)
{
    const struct hth_local_head *m = msg;

    if (f->silence == m->type)
        return;
    if (f->refuse == m->type && f->refuse_code) {
        put_error(c, m->request, f->refuse_code, f->refuse_text);
        return;
    }
    switch ((enum hth_local_type)m->type) {
    case HTH_LOCAL_ATTACH:
        on_attach(f, c, msg);
        break;
    case HTH_LOCAL_JOIN:
        on_join(f, c, msg, fd);
        break;
    case HTH_LOCAL_RECOVER:
        on_recover(f, c, msg);
        break;
    case HTH_LOCAL_BEGIN:
        on_begin(f, c, msg);
        break;
    case HTH_LOCAL_SET_STEP:
        on_set_step(f, c, msg);
        break;
    case HTH_LOCAL_SEAL:
        on_seal(f, c, msg);
        break;
    case HTH_LOCAL_COMMON:
        on_common(f, c, msg, fd);
        break;
    case HTH_LOCAL_COMMIT:
        on_commit(f, c, msg);
        break;
    case HTH_LOCAL_ABORT:
    case HTH_LOCAL_CANCEL:
        on_end(f, c, msg);
        break;
    case HTH_LOCAL_FOLLOW:
        on_follow(f, c, msg);
        break;
    case HTH_LOCAL_MANIFEST:
        on_manifest(f, c, msg);
        break;
    case HTH_LOCAL_MAP:
        on_map(f, c, msg);
        break;
    case HTH_LOCAL_UNMAP:
        f->counts.leases--;
        put_ok(c, m->request);
        break;
    case HTH_LOCAL_RANGE:
        on_range(f, c, msg);
        break;
    case HTH_LOCAL_COMMON_GET:
        on_common_get(f, c, msg);
        break;
    case HTH_LOCAL_CLOSE:
        f->counts.closes++;
        f->counts.drops += ((const struct hth_local_close *)msg)->leave == HEARTH_DROP;
        put_ok(c, m->request);
        break;
    default:
        put_error(c, m->request, HEARTH_EPROTO, "never heard of");
    }
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void client_gone(struct fake_engine *f, struct client *c)
{
    close(c->fd);
    memset(c, 0, sizeof(*c));
    c->fd = -1;
    f->counts.clients--;
}

static void hear(struct fake_engine *f, struct client *c)
{
    static _Thread_local uint64_t packet[HTH_LOCAL_MAX / 8];
    struct iovec iov = { packet, sizeof(packet) };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
    };
    ssize_t n = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *got = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    int fd = -1;

    if (n < 0 && errno == EAGAIN)
        return;
    if (got)
        memcpy(&fd, CMSG_DATA(got), sizeof(fd));
    if (n <= 0)
        client_gone(f, c);
    else
        answer(f, c, packet, fd);
    if (fd >= 0)
        close(fd);
}

static void welcome(struct fake_engine *f)
{
    int fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);

    for (int i = 0; fd >= 0 && i < CLIENTS; i++)
        if (f->client[i].fd < 0) {
            f->client[i].fd = fd;
            f->counts.clients++;
            return;
        }
    if (fd >= 0)
        close(fd);
}

static void *run(void *arg)
{
    struct fake_engine *f = arg;

    for (;;) {
        struct pollfd p[CLIENTS + 2];

        pthread_mutex_lock(&f->lock);
        for (int i = 0; i < CLIENTS; i++)
            p[i] = (struct pollfd){ .fd = f->client[i].fd, .events = POLLIN };
        p[CLIENTS] = (struct pollfd){ .fd = f->listener, .events = POLLIN };
        p[CLIENTS + 1] = (struct pollfd){ .fd = f->wake, .events = POLLIN };
        pthread_mutex_unlock(&f->lock);
        poll(p, CLIENTS + 2, 1000);
        pthread_mutex_lock(&f->lock);
        if (f->stop) {
            pthread_mutex_unlock(&f->lock);
            return NULL;
        }
        if (p[CLIENTS + 1].revents) {
            uint64_t v;

            if (read(f->wake, &v, sizeof(v)) < 0)
                f->stop = f->stop; /* woken already */
        }
        for (int i = 0; i < CLIENTS; i++)
            if (p[i].revents && f->client[i].fd == p[i].fd)
                hear(f, &f->client[i]);
        if (p[CLIENTS].revents && f->listener == p[CLIENTS].fd)
            welcome(f);
        pthread_mutex_unlock(&f->lock);
    }
}

static int listen_there(const struct fake_engine *f)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int dir = open(f->dir, O_PATH | O_CLOEXEC),
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/sock", dir);
    unlink(a.sun_path);
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 64)) {
        close(fd);
        fd = -1;
    }
    close(dir);
    return fd;
}

static void wake(struct fake_engine *f)
{
    uint64_t one = 1;

    if (write(f->wake, &one, sizeof(one)) < 0)
        abort();
}

struct fake_engine *fake_start(const char *root, const char *job)
{
    struct fake_engine *f = calloc(1, sizeof(*f));

    f->client = calloc(CLIENTS, sizeof(*f->client));
    snprintf(f->dir, sizeof(f->dir), "%s/%s", root, job);
    mkdir(f->dir, 0700);
    snprintf(f->dir, sizeof(f->dir), "%s/%s/" HTH_RECORDS_DIR, root, job);
    mkdir(f->dir, 0700);
    for (int i = 0; i < CLIENTS; i++)
        f->client[i].fd = -1;
    for (int i = 0; i < SLOTS; i++)
        f->slot[i].fd = -1;
    pthread_mutex_init(&f->lock, NULL);
    f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    f->listener = listen_there(f);
    hth_auth_init(NULL);
    if (f->listener < 0 || pthread_create(&f->thread, NULL, run, f))
        abort();
    return f;
}

void fake_crash(struct fake_engine *f)
{
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < CLIENTS; i++)
        if (f->client[i].fd >= 0)
            client_gone(f, &f->client[i]);
    close(f->listener);
    f->listener = -1;
    f->tokens = 0;
    f->leases = 0;
    f->counts.leases = 0;
    wake(f);
    pthread_mutex_unlock(&f->lock);
}

void fake_back(struct fake_engine *f)
{
    pthread_mutex_lock(&f->lock);
    f->listener = listen_there(f);
    wake(f);
    pthread_mutex_unlock(&f->lock);
}

void fake_stop(struct fake_engine *f)
{
    if (!f)
        return;
    fake_crash(f);
    pthread_mutex_lock(&f->lock);
    f->stop = 1;
    wake(f);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    for (int i = 0; i < SAVES; i++)
        free_save(f, &f->save[i]);
    for (int i = 0; i < SLOTS; i++)
        if (f->slot[i].fd >= 0) {
            munmap(f->slot[i].base, f->slot[i].cap);
            close(f->slot[i].fd);
        }
    close(f->wake);
    pthread_mutex_destroy(&f->lock);
    free(f->client);
    free(f);
}

void fake_refuse(struct fake_engine *f, uint32_t type, int code, const char *text)
{
    pthread_mutex_lock(&f->lock);
    f->refuse = type;
    f->refuse_code = code;
    snprintf(f->refuse_text, sizeof(f->refuse_text), "%s", text);
    pthread_mutex_unlock(&f->lock);
}

void fake_silence(struct fake_engine *f, uint32_t type)
{
    pthread_mutex_lock(&f->lock);
    f->silence = type;
    pthread_mutex_unlock(&f->lock);
}

void fake_hold(struct fake_engine *f, enum hearth_level level)
{
    pthread_mutex_lock(&f->lock);
    f->hold = level;
    for (int i = 0; !level && i < SAVES; i++)
        if (f->save[i].used && f->save[i].world_done && !f->save[i].code)
            advance(f, i);
    pthread_mutex_unlock(&f->lock);
}

void fake_cancel_all(struct fake_engine *f, const char *why)
{
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < SAVES; i++)
        if (f->save[i].used && f->save[i].level < HEARTH_PROTECTED)
            fail_save(f, i, why);
    pthread_mutex_unlock(&f->lock);
}

void fake_remote(struct fake_engine *f, int remote)
{
    pthread_mutex_lock(&f->lock);
    f->remote = remote;
    pthread_mutex_unlock(&f->lock);
}

void fake_flip(struct fake_engine *f, int count)
{
    pthread_mutex_lock(&f->lock);
    f->flip = count;
    pthread_mutex_unlock(&f->lock);
}

struct fake_counts fake_counts(struct fake_engine *f)
{
    struct fake_counts counts;

    pthread_mutex_lock(&f->lock);
    counts = f->counts;
    pthread_mutex_unlock(&f->lock);
    return counts;
}
