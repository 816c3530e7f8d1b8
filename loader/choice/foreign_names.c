/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that a `.metadata` names, found by a worker: for a large model that takes seconds, in
 * which the engine's thread must answer its peers.
 *
 *   names_start ─► worker: decode, look for each name ─► ended ─► done()
 *        │                                                 ▲
 *        └─ names_leave: the result is not needed ─────────┴─► freed, done() is not called
 *
 * The worker has a leased slot and its own copy of the list of files, so the engine's thread may
 * free or change its own meanwhile.
 */
#include "choice_state.h"

#include "core/foreign/foreign.h"
#include <hearth/metadata.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct names {
    struct hth_choice *co;
    struct names *next; /* co->reading */
    struct hth_work work;
    foreign_done_fn *done;
    int left;              /* the choice does not wait for it any more */
    int ended;             /* 0: a worker uses all below */
    struct hth_slot *slot; /* leased */
    size_t len;
    struct hth_foreign_look *look; /* [found.files.objects] a copy of the candidate's */
    struct names_found found;
};

#define names_of(work_at) ((struct names *)(void *)((char *)(work_at)-offsetof(struct names, work)))

/* ---- On a worker ----------------------------------------------------------------------------- */

/* 1: a node has the file. A file without a rank in its name is listed because `.metadata` names
 * it. */
static int names_see(struct names *n, const char *name)
{
    const struct hth_object *o = foreign_file_find(&n->found.files, name);

    n->found.any = 1;
    if (!o) {
        n->found.wrong = "no node has, whole, a file that its .metadata names: ";
        snprintf(n->found.name, sizeof(n->found.name), "%s", name);
        return 0;
    }
    if (o->owner == HTH_OWNER_NONE)
        n->found.files.object[o - n->found.files.object].listed = 1;
    return 1;
}

/* Each place names a file. Neighbours mostly name the same one, by the same pointer. */
static void names_see_places(struct names *n, struct hearth_metadata *md)
{
    struct hearth_metadata_stored s = { .struct_size = sizeof(s) };
    const char *last = NULL;
    char name[HTH_NAME_MAX + 1], say[HTH_KEY_TEXT];

    for (size_t i = 0; !n->found.wrong && !hearth_metadata_stored_at(md, i, &s, NULL); i++) {
        if (s.path.data == last)
            continue;
        last = s.path.data;
        snprintf(name, sizeof(name), "%.*s", (int)s.path.len, s.path.data);
        if (strlen(name) != s.path.len || hth_object_name_check(name, NULL)) {
            n->found.any = 1;
            n->found.wrong = "its .metadata names a file that Hearth cannot hold, ";
            snprintf(n->found.name, sizeof(n->found.name), "%s",
                    hth_key_text(s.path.data, s.path.len, say));
        } else if (!names_see(n, name)) {
            return;
        }
    }
}

/* Checks whether the files are of the same save as the `.metadata`. */
static void names_see_items(struct names *n, struct hearth_metadata *md)
{
    uint32_t file;

    if (n->found.wrong)
        return;
    if (names_match(md, &n->found.files, n->look, &file)) {
        n->found.wrong = "no memory to compare its files with its ";
        snprintf(n->found.name, sizeof(n->found.name), "%s", HTH_METADATA);
    } else if (file != UINT32_MAX) {
        n->found.wrong = "of another save than its .metadata, with other items, is ";
        snprintf(n->found.name, sizeof(n->found.name), "%s", n->found.files.object[file].name);
    }
}

/* As names_see_places(), for a `.metadata` that is not understood: its writer may know more
 * classes. */
static void names_see_texts(struct names *n, const void *bytes, size_t len)
{
    char name[HTH_NAME_MAX + 1];
    size_t pos = 0;

    while (hth_foreign_name_next(bytes, len, &pos, name) && names_see(n, name))
        ;
}

static void names_run(struct hth_work *work)
{
    struct names *n = names_of(work);
    struct hearth_metadata *md;

    if (hearth_metadata_open(n->slot->base, n->len, &md, &n->found.unknown)) {
        names_see_texts(n, n->slot->base, n->len);
    } else {
        names_see_places(n, md);
        names_see_items(n, md);
        hearth_metadata_close(md);
    }
}

/* ---- On the engine's thread ------------------------------------------------------------------ */

static void names_free(struct names *n)
{
    hth_manifest_fini(&n->found.files);
    free(n->look);
    free(n);
}

/* The worker has ended its use: gives the slot back. */
static void names_give_back(struct names *n)
{
    struct names **at = &n->co->reading;
    struct hth_store *store = n->co->ctx->store;

    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    store->ops->unlease(store, n->slot);
    n->ended = 1;
}

/* The file may have changed while it was read; then the bytes are neither the old nor the new
 * file's. */
static void names_check(struct names *n)
{
    struct hth_store *store = n->co->ctx->store;

    if (!store->ops->same || !store->ops->same(store, n->slot, NULL))
        return;
    n->found.wrong = "another program has changed its ";
    snprintf(n->found.name, sizeof(n->found.name), "%s", HTH_METADATA);
}

static void names_done(struct hth_work *work)
{
    struct names *n = names_of(work);
    struct hth_choice *co = n->co;

    names_check(n);
    names_give_back(n);
    if (n->left)
        names_free(n);
    else
        n->done(co);
}

static void *names_copy_of(const void *from, size_t len)
{
    void *copy = malloc(len ? len : 1);

    if (copy)
        memcpy(copy, from, len);
    return copy;
}

int names_start(struct hth_choice *co, struct candidate *c, const struct hth_held *held,
        foreign_done_fn *done)
{
    struct names *n = calloc(1, sizeof(*n));

    if (n) {
        n->found.files.object = names_copy_of(
                c->manifest.object, c->manifest.objects * sizeof(*c->manifest.object));
        n->look = names_copy_of(c->look, c->manifest.objects * sizeof(*c->look));
    }
    if (!n || !n->found.files.object || !n->look) {
        if (n)
            names_free(n);
        return HEARTH_ENOMEM;
    }
    n->found.files.objects = c->manifest.objects;
    n->co = co;
    n->done = done;
    n->slot = held->slot;
    n->len = held->object.data_len;
    n->work = (struct hth_work){ .run = names_run, .done = names_done };
    n->next = co->reading;
    co->reading = n;
    c->names = n;
    co->ctx->store->ops->lease(co->ctx->store, n->slot);
    hth_point(&co->ctx->points, "metadata");
    co->ctx->workers.submit(co->ctx->workers.self, &n->work);
    return HEARTH_OK;
}

const struct names_found *names_found(const struct names *n)
{
    return n && n->ended ? &n->found : NULL;
}

void names_leave(struct names *n)
{
    if (n && n->ended)
        names_free(n);
    else if (n)
        n->left = 1;
}

void names_close(struct hth_choice *co)
{
    struct names *n;

    while ((n = co->reading)) {
        names_give_back(n);
        names_free(n);
    }
}
