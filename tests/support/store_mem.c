/* SPDX-License-Identifier: Apache-2.0 */
/* A store in plain memory: directories are list nodes, a rename is a change of two fields. */
#include "store_mem_large.h"
#include "store_mem_parts.h"

#include "core/base/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVIDENCE_MAX 4
#define LARGE        16384u /* bytes of a record: the judge reads the first page of one */

static int sharing;

static struct slot *slot_of(struct hth_slot *slot)
{
    return (struct slot *)slot;
}

/* Every allocating operation passes here, so that a test can fail each in turn. */
int mem_charge(struct mem *m, uint64_t bytes, struct hearth_error *err)
{
    if (++m->allocations == m->fail_at)
        return hth_fail(err, HEARTH_ENOSPC, 0, "the test fails allocation %" PRIu64, m->fail_at);
    if (m->limit && bytes && (m->used > m->limit || bytes > m->limit - m->used))
        return hth_fail(err, HEARTH_ENOSPC, 0,
                "%" PRIu64 " bytes do not fit: %" PRIu64 " of %" PRIu64
                " are used; give the store more memory or keep fewer saves",
                bytes, m->used, m->limit);
    m->used += bytes;
    return 0;
}

int mem_slot_make(struct mem *m, uint64_t capacity, struct slot **out, struct hearth_error *err)
{
    struct slot *slot, **end = &m->slots;
    int rc = mem_charge(m, capacity, err);

    if (rc)
        return rc;
    slot = calloc(1, sizeof(*slot));
    if (slot)
        slot->pub.base = aligned_alloc(MEM_ROUND, capacity);
    if (!slot || !slot->pub.base) {
        free(slot);
        m->used -= capacity;
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a slot of %" PRIu64, capacity);
    }
    memset(slot->pub.base, 0, capacity);
    slot->pub.id = ++m->slot_ids;
    slot->pub.capacity = capacity;
    slot->pub.fd = -1;
    slot->opened = ++m->opens;
    while (*end)
        end = &(*end)->next;
    *end = slot;
    *out = slot;
    return 0;
}

void mem_slot_drop(struct mem *m, struct slot *slot)
{
    struct slot **at = &m->slots;

    while (*at != slot)
        at = &(*at)->next;
    *at = slot->next;
    if (!slot->condemned)
        m->used -= slot->pub.capacity;
    free(slot->pub.base);
    free(slot);
}

static struct slot *best_free(struct mem *m, uint64_t bytes)
{
    struct slot *best = NULL;

    for (struct slot *s = m->slots; s; s = s->next)
        if (s->state == FREE && s->pub.capacity >= bytes &&
                (!best || s->pub.capacity < best->pub.capacity))
            best = s;
    return best;
}

static void slot_settle(struct mem *m, struct slot *slot)
{
    int elsewhere = m->elsewhere && m->elsewhere(m->world, slot->pub.id, slot->opened);

    slot->state = slot->pub.leases || elsewhere ? GIVEN : FREE;
}

void mem_settle(struct mem *m)
{
    for (struct slot *s = m->slots; s; s = s->next)
        if (s->state == GIVEN && !s->pub.leases && !s->condemned)
            slot_settle(m, s);
}

static int mem_awaits(const struct mem *m, uint64_t bytes)
{
    for (const struct slot *s = m->expecting ? m->slots : NULL; s; s = s->next)
        if (s->state == GIVEN && !s->pub.leases && !s->condemned && s->pub.capacity >= bytes)
            return 1;
    return 0;
}

static int mem_take(
        struct hth_store *s, uint64_t bytes, struct hth_slot **out, struct hearth_error *err)
{
    struct mem *m = mem_of(s);
    struct slot *slot;
    int rc;

