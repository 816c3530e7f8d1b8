/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of a save, in the order in which the engine must receive them:
 *
 *     lent ahead: BEGIN | another engine than lent it: REGAIN per object    then SEAL, COMMON, COMMIT, CANCEL
 *     all of it was sealed when the engine went: FOLLOW
 *     while bytes come from GPUs: no SEAL, COMMIT or CANCEL
 *
 * This file sends nothing. The code that has the connection asks it for the next message, so that
 * one place knows what did not fit into the socket and what must be sent again.
 */
#include "kept.h"

#include "client/device/work.h"
#include "link_parts.h"
#include <hearth/save.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hearth_handle *hth_kept_find_locked(struct hearth *h, uint64_t number)
{
    struct hearth_handle *s = h->link->handles;

    while (s && s->number != number)
        s = s->next;
    return s;
}

int hth_kept_object_locked(struct hearth_handle *s, const struct hth_kept_object *object)
{
    struct hth_kept_object *more = realloc(s->object, (s->objects + 1) * sizeof(*more));

    if (!more)
        return HEARTH_ENOMEM;
    more[s->objects++] = *object;
    s->object = more;
    return HEARTH_OK;
}

void hth_kept_common_locked(struct hearth_handle *s, struct hth_kept_common *common)
{
    struct hth_kept_common **end = &s->commons;

    while (*end)
        end = &(*end)->next;
    common->next = NULL;
    *end = common;
}

void hth_kept_end_locked(struct hearth_handle *s)
{
    free(s->object);
    s->object = NULL;
    s->objects = 0;
    while (s->commons) {
        struct hth_kept_common *c = s->commons;

        s->commons = c->next;
        close(c->fd);
        free(c);
    }
}

void hth_kept_free_locked(struct hearth_handle *s)
{
    hth_kept_end_locked(s);
    hth_work_put(s->work);
    free(s->ranks);
    free(s);
}

void hth_kept_refused_locked(struct hearth_handle *s, uint32_t type, int code, const char *text)
{
    if (s->status.code || type == HTH_LOCAL_CANCEL || s->status.level >= HEARTH_PROTECTED)
        return;
    s->status.code =
            code == HEARTH_EUNKNOWN || type == HTH_LOCAL_FOLLOW ? HEARTH_EUNKNOWN : HEARTH_EFAILED;
    snprintf(s->status.text, sizeof(s->status.text), "%.250s", text);
    hth_kept_end_locked(s);
}

/* ---- what comes next ------------------------------------------------------------------------- */

static void unsaid_fill(struct hth_unsaid *out, const struct hearth_handle *s, uint32_t type,
        size_t len, int fd, int *said)
{
    out->type = type;
    out->len = len;
    out->fd = fd;
    out->said = said;
    out->token = s->token;
    out->number = s->number;
}

/* The set of ranks goes behind the message. */
static void unsaid_name(struct hth_unsaid *out, const struct hearth_handle *s)
{
    if (!s->ranks)
        return;
    hth_ranks_encode(s->ranks, out->m.room + out->len);
    out->len += hth_ranks_bytes(s->ranks);
}

/* To an engine that knows nothing of it. */
static void kept_begin_anew(struct hearth *h, struct hearth_handle *s)
{
    s->incarnation = h->link->incarnation;
    s->token = HTH_LOCAL_OWN | ++h->link->numbers;
    s->ahead = s->commit_said = s->cancel_said = 0;
    s->follow_said = s->objects != 0;
    for (uint32_t i = 0; i < s->objects; i++)
        s->object[i].said = s->object[i].seal_said = 0;
    for (struct hth_kept_common *c = s->commons; c; c = c->next)
        c->said = 0;
}

