/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of pass 2 over a `.metadata`. A value is a slot of 16 bytes. Slots are copied; only
 * lists, dicts and objects, which change after they are made, live in a cell that slots point to,
 * and elements of tuples lie on a heap. A cell is free again, and the heap shorter, once what used
 * it has become a record: there is one reference to it, unless the memo keeps it (`pinned`), and
 * then it stays.
 *
 * No cycles, as in the pickle machine: a value that is part of another one is closed and does not
 * change.
 */
#include "metadata_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Errors, memory ----------------------------------------------------------------------- */

struct md_slot *md_refuse(struct md_machine *m, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    md_refuse_at(m, (uint32_t)(m->op - m->md->bytes), "%s", text);
    return NULL;
}

int md_refuse_at(struct md_machine *m, uint32_t at, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    m->rc = hth_fail(m->err, HEARTH_ECORRUPT, 0, "byte %" PRIu32 ": %s", at, text);
    return m->rc;
}

void *md_grow(struct md_machine *m, void *at, uint32_t *cap, size_t each)
{
    uint64_t more = *cap ? 2 * (uint64_t)*cap : 64;
    void *bigger = more < UINT32_MAX ? realloc(at, more * each) : NULL;

    if (!bigger) {
        m->rc = hth_fail(m->err, HEARTH_ENOMEM, 0, "no memory for %" PRIu64 " records", more);
        return at;
    }
    *cap = (uint32_t)more;
    return bigger;
}

uint32_t md_cell_new(struct md_machine *m)
{
    uint32_t number = m->free_cell - 1;

    if (m->free_cell) {
        m->free_cell = m->cell.at[number].next_free;
    } else {
        if (!MD_ROOM(m, m->cell))
            return UINT32_MAX;
        number = m->cell.count++;
    }
    /* The union's first 20 bytes are what lists and dicts begin with; attributes count by `set`. */
    m->cell.at[number] = (struct md_cell){ .at = (uint32_t)(m->op - m->md->bytes) };
    return number;
}

/* ---- Values that become parts of others, values that are not needed any more -------------- */

int md_place(struct md_machine *m, const struct md_slot *s)
{
    struct md_cell *c;

    if (s->kind == MD_GLOBAL || (s->kind == MD_TUPLE && s->small))
        return md_refuse_at(m, s->at, "a class or function that stands as a value");
    if (s->kind < MD_GLOBAL)
        return HEARTH_OK;
    c = &m->cell.at[s->x];
    if (s->kind > MD_DICT ? !c->closed : c->holds == MD_STATE)
        return md_refuse_at(m, s->at, "an object without its state");
    c->closed = 1;
    return HEARTH_OK;
}

int md_unknown(const struct md_machine *m, const struct md_slot *s, struct md_what *out)
{
    if (s->kind == MD_UNKNOWN) {
        *out = (struct md_what){ s->x, s->y };
        return 1;
    }
    if (s->kind == MD_TUPLE && s->n & MD_OF_UNKNOWN)
        return md_unknown(m, &m->md->heap.at[s->x + s->y], out);
    if (s->kind <= MD_GLOBAL || !m->cell.at[s->x].unknown.name)
        return 0;
    *out = m->cell.at[s->x].unknown;
    return 1;
}

void md_forget(struct md_machine *m, const struct md_cell *dict)
{
    struct hearth_metadata *md = m->md;
    uint32_t end = dict->first + dict->count;

    if (dict->holds == MD_PATHS && end == md->path.count)
        md->path.count = dict->first;
    if (dict->holds == MD_ENTRIES && end == md->entry.count)
        md->entry.count = dict->first;
    if (dict->holds == MD_PLACES && end == md->stored.count)
        md->stored.count = dict->first;
}

void md_drop(struct md_machine *m, const struct md_slot *s)
{
    struct hearth_metadata *md = m->md;
    struct md_cell *c;

    if (s->kind < MD_TUPLE || s->kind == MD_GLOBAL)
        return;
    if (s->kind < MD_GLOBAL) {
        if (s->x >= m->heap_floor && s->x + s->y + !!(s->n & MD_OF_UNKNOWN) == md->heap.count)
            md->heap.count = s->x;
        return;
    }
    c = &m->cell.at[s->x];
    if (c->pinned)
        return;
    if (s->kind == MD_DICT)
        md_forget(m, c);
    c->next_free = m->free_cell;
    m->free_cell = s->x + 1;
}
