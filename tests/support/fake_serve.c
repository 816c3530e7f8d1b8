/* SPDX-License-Identifier: Apache-2.0 */
/* The fake engine's answers. */
#include "fake_parts.h"
#include "forge.h"

#include "core/base/auth.h"
#include "core/base/bytes.h"
#include "core/base/crc.h"
#include "core/format/table.h"
#include <hearth/read.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- requests ------------------------------------------------------------------------------- */

static void on_attach(struct fake_engine *f, struct client *c, const struct hth_local_attach *m)
{
    struct hth_local_attached a = { .transport = "tcp",
        .store = STORE,
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
    a.has_key = (uint32_t)f->has_key;
    if (f->has_key)
        hth_local_proof(a.key_proof, f->key, m->challenge);
    snprintf(a.node, sizeof(a.node), "fake");
    snprintf(a.log, sizeof(a.log), "%.500s/log", f->dir);
    fake_put(c->fd, &a, sizeof(a), HTH_LOCAL_ATTACHED, m->head.request, 0, -1);
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
        fake_put_error(c, m->head.request, HEARTH_EINVAL, fd < 0 ? "no table" : err.text);
        free(table);
        return;
    }
    free(table);
    if (f->epoch != e.epoch || f->nonce != e.nonce)
        f->recovered = 0;
    f->epoch = a.epoch = e.epoch;
    f->nonce = a.nonce = e.nonce;
    a.opts = m->opts;
    hth_epoch_fini(&e);
    fake_put(c->fd, &a, sizeof(a), HTH_LOCAL_JOINED, m->head.request, 0, -1);
}

static void on_recover(struct fake_engine *f, struct client *c, const struct hth_local_recover *m)
{
    struct hth_local_recovered a = { .info = { .pull_ms = 7, .text = "the newest there is" } };
    int s = fake_newest(f);

    f->recovered = 1;
    if (s >= 0)
        a.save = hth_local_save_of(f->save[s].id);
    fake_put(c->fd, &a, sizeof(a), HTH_LOCAL_RECOVERED, m->head.request, 0, -1);
}

static void on_begin(struct fake_engine *f, struct client *c, const struct hth_local_begin *m)
{
    struct loan *l = m->head.token ? fake_find_loan(c, m->head.token) : fake_new_loan(f, c);
    int slot = fake_take_slot(f, m->bytes);
    struct hth_local_lent a;

    f->counts.begins++;
    if (!l || slot < 0 || l->lent != m->index) {
        fake_put_error(
                c, m->head.request, HEARTH_ESTATE, "no such save, or another object was due");
        return;
    }
    l->slot[l->lent] = slot;
    memcpy(l->name[l->lent++], m->name, sizeof(m->name));
    if (l->save < 0 && m->step != UINT64_MAX)
        l->save = fake_save_of_step(f, c, m->step);
    a = (struct hth_local_lent){ .slot = (uint64_t)slot,
        .generation = f->slot[slot].generation,
        .capacity = f->slot[slot].cap };
    if (l->save >= 0)
        a.save = hth_local_save_of(f->save[l->save].id);
    fake_put(c->fd, &a, sizeof(a), HTH_LOCAL_LENT, m->head.request, l->token, f->slot[slot].fd);
}

static void put_save_id(struct fake_engine *f, struct client *c, const struct loan *l, uint64_t r)
{
    struct hth_local_save_id a = { .save = hth_local_save_of(f->save[l->save].id) };

    fake_put(c->fd, &a, sizeof(a), HTH_LOCAL_SAVE_ID, r, l->token, -1);
}

/* It was sealed before its rank lost us, and is again. */
static int fake_has_object(const struct save *s, uint64_t id)
{
    for (uint32_t i = 0; i < s->objects; i++)
        if (s->object[i].o.id == id)
            return 1;
    return 0;
}

/* The rank's own sums are those of the bytes. */
static int has_sums(
        const unsigned char *sums, const struct hth_local_seal *m, const struct hth_proof *proof)
{
    for (uint32_t i = 0; i < HTH_CHUNKS(m->data_len); i++)
        if (hth_get32(sums + 4 * i) != proof[i].crc)
            return 0;
    return 1;
}