    mem_settle(m);
    slot = best_free(m, bytes);
    if (!slot && mem_awaits(m, bytes))
        return hth_fail(err, HEARTH_EBUSY, 0, "no free slot of %" PRIu64 " bytes yet", bytes);
    if (!slot && m->reserved)
        for (struct slot *other = m->slots; other; other = other->next)
            if (other->pub.capacity >= bytes && !other->condemned)
                return hth_fail(err, HEARTH_EBUSY, 0,
                        "no free slot of %" PRIu64 " bytes: older saves hold them all", bytes);
    if (!slot) {
        rc = mem_slot_make(m, mem_capacity_for(bytes), &slot, err);
        if (rc)
            return rc;
    }
    slot->state = HELD;
    slot->half = (struct hth_save_id){ 0 };
    slot->pub.generation++;
    *out = &slot->pub;
    return 0;
}

static int mem_resume(struct hth_store *s, uint64_t bytes, struct hth_save_id save,
        const char *name, struct hth_slot **out)
{
    struct slot *slot;

    mem_settle(mem_of(s));
    slot = mem_of(s)->slots;
    while (slot && (slot->state != FREE || slot->pub.capacity < bytes ||
                           hth_save_cmp(slot->half, save) != 0 || strcmp(slot->name, name) != 0))
        slot = slot->next;
    if (!slot)
        return HEARTH_ENOENT;
    slot->state = HELD;
    slot->half = (struct hth_save_id){ 0 };
    slot->pub.generation++;
    *out = &slot->pub;
    return 0;
}

/* No process maps this memory, so any slot is as good as the one before. */
static int mem_lend(struct hth_store *s, uint64_t bytes, uint32_t rank, struct hth_slot **out,
        struct hearth_error *err)
{
    (void)rank;
    return mem_take(s, bytes, out, err);
}

static int mem_claim(struct hth_store *s, uint64_t id, uint64_t generation, uint32_t rank,
        struct hth_slot **out, struct hearth_error *err)
{
    struct slot *slot = mem_of(s)->slots;

    (void)rank;
    while (slot && slot->pub.id != id)
        slot = slot->next;
    if (!slot || slot->condemned || slot->pub.leases || slot->pub.generation > generation ||
            (slot->state != FREE && slot->state != GIVEN))
        return hth_fail(err, HEARTH_ENOENT, 0, "the slot is in other use");
    slot->state = HELD;
    slot->pub.generation = generation;
    *out = &slot->pub;
    return 0;
}

struct dir *mem_dir_find(struct mem *m, struct hth_save_id save)
{
    for (struct dir *d = m->dirs; d; d = d->next)
        if (!hth_save_cmp(d->save, save))
            return d;
    return NULL;
}

int mem_dir_get(struct mem *m, struct hth_save_id save, struct dir **out, struct hearth_error *err)
{
    struct dir *d = mem_dir_find(m, save), **end = &m->dirs;
    int rc;

    if (!d) {
        rc = mem_charge(m, 0, err);
        if (rc)
            return rc;
        d = calloc(1, sizeof(*d));
        if (!d)
            return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a directory");
        d->save = save;
        while (*end)
            end = &(*end)->next;
        *end = d;
    }
    *out = d;
    return 0;
}

struct file **mem_file_find(struct mem *m, const struct dir *dir, const char *name)
{
    struct file **at = &m->files;

    while (*at && ((*at)->dir != dir || strcmp((*at)->name, name) != 0))
        at = &(*at)->next;
    return at;
}

int mem_slot_named(struct mem *m, const struct dir *dir, const char *name, enum state state)
{
    for (struct slot *s = m->slots; s; s = s->next)
        if (s->dir == dir && s->state == state && !strcmp(s->name, name))
            return 1;
    return 0;
}

static int show(struct mem *m, struct slot *slot, struct hth_save_id save, const char *name,
        enum state state, struct hearth_error *err)
{
    struct dir *dir;
    int rc = hth_object_name_check(name, err);

    if (rc)
        return rc;
    if (slot->state != HELD && (slot->state != RECEIVED || state != SEALED))
        return hth_fail(err, HEARTH_ESTATE, 0, "slot %" PRIu64 " is not held", slot->pub.id);
    rc = mem_dir_get(m, save, &dir, err);
    if (rc)
        return rc;
    if (mem_slot_named(m, dir, name, state) || (state == SEALED && *mem_file_find(m, dir, name)))
        return hth_fail(err, HEARTH_EEXIST, 0, "%s of " HTH_SAVE " exists already", name,
                HTH_SAVE_ARGS(save));
    slot->dir = dir;
    slot->state = state;
    snprintf(slot->name, sizeof(slot->name), "%s", name);
    return 0;
}