static int kept_next_begin(struct hearth_handle *s, struct hth_unsaid *out)
{
    struct hth_kept_object *o = s->object;

    if (!s->ahead || !o || o->said)
        return 0;
    out->m.begin = (struct hth_local_begin){
        .step = s->step, .bytes = o->bytes, .attempt = s->save.attempt
    };
    memcpy(out->m.begin.name, o->name, sizeof(o->name));
    unsaid_fill(out, s, HTH_LOCAL_BEGIN, sizeof(out->m.begin), -1, &o->said);
    unsaid_name(out, s);
    return 1;
}

static int kept_next_object(struct hearth_handle *s, struct hth_unsaid *out)
{
    for (uint32_t i = 0; i < s->objects; i++) {
        struct hth_kept_object *o = &s->object[i];

        if (o->said)
            continue;
        out->m.regain = (struct hth_local_regain){ .save = hth_local_save_of(s->save),
            .slot = o->slot,
            .generation = o->generation,
            .bytes = o->bytes,
            .index = i };
        memcpy(out->m.regain.name, o->name, sizeof(o->name));
        unsaid_fill(out, s, HTH_LOCAL_REGAIN, sizeof(out->m.regain), -1, &o->said);
        unsaid_name(out, s);
        return 1;
    }
    return 0;
}

static int kept_next_seal(struct hearth_handle *s, struct hth_unsaid *out)
{
    for (uint32_t i = 0; i < s->objects && !s->copying; i++) {
        struct hth_kept_object *o = &s->object[i];

        if (!o->sealed || o->seal_said)
            continue;
        out->m.seal = (struct hth_local_seal){ .slot = o->slot,
            .generation = o->generation,
            .data_len = o->data_len,
            .items_len = o->items_len,
            .items = o->items,
            .index = i,
            .summed = (uint32_t)o->summed,
            .pinned = s->pinned };
        unsaid_fill(out, s, HTH_LOCAL_SEAL, sizeof(out->m.seal), -1, &o->seal_said);
        return 1;
    }
    return 0;
}

static int kept_next_common(struct hearth_handle *s, struct hth_unsaid *out)
{
    for (struct hth_kept_common *c = s->commons; c; c = c->next) {
        if (c->said)
            continue;
        out->m.common = (struct hth_local_common){ .len = c->len };
        memcpy(out->m.common.name, c->name, sizeof(c->name));
        unsaid_fill(out, s, HTH_LOCAL_COMMON, sizeof(out->m.common), c->fd, &c->said);
        return 1;
    }
    return 0;
}

/* The engine had all of it sealed when it went. */
static int kept_next_follow(struct hearth_handle *s, struct hth_unsaid *out)
{
    if (s->follow_said || !s->save.epoch || !(s->token & HTH_LOCAL_OWN))
        return 0;
    out->m.follow = (struct hth_local_follow){ .save = hth_local_save_of(s->save) };
    unsaid_fill(out, s, HTH_LOCAL_FOLLOW, sizeof(out->m.follow), -1, &s->follow_said);
    return 1;
}

static int kept_next_word(struct hearth_handle *s, struct hth_unsaid *out)
{
    int commit = s->objects && s->committed && !s->commit_said;

    if (s->copying || (!commit && (!s->cancelled || s->cancel_said)))
        return 0;
    unsaid_fill(out, s, commit ? HTH_LOCAL_COMMIT : HTH_LOCAL_CANCEL, sizeof(out->m.head), -1,
            commit ? &s->commit_said : &s->cancel_said);
    return 1;
}

int hth_kept_next_locked(struct hearth *h, struct hth_unsaid *out)
{
    for (struct hearth_handle *s = h->link->handles; s; s = s->next) {
        if (s->status.code || s->status.level >= HEARTH_PROTECTED || !s->token)
            continue;
        if (s->incarnation != h->link->incarnation)
            kept_begin_anew(h, s);
        if (kept_next_begin(s, out) || kept_next_object(s, out) || kept_next_seal(s, out) ||
                (s->step != HEARTH_STEP_LATER && kept_next_common(s, out)) ||
                kept_next_follow(s, out) || kept_next_word(s, out))
            return 1;
    }
    return 0;
}