static void on_seal(struct fake_engine *f, struct client *c, const struct hth_local_seal *m)
{
    struct loan *l = fake_find_loan(c, m->head.token);
    struct slot *slot = l && m->index < l->lent ? &f->slot[l->slot[m->index]] : NULL;
    struct save *s = l && l->save >= 0 ? &f->save[l->save] : NULL;
    uint64_t at = HTH_ALIGN(HTH_BLOCK + m->data_len),
             len = hth_table_bytes(m->data_len, m->items_len, f->strong);
    struct hth_proof proof[1024];
    struct hth_table table;
    struct hearth_error err;
    struct object *o;

    if (!slot || !s || m->generation != slot->generation || at + len > slot->cap ||
            HTH_CHUNKS(m->data_len) > 1024) {
        fake_put_error(c, m->head.request, HEARTH_EINVAL, "not lent like this");
        return;
    }
    if (fake_has_object(s, hth_object_id(c->rank, m->index))) {
        fake_put_ok(c, m->head.request);
        return;
    }
    for (uint32_t i = 0; i < HTH_CHUNKS(m->data_len); i++)
        hth_chunk_prove(&proof[i], slot->base + HTH_BLOCK + i * HTH_CHUNK,
                hth_chunk_len(m->data_len, i), f->strong);
    f->counts.summed += m->summed;
    if (m->summed && !has_sums(slot->base + at + HTH_TABLE_HEAD + m->items_len, m, proof)) {
        fake_put_error(c, m->head.request, HEARTH_ECORRUPT, "the rank's sums are wrong");
        return;
    }
    hth_table_finish(slot->base + at, m->data_len, m->items, m->items_len, proof, f->strong);
    if (hth_table_decode(&table, slot->base + at, len, &err)) {
        fake_put_error(c, m->head.request, HEARTH_ECORRUPT, err.text);
        return;
    }
    o = &s->object[s->objects++];
    *o = (struct object){ .slot = l->slot[m->index],
        .o = { .id = hth_object_id(c->rank, m->index),
                .owner = c->rank,
                .kind = HTH_OBJECT_SHARD,
                .strong = f->strong,
                .data_len = m->data_len,
                .table_len = len } };
    snprintf(o->o.name, sizeof(o->o.name), "%.64s", l->name[m->index]);
    hth_digest(o->o.digest, slot->base + at, len);
    l->bytes += m->data_len;
    fake_put_ok(c, m->head.request);
}

static void on_common(
        struct fake_engine *f, struct client *c, const struct hth_local_common *m, int fd)
{
    struct loan *l = fake_find_loan(c, m->head.token);
    struct save *s = l && l->save >= 0 ? &f->save[l->save] : NULL;
    struct object *o;