static int mem_receive(struct hth_store *s, struct hth_slot *slot, struct hth_save_id save,
        const char *name, struct hearth_error *err)
{
    return show(mem_of(s), slot_of(slot), save, name, RECEIVED, err);
}

static int mem_seal(struct hth_store *s, struct hth_slot *slot, struct hth_save_id save,
        const char *name, struct hearth_error *err)
{
    return show(mem_of(s), slot_of(slot), save, name, SEALED, err);
}

static void mem_give(struct hth_store *s, struct hth_slot *slot)
{
    struct mem *m = mem_of(s);

    if (m->freed && slot_of(slot)->state == SEALED)
        m->freed(m->watcher, slot_of(slot));
    slot_of(slot)->half =
            slot_of(slot)->state == RECEIVED ? slot_of(slot)->dir->save : (struct hth_save_id){ 0 };
    slot_of(slot)->dir = NULL;
    slot_settle(m, slot_of(slot));
}

static void mem_abandon(struct hth_store *s, struct hth_slot *slot)
{
    slot_of(slot)->opened = ++mem_of(s)->opens;
    mem_give(s, slot);
}

static void mem_expect(struct hth_store *s, int on)
{
    mem_of(s)->expecting = on;
}

/* Only where another slot can take its place, so that the pool never gets smaller by it. */
static void mem_condemn(struct hth_store *s, struct hth_slot *slot, const char *why)
{
    struct mem *m = mem_of(s);
    struct slot *own = slot_of(slot), *made;

    (void)why;
    if (m->evidence >= EVIDENCE_MAX || mem_slot_make(m, slot->capacity, &made, NULL)) {
        mem_give(s, slot);
        return;
    }
    m->evidence++;
    own->condemned = 1;
    own->dir = NULL;
    own->state = GIVEN;
    if (!slot->leases)
        mem_slot_drop(m, own);
}

static void mem_lease(struct hth_store *s, struct hth_slot *slot)
{
    (void)s;
    slot->leases++;
}

static void mem_unlease(struct hth_store *s, struct hth_slot *slot)
{
    if (!slot->leases || --slot->leases || slot_of(slot)->state != GIVEN)
        return;
    if (slot_of(slot)->condemned)
        mem_slot_drop(mem_of(s), slot_of(slot));
    else
        slot_settle(mem_of(s), slot_of(slot));
}

void mem_file_end(struct mem *m, struct file *f)
{
    if (!f->unnamed || f->users)
        return;
    m->used -= f->charged;
    if (!f->large)
        free(f->bytes);
    large_free(f->large);
    free(f->older);
    free(f);
}

static void file_drop(struct mem *m, struct file **at)
{
    struct file *f = *at;

    *at = f->next;
    f->unnamed = 1;
    mem_file_end(m, f);
}

/* `charged`: bytes of its memory that are not its own. */
static int file_new(
        struct mem *m, size_t len, size_t charged, struct file **out, struct hearth_error *err)
{
    struct file *f;
    int rc = mem_charge(m, charged, err);

    if (rc)
        return rc;
    f = calloc(1, sizeof(*f));
    if (f)
        f->bytes = malloc(len + 1);
    if (!f || !f->bytes) {
        free(f);
        m->used -= charged;
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %zu bytes", len);
    }
    f->len = len;
    f->charged = charged;
    f->unnamed = 1;
    *out = f;
    return 0;
}

int mem_file_new(struct mem *m, size_t len, struct file **out, struct hearth_error *err)
{
    return file_new(m, len, len, out, err);
}

/* Replaces the file that has this name. */
void mem_file_name(struct mem *m, struct file *f, struct dir *dir, const char *name)
{
    struct file **at = mem_file_find(m, dir, name);

    f->dir = dir;
    f->unnamed = 0;
    snprintf(f->name, sizeof(f->name), "%s", name);
    if (*at) {
        f->next = (*at)->next;
        (*at)->next = f;
        if (m->remembers && !dir && !(*at)->large) {
            f->older_len = (*at)->len;
            f->older = malloc(f->older_len + 1);
            if (f->older)
                memcpy(f->older, (*at)->bytes, f->older_len);
        }
        file_drop(m, at);
    } else {
        *at = f;
    }
}

