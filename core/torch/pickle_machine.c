/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that all opcodes of the pickle machine share: its stack, the pool of values, and what
 * it says when it refuses.
 */
#include "pickle_machine.h"

#include <stdarg.h>
#include <stdio.h>

/* --- errors --- */

HTH_PRINTF(3, 0)
static int refuse_at(size_t at, struct hearth_error *err, const char *fmt, va_list ap)
{
    char text[256];

    vsnprintf(text, sizeof(text), fmt, ap);
    return hth_fail(err, HEARTH_ECORRUPT, 0, "byte %zu: %s", at, text);
}

void hth_machine_say(struct hth_machine *m, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    refuse_at(m->op, m->err, fmt, ap);
    va_end(ap);
}

int hth_pickle_refuse(
        const struct hth_pickle_value *v, struct hearth_error *err, const char *fmt, ...)
{
    va_list ap;
    int rc;

    va_start(ap, fmt);
    rc = refuse_at(v->at, err, fmt, ap);
    va_end(ap);
    return rc;
}

/* --- stack and values --- */

struct hth_pickle_value *hth_machine_top(struct hth_machine *m, uint32_t below)
{
    return &m->p.value[m->p.stack[m->p.depth - 1 - below]];
}

int hth_machine_push(struct hth_machine *m, uint32_t v)
{
    if (m->p.depth >= m->p.cap)
        return hth_machine_refuse(m, "more than %u values on the stack", m->p.cap);
    m->p.stack[m->p.depth++] = v;
    return HEARTH_OK;
}

int hth_machine_make(
        struct hth_machine *m, enum hth_pickle_kind kind, struct hth_pickle_value **out)
{
    struct hth_pickle_value *v;

    if (m->p.values >= m->p.cap)
        return hth_machine_refuse(m, "more than %u values", m->p.cap);
    v = &m->p.value[m->p.values];
    *v = (struct hth_pickle_value){ .kind = (uint8_t)kind, .at = (uint32_t)m->op };
    *out = v;
    return hth_machine_push(m, m->p.values++);
}

int hth_machine_need(struct hth_machine *m, uint32_t n)
{
    uint32_t floor = m->marks ? m->mark[m->marks - 1] : 0;

    if (m->p.depth - floor < n)
        return hth_machine_refuse(m, "needs %u values, there are %u", n, m->p.depth - floor);
    return HEARTH_OK;
}

int hth_machine_use(struct hth_machine *m, uint32_t number, struct hth_pickle_value *over)
{
    struct hth_pickle_value *v = &m->p.value[number];

    if (v == over)
        return hth_machine_refuse(m, "a container in itself");
    if (v->kind == HTH_PICKLE_GLOBAL && !(m->p.global[v->n].may & HTH_PICKLE_AS_VALUE))
        return hth_machine_refuse(m, "%s is not a value", m->p.global[v->n].name);
    v->used = 1;
    if (!over || v->depth < over->depth)
        return HEARTH_OK;
    if (v->depth + 1 > HTH_PICKLE_DEPTH)
        return hth_machine_refuse(m, "nested deeper than %d", HTH_PICKLE_DEPTH);
    over->depth = (uint8_t)(v->depth + 1);
    return HEARTH_OK;
}