    if (!s || fd < 0) {
        fake_put_error(c, m->head.request, HEARTH_ESTATE, "no such save, or its step is not known");
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
    fake_put_ok(c, m->head.request);
}

static void on_commit(struct fake_engine *f, struct client *c, const struct hth_local_head *m)
{
    struct loan *l = fake_find_loan(c, m->token);

    if (!l || l->save < 0) {
        fake_put_error(c, m->request, HEARTH_ESTATE, "no such save");
        return;
    }
    l->committed = 1;
    f->save[l->save].world_done += !(l->token & HTH_LOCAL_OWN) || !f->save[l->save].world_done;
    put_save_id(f, c, l, m->request);
    fake_advance(f, l->save);
}

static void on_end(struct fake_engine *f, struct client *c, const struct hth_local_head *m)
{
    struct loan *l = fake_find_loan(c, m->token);

    if (l && l->save >= 0)
        fake_fail_save(f, l->save, "cancelled by a rank");
    if (m->type == HTH_LOCAL_ABORT) {
        f->counts.aborts++;
        if (l)
            l->token = 0;
    }
    fake_put_ok(c, m->request);
}

static void on_set_step(struct fake_engine *f, struct client *c, const struct hth_local_set_step *m)
{
    struct loan *l = fake_find_loan(c, m->head.token);

    f->counts.step_wait_ms = m->wait_ms;
    if (!l || l->save >= 0) {
        fake_put_error(c, m->head.request, HEARTH_ESTATE, "no such save");
        return;
    }
    l->save = fake_save_of_step(f, c, m->step);
    put_save_id(f, c, l, m->head.request);
}

#define SECRET UINT64_C(0x5ec7e7) /* with the token: another one for each */

static void on_give(struct fake_engine *f, struct client *c, const struct hth_local_give *m)
{
    struct loan *l = fake_find_loan(c, m->head.token);
    struct hth_local_given a = { .secret = { SECRET, m->head.token } };

    (void)f;
    if (!l) {
        fake_put_error(c, m->head.request, HEARTH_ESTATE, "no such save");
        return;
    }
    l->given = 1;
    l->written = m->written;
    fake_put(c->fd, &a, sizeof(a), HTH_LOCAL_GIVEN, m->head.request, l->token, -1);
}

static void on_take(struct fake_engine *f, struct client *c, const struct hth_local_take *m)
{
    struct hth_local_taken a = { .commons = 0 };
    struct loan *l = NULL, *mine;

    for (int i = 0; i < CLIENTS; i++)
        for (int k = 0; k < SAVES; k++)
            if (f->client[i].fd >= 0 && f->client[i].loan[k].given && m->secret[0] == SECRET &&
                    f->client[i].loan[k].token == m->head.token && m->secret[1] == m->head.token)
                l = &f->client[i].loan[k];
    if (!l) {
        fake_put_error(c, m->head.request, HEARTH_ENOENT, "no save waits for this ticket");
        return;
    }
    mine = fake_new_loan(f, c);
    *mine = *l;
    mine->given = 0;
    *l = (struct loan){ .save = -1 };
    a.slot = (uint64_t)mine->slot[0];
    a.generation = f->slot[mine->slot[0]].generation;
    a.capacity = f->slot[mine->slot[0]].cap;
    a.written = mine->written;
    a.runs = f->runs;
    if (mine->save >= 0)
        a.save = hth_local_save_of(f->save[mine->save].id);
    fake_put(c->fd, &a, sizeof(a), HTH_LOCAL_TAKEN, m->head.request, mine->token,
            f->slot[mine->slot[0]].fd);
}

static void on_follow(struct fake_engine *f, struct client *c, const struct hth_local_follow *m)
{
    int s = fake_find_save(f, m->save);
    struct loan *l = s >= 0 ? fake_new_loan(f, c) : NULL;

    f->counts.follows++;
    if (!l) {
        fake_put_error(c, m->head.request, HEARTH_ENOENT, "nobody knows this save any more");
        return;
    }
    l->token = m->head.token;
    l->save = s;
    l->committed = 1;
    fake_put_event(f, c, l, m->head.request);
}

static void on_regain(struct fake_engine *f, struct client *c, const struct hth_local_regain *m)
{
    struct loan *l = fake_find_loan(c, m->head.token);

    f->counts.regains++;
    if (m->slot >= SLOTS || f->slot[m->slot].generation != m->generation) {
        fake_put_error(c, m->head.request, HEARTH_ENOENT, "the slot has been used since");
        return;
    }
    if (!l) {
        l = fake_new_loan(f, c);
        l->token = m->head.token;
    }
    if (m->save.epoch)
        l->save = fake_find_save(f, m->save);
    if (m->save.epoch && l->save < 0) {
        fake_put_error(c, m->head.request, HEARTH_ENOENT, "nobody knows this save any more");
        return;
    }
    l->slot[l->lent] = (int)m->slot;
    memcpy(l->name[l->lent++], m->name, sizeof(m->name));
    fake_put_ok(c, m->head.request);
}

static void on_manifest(struct fake_engine *f, struct client *c, const struct hth_local_map *m)
{
    int s = fake_find_save(f, m->save);
    struct hth_object object[OBJECTS];
    struct hth_manifest man = {
        .object = object, .world = c->world, .nodes = 1, .strong = f->strong, .job = "job"
    };
    unsigned char *bytes;
    struct hearth_error err;

    if (s < 0) {
        fake_put_error(c, m->head.request, HEARTH_ENOENT, "no such save");
        return;
    }
    man.save = f->save[s].id;
    man.objects = f->save[s].objects;
    for (uint32_t i = 0; i < man.objects; i++)
        object[i] = f->save[s].object[i].o;
    bytes = calloc(1, hth_manifest_bytes(&man));
    if (hth_manifest_encode(&man, bytes, &err))
        fake_put_error(c, m->head.request, HEARTH_EINVAL, err.text);
    else
        fake_put_bytes(c, m->head.request, bytes, hth_manifest_bytes(&man), NULL);
    free(bytes);
}

/* The newest of the step, or that of the id; -1: none. */
static int fake_find_step(const struct fake_engine *f, const struct hth_local_find *m)
{
    int found = -1;

    if (m->save.epoch)
        return fake_find_save(f, m->save);
    if (m->step == HEARTH_STEP_NEWEST)
        return fake_newest(f);
    for (int i = 0; i < SAVES; i++)
        if (f->save[i].used && !f->save[i].code && f->save[i].id.step == m->step &&
                (found < 0 || hth_save_cmp(f->save[i].id, f->save[found].id) > 0))
            found = i;
    return found;
}

static void on_find(struct fake_engine *f, struct client *c, const struct hth_local_find *m)
{
    struct hth_local_found a = { .level = 0 };
    int found = fake_find_step(f, m);

    f->counts.find_wait_ms = m->wait_ms;
    if (!f->recovered) {
        fake_put_error(c, m->head.request, HEARTH_ESTATE, "not recovered yet");
        return;
    }
    if (found < 0) {
        fake_put_error(c, m->head.request, HEARTH_ENOENT, "no such step; there is: none");
        return;
    }
    a.save = hth_local_save_of(f->save[found].id);
    a.level = f->save[found].level;
    if (a.level < HEARTH_PROTECTED) /* its time is up at once */
        fake_put_error(c, m->head.request, HEARTH_ETIMEOUT, "not decided yet: waits for node b");
    else
        fake_put(c->fd, &a, sizeof(a), HTH_LOCAL_FOUND, m->head.request, 0, -1);
}

static const struct object *find_object(struct fake_engine *f, const struct hth_local_map *m)
{
    int s = fake_find_save(f, m->save);

    for (uint32_t i = 0; s >= 0 && i < f->save[s].objects; i++)
        if (f->save[s].object[i].o.id == m->object)
            return &f->save[s].object[i];
    return NULL;
}

void fake_answer_map(struct fake_engine *f, struct client *c, const struct hth_local_map *m)
{
    const struct object *o = find_object(f, m);
    struct hth_local_mapped a = { 0 };

    if (!o || o->slot < 0 || f->remote) {
        fake_put_error(c, m->head.request, HEARTH_ENOENT, "not here");
        return;
    }
    a.lease = ++f->leases;
    f->counts.leases++;
    for (int i = 0; i < LEASES; i++)
        if (!f->lease[i].id) {
            f->lease[i] = (struct lease){ a.lease, c, o->slot };
            break;
        }
    a.slot = (uint64_t)o->slot;
    a.generation = f->slot[o->slot].generation;
    a.capacity = f->slot[o->slot].cap;
    a.data_len = o->o.data_len;
    a.table_off = HTH_ALIGN(HTH_BLOCK + o->o.data_len);
    a.table_len = o->o.table_len;
    fake_put(c->fd, &a, sizeof(a), HTH_LOCAL_MAPPED, m->head.request, 0, f->slot[o->slot].fd);
}

/* A copy of these bytes; fake_flip() makes one of them wrong, fake_cut() leaves the last one
 * out. */
static void put_bytes(
        struct fake_engine *f, struct client *c, uint32_t request, const void *from, uint64_t len)
{
    unsigned char *bytes = malloc(len + 1);
    uint32_t sum = hth_crc32c(from, len);