static int file_put(struct mem *m, struct dir *dir, const char *name, const void *bytes, size_t len,
        struct hearth_error *err)
{
    struct file *f = NULL;
    int shared = sharing && len >= LARGE;
    int rc = file_new(m, shared ? 0 : len, m->spares ? 0 : len, &f, err);

    if (!f)
        return rc;
    f->len = len;
    if (shared) {
        free(f->bytes);
        f->large = large_put(bytes, len);
        f->bytes = large_first(f->large);
    } else if (len) {
        memcpy(f->bytes, bytes, len);
    }
    mem_file_name(m, f, dir, name);
    return 0;
}

static int file_get(struct mem *m, const struct dir *dir, const char *name, void **out,
        size_t *out_len, struct hearth_error *err)
{
    struct file *f = *mem_file_find(m, dir, name);
    void *copy;

    if (!f)
        return hth_fail(err, HEARTH_ENOENT, 0, "there is no %s", name);
    copy = malloc(f->len + 1);
    if (!copy)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %zu bytes", f->len);
    if (f->large)
        large_get(f->large, copy);
    else
        memcpy(copy, f->bytes, f->len);
    *out = copy;
    *out_len = f->len;
    return 0;
}

static int mem_publish(struct hth_store *s, struct hth_save_id save, struct hearth_error *err)
{
    struct mem *m = mem_of(s);
    struct dir *dir = mem_dir_find(m, save);
    int rc;

    if (!dir || dir->published)
        return 0;
    rc = mem_charge(m, 0, err);
    if (rc)
        return rc;
    for (struct dir *d = m->dirs; d; d = d->next)
        if (d->save.step == save.step)
            d->published = 0;
    dir->published = dir->was_published = 1;
    return 0;
}

static void mem_record_remove(struct hth_store *s, const char *name)
{
    struct file **at = mem_file_find(mem_of(s), NULL, name);

    if (*at)
        file_drop(mem_of(s), at);
}

static int dir_used(struct mem *m, const struct dir *dir)
{
    for (struct slot *s = m->slots; s; s = s->next)
        if (s->dir == dir)
            return 1;
    return 0;
}

static void dir_drop(struct mem *m, struct dir *dir)
{
    struct dir **at = &m->dirs;

    for (struct file **f = &m->files; *f;) {
        if ((*f)->dir == dir)
            file_drop(m, f);
        else
            f = &(*f)->next;
    }
    while (*at != dir)
        at = &(*at)->next;
    *at = dir->next;
    free(dir);
}

static void mem_remove(struct hth_store *s, struct hth_save_id save)
{
    struct mem *m = mem_of(s);
    struct dir *dir = mem_dir_find(m, save), *back = NULL;
    char name[HTH_SAVE_TEXT + 16];

    hth_save_text(save, name);
    strcat(name, ".manifest");
    mem_record_remove(s, name);
    if (!dir)
        return;
    for (struct dir *d = m->dirs; d; d = d->next)
        if (d != dir && d->save.step == save.step && d->was_published &&
                (!back || hth_save_cmp(d->save, back->save) > 0))
            back = d;
    if (dir->published && back) {
        dir->published = 0;
        back->published = 1;
    }
    if (!dir_used(m, dir))
        dir_drop(m, dir);
}

static int record_name_check(const char *name, struct hearth_error *err)
{
    if (!*name || strlen(name) > RECORD_MAX || strchr(name, '/'))
        return hth_fail(err, HEARTH_EINVAL, 0, "\"%s\" is no name for a record", name);
    return 0;
}

static int mem_record_put(struct hth_store *s, const char *name, const void *bytes, size_t len,
        struct hearth_error *err)
{
    struct mem *m = mem_of(s);
    int rc = record_name_check(name, err);