    memcpy(bytes, from, len);
    if (f->flip > 0 && len) {
        f->flip--;
        bytes[len / 2] ^= 1;
    }
    if (f->forge > 0 && len >= 10) {
        f->forge--;
        forge(bytes + len / 2);
    }
    if (f->cut > 0 && len) {
        f->cut--;
        len--;
    }
    fake_put_bytes(c, request, bytes, len, f->without_sums ? NULL : &sum);
    free(bytes);
}

static void on_range(struct fake_engine *f, struct client *c, const struct hth_local_map *m)
{
    const struct object *o = find_object(f, m);

    if (!o || o->slot < 0 || m->off + m->len > f->slot[o->slot].cap) {
        fake_put_error(c, m->head.request, HEARTH_EINVAL, "no such range");
        return;
    }
    f->counts.ranges++;
    f->counts.range_bytes += m->len;
    put_bytes(f, c, m->head.request, f->slot[o->slot].base + m->off, m->len);
}

static void on_ranges(struct fake_engine *f, struct client *c, const struct hth_local_map *m)
{
    if (!f->gather) {
        on_range(f, c, m);
        return;
    }
    f->gathered[f->waiting++] = *m;
    if (f->waiting < f->gather)
        return;
    for (uint32_t i = f->gather; i-- > 0;) /* the last one first */
        on_range(f, c, &f->gathered[i]);
    f->gather = 0;
}

static void on_common_get(struct fake_engine *f, struct client *c, const struct hth_local_common *m)
{
    int s = fake_find_save(f, m->save);

    for (uint32_t i = 0; s >= 0 && i < f->save[s].objects; i++) {
        const struct object *o = &f->save[s].object[i];

        if (o->raw && !strcmp(o->o.name, m->name)) {
            put_bytes(f, c, m->head.request, o->raw, o->o.data_len);
            return;
        }
    }
    fake_put_error(c, m->head.request, HEARTH_ENOENT, "no such common object");
}

static void fake_answer_joining(struct fake_engine *f, struct client *c, const void *msg, int fd)
{
    const struct hth_local_head *m = msg;

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
    default:
        fake_put_error(c, m->request, HEARTH_EPROTO, "never heard of");
    }
}

void fake_answer(struct fake_engine *f, struct client *c, const void *msg, int fd)
{
    const struct hth_local_head *m = msg;

    if (m->type == HTH_LOCAL_MEET)
        f->counts.meet_left_ms = ((const struct hth_local_meet *)msg)->left_ms;
    if (f->silence == m->type) {
        f->counts.silenced++;
        if (m->type == HTH_LOCAL_MAP) {
            memcpy(&f->unanswered, msg, sizeof(f->unanswered));
            f->asker = c;
        }
        return;
    }
    if (f->refuse == m->type && f->refuse_code) {
        fake_put_error(c, m->request, f->refuse_code, f->refuse_text);
        return;
    }
    switch ((enum hth_local_type)m->type) {
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
    case HTH_LOCAL_WRITTEN:
        f->counts.written = ((const struct hth_local_written_chunks *)msg)->chunks;
        break;
    case HTH_LOCAL_FORGET:
        fake_put_ok(c, m->request);
        break;
    case HTH_LOCAL_FOLLOW:
        on_follow(f, c, msg);
        break;
    case HTH_LOCAL_MANIFEST:
        on_manifest(f, c, msg);
        break;
    case HTH_LOCAL_MAP:
        fake_answer_map(f, c, msg);
        break;
    case HTH_LOCAL_UNMAP:
        f->counts.leases--;
        for (int i = 0; i < LEASES; i++)
            if (f->lease[i].id == ((const struct hth_local_unmap *)msg)->lease)
                f->lease[i].id = 0;
        fake_put_ok(c, m->request);
        break;
    case HTH_LOCAL_RANGE:
        on_ranges(f, c, msg);
        break;
    case HTH_LOCAL_GIVE:
        on_give(f, c, msg);
        break;
    case HTH_LOCAL_TAKE:
        on_take(f, c, msg);
        break;
    case HTH_LOCAL_REGAIN:
        on_regain(f, c, msg);
        break;
    case HTH_LOCAL_FIND:
        on_find(f, c, msg);
        break;
    case HTH_LOCAL_COMMON_GET:
        on_common_get(f, c, msg);
        break;
    case HTH_LOCAL_BAD:
        f->counts.bads++;
        f->counts.bad_chunk = ((const struct hth_local_bad *)msg)->chunk;
        fake_put_ok(c, m->request);
        break;
    case HTH_LOCAL_CLOSE:
        f->counts.closes++;
        f->counts.drops += ((const struct hth_local_close *)msg)->leave == HEARTH_DROP;
        fake_put_ok(c, m->request);
        break;
    default:
        fake_answer_joining(f, c, msg, fd);
    }
}