    if (!rc && m->no_records)
        rc = hth_fail(err, HEARTH_ENOSPC, 0, "the test writes no record %s", name);
    rc = rc ? rc : file_put(m, NULL, name, bytes, len, err);
    if (!rc && m->written)
        m->written(m->watcher, name, bytes, len);
    return rc;
}

static int mem_record_get(struct hth_store *s, const char *name, void **out, size_t *out_len,
        struct hearth_error *err)
{
    return file_get(mem_of(s), NULL, name, out, out_len, err);
}

static void dir_name(const struct dir *dir, char out[HTH_SAVE_TEXT])
{
    if (dir->published)
        snprintf(out, HTH_SAVE_TEXT, "step-%" PRIu64 "_ckpt", dir->save.step);
    else
        hth_save_text(dir->save, out);
}

static void each_manifest(
        struct mem *m, void (*found)(void *arg, const struct hth_store_found *f), void *arg)
{
    for (struct file *file = m->files, *next; file; file = next) {
        struct hth_store_found f = { .dir = HTH_RECORDS_DIR, .name = file->name };
        const char *dot = strchr(file->name, '.');
        char text[HTH_SAVE_TEXT];

        next = file->next; /* found() may remove it */
        if (file->dir || !dot || strcmp(dot, ".manifest") != 0 ||
                (size_t)(dot - file->name) >= sizeof(text))
            continue;
        snprintf(text, sizeof(text), "%.*s", (int)(dot - file->name), file->name);
        if (!hth_save_parse(text, &f.save))
            found(arg, &f);
    }
}

void hth_store_mem_each(
        struct hth_store *s, void (*found)(void *arg, const struct hth_store_found *f), void *arg)
{
    struct mem *m = mem_of(s);
    char name[HTH_SAVE_TEXT];

    for (struct slot *slot = m->slots, *next; slot; slot = next) {
        struct hth_store_found f = { .dir = name, .name = slot->name, .slot = &slot->pub };
        struct hth_block block;

        next = slot->next; /* found() may give or condemn it */
        if (!slot->dir)
            continue;
        dir_name(slot->dir, name);
        f.save = slot->dir->save;
        f.tmp = slot->state == RECEIVED;
        if (!hth_block_decode(&block, slot->pub.base, HTH_BLOCK, slot->pub.capacity, NULL) &&
                block.own)
            f.save = block.save;
        found(arg, &f);
    }
    for (struct file *file = m->files, *next; file; file = next) {
        struct hth_store_found f = { .dir = name, .name = file->name };

        next = file->next;
        if (!file->dir)
            continue;
        dir_name(file->dir, name);
        f.save = file->dir->save;
        found(arg, &f);
    }
    each_manifest(m, found, arg);
}

/* The slots and raw objects have no user and no reader any more. */
static void forget_users(struct mem *m)
{
    for (struct slot *slot = m->slots, *next; slot; slot = next) {
        next = slot->next;
        slot->pub.leases = 0;
        slot->pub.user = NULL;
        slot->opened = ++m->opens;
        if (slot->condemned)
            mem_slot_drop(m, slot);
        else if (slot->state == HELD || slot->state == GIVEN)
            slot_settle(m, slot);
    }
    m->reserved = m->expecting = 0;
}

static int mem_scan(struct hth_store *s, void (*found)(void *arg, const struct hth_store_found *f),
        void *arg, struct hearth_error *err)
{
    (void)err;
    forget_users(mem_of(s));
    hth_store_mem_each(s, found, arg);
    return 0;
}

/* Memory here is made at once, when it is needed. */
static int mem_foresee(
        struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err)
{
    (void)err;
    mem_of(s)->foreseen = 0;
    for (size_t i = 0; i < count; i++)
        mem_of(s)->foreseen += bytes[i] != 0;
    return 0;
}

size_t hth_store_mem_foreseen(struct hth_store *s)
{
    return mem_of(s)->foreseen;
}

static int mem_soon(struct hth_store *s, uint64_t bytes)
{
    mem_settle(mem_of(s));
    return !best_free(mem_of(s), bytes) && mem_awaits(mem_of(s), bytes);
}

static int mem_ready(struct hth_store *s, uint64_t bytes)
{
    mem_settle(mem_of(s));
    return best_free(mem_of(s), bytes) != NULL;
}

static uint64_t mem_work(struct hth_store *s, unsigned slots)
{
    (void)s, (void)slots;
    return HTH_NEVER;
}

static int mem_reader(
        struct hth_store *s, const struct hth_slot *slot, int *out_fd, struct hearth_error *err)
{
    (void)s, (void)slot, (void)err;
    *out_fd = -1;
    return 0;
}

static uint64_t mem_id(struct hth_store *s)
{
    return mem_of(s)->id;
}

static void mem_close(struct hth_store *s)
{
    if (s)
        forget_users(mem_of(s));
}

static const struct hth_store_ops mem_ops = {
    .reserve = mem_reserve,
    .foresee = mem_foresee,
    .enough = mem_enough,
    .room = mem_room,
    .want = mem_want,
    .keep_only = mem_keep_only,
    .surplus = mem_surplus,
    .take = mem_take,
    .resume = mem_resume,
    .lend = mem_lend,
    .claim = mem_claim,
    .receive = mem_receive,
    .seal = mem_seal,
    .give = mem_give,
    .abandon = mem_abandon,
    .expect = mem_expect,
    .condemn = mem_condemn,
    .lease = mem_lease,
    .unlease = mem_unlease,
    .reader = mem_reader,
    .raw_make = mem_raw_make,
    .raw_back = mem_raw_back,
    .raw_seal = mem_raw_seal,
    .raw_open = mem_raw_open,
    .raw_close = mem_raw_close,
    .publish = mem_publish,
    .remove = mem_remove,
    .record_put = mem_record_put,
    .record_get = mem_record_get,
    .record_remove = mem_record_remove,
    .scan = mem_scan,
    .work = mem_work,
    .soon = mem_soon,
    .ready = mem_ready,
    .id = mem_id,
    .close = mem_close,
};

int hth_store_mem_open(uint64_t seed, uint64_t limit_bytes, struct hth_store **out)
{
    struct mem *m = calloc(1, sizeof(*m));

    if (!m)
        return HEARTH_ENOMEM;
    m->base.ops = &mem_ops;
    m->limit = limit_bytes;
    do
        m->id = hth_splitmix64(&seed);
    while (!m->id);
    *out = &m->base;
    return 0;
}

void hth_store_mem_destroy(struct hth_store *s)
{
    struct mem *m = mem_of(s);

    if (!m)
        return;
    while (m->slots)
        mem_slot_drop(m, m->slots);
    while (m->files)
        file_drop(m, &m->files);
    while (m->dirs)
        dir_drop(m, m->dirs);
    free(m);
}

void hth_store_mem_fail_at(struct hth_store *s, uint64_t n)
{
    mem_of(s)->fail_at = n ? mem_of(s)->allocations + n : 0;
}

void hth_store_mem_room(struct hth_store *s, uint64_t limit_bytes)
{
    mem_of(s)->limit = limit_bytes;
    mem_of(s)->spares = 1;
}

void hth_store_mem_no_records(struct hth_store *s, int on)
{
    mem_of(s)->no_records = on;
}

void hth_store_mem_watch(struct hth_store *s, hth_store_mem_written *written,
        hth_store_mem_freed *freed, void *watcher)
{
    mem_of(s)->written = written;
    mem_of(s)->freed = freed;
    mem_of(s)->watcher = watcher;
}

void hth_store_mem_processes(struct hth_store *s, hth_store_mem_elsewhere *elsewhere, void *world)
{
    mem_of(s)->elsewhere = elsewhere;
    mem_of(s)->world = world;
}

uint64_t hth_store_mem_opened(struct hth_store *s, uint64_t slot)
{
    for (const struct slot *at = mem_of(s)->slots; at; at = at->next)
        if (at->pub.id == slot)
            return at->opened;
    return 0;
}

void hth_store_mem_share(void)
{
    sharing = 1;
}

uint64_t hth_store_mem_allocations(struct hth_store *s)
{
    return mem_of(s)->allocations;
}

uint64_t hth_store_mem_used(struct hth_store *s)
{
    return mem_of(s)->used;
}
