/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pickle machine: it fetches an opcode with its argument, looks the opcode up in a table, and
 * runs it. An opcode that is not in the table is refused, and so is a global that is not in the
 * caller's.
 *
 *      bytes --> opcode, argument --> run(op) --> stack of value numbers --> STOP: the root
 *                                          '--> memo, values, cells: pools of fixed size
 */
#include "pickle_code.h"
#include "pickle_ops.h"

#include <string.h>

/* The next opcode, with its argument. */
static int opcode_next(struct hth_machine *m, const struct hth_op **out_op,
        const unsigned char **out_arg, size_t *out_n)
{
    const unsigned char *code;
    const struct hth_op *op;

    m->op = m->pos;
    if (m->pos == m->p.len)
        return hth_machine_refuse(m, "the pickle ends before its STOP");
    code = m->p.bytes + m->pos;
    op = &hth_pickle_op[*code];
    if (!op->run || (op->values && !m->values) || (m->op == 0 && *code != 0x80))
        return hth_machine_refuse(m,
                m->op ? "opcode %02x is not allowed" : "opcode %02x does not begin a pickle",
                *code);
    *out_arg = hth_pickle_argument(*code, code + 1, m->p.len - m->pos - 1, out_n);
    if (!*out_arg)
        return hth_machine_refuse(m, "opcode %02x is cut off", *code);
    m->pos = (size_t)(*out_arg - m->p.bytes) + *out_n;
    *out_op = op;
    return HEARTH_OK;
}

static int opcode_step(struct hth_machine *m)
{
    const struct hth_op *op;
    const unsigned char *arg;
    size_t n;
    int rc = opcode_next(m, &op, &arg, &n);

    if (rc)
        return rc;
    if (m->op < m->frame_end && m->pos > m->frame_end)
        return hth_machine_refuse(m, "opcode %02x reaches out of its frame", m->p.bytes[m->op]);
    return op->run(m, arg, n);
}

#define EACH                                                                               \
    (sizeof(struct hth_pickle_value) + sizeof(struct hth_pickle_cell) + sizeof(uint32_t) + \
            sizeof(uint32_t))

size_t hth_pickle_memory(uint32_t values)
{
    return EACH * ((size_t)values + 1);
}

/* Cut the caller's memory into the four pools. */
static void pools_cut(struct hth_pickle *p, void *memory, size_t memory_bytes)
{
    size_t cap = memory_bytes / EACH;

    p->cap = cap < UINT32_MAX ? (uint32_t)cap : UINT32_MAX;
    p->value = memory;
    p->cell = (void *)(p->value + p->cap);
    p->memo = (void *)(p->cell + p->cap);
    p->stack = p->memo + p->cap;
    memset(p->memo, 0, sizeof(*p->memo) * p->cap);
    p->values = 1; /* 0 stands for none */
    p->cells = 1;
}

static int opcodes_run(
        struct hth_pickle *out, struct hth_machine *m, void *memory, size_t memory_bytes)
{
    int rc = HEARTH_OK;

    if (m->p.len > UINT32_MAX)
        return hth_machine_refuse(m, "a pickle of %zu bytes is too long", m->p.len);
    pools_cut(&m->p, memory, memory_bytes);
    while (!rc && !m->stopped)
        rc = opcode_step(m);
    if (!rc)
        *out = m->p;
    return rc;
}

int hth_pickle_load(struct hth_pickle *out, const struct hth_pickle_global *global,
        uint32_t globals, const void *bytes, size_t len, void *memory, size_t memory_bytes,
        struct hearth_error *err)
{
    struct hth_machine m = { .err = err };

    m.p = (struct hth_pickle){ .bytes = bytes, .len = len, .global = global, .globals = globals };
    return opcodes_run(out, &m, memory, memory_bytes);
}

int hth_pickle_load_values(struct hth_pickle *out, const struct hth_pickle_global *global,
        uint32_t globals, const void *bytes, size_t len, void *memory, size_t memory_bytes,
        struct hearth_error *err)
{
    struct hth_machine m = { .err = err, .values = 1 };

    m.p = (struct hth_pickle){ .bytes = bytes, .len = len, .global = global, .globals = globals };
    return opcodes_run(out, &m, memory, memory_bytes);
}

int hth_pickle_measure(const void *bytes, size_t len, size_t *out_len, uint32_t *out_values,
        struct hearth_error *err)
{
    struct hth_machine m = { .err = err, .values = 1, .p = { .bytes = bytes, .len = len } };
    const struct hth_op *op;
    const unsigned char *arg;
    uint32_t opcodes = 0; /* each makes one value at most */
    size_t n;
    int rc;

    do {
        if ((rc = opcode_next(&m, &op, &arg, &n)))
            return rc;
        if (opcodes++ == UINT32_MAX - 1)
            return hth_machine_refuse(&m, "a pickle of more than 2^32 opcodes");
    } while (m.p.bytes[m.op] != '.');
    *out_len = m.pos;
    *out_values = opcodes;
    return HEARTH_OK;
}

int hth_pickle_id(const struct hth_pickle *p, const struct hth_pickle_value *v)
{
    if (v->kind != HTH_PICKLE_GLOBAL && v->kind != HTH_PICKLE_OBJECT)
        return -1;
    return p->global[v->n].id;
}

int hth_pickle_is(const struct hth_pickle *p, const struct hth_pickle_value *v, const char *text)
{
    return v->kind == HTH_PICKLE_TEXT && v->n == strlen(text) &&
           memcmp(p->bytes + v->head, text, v->n) == 0;
}

const struct hth_pickle_value *hth_pickle_attr(
        const struct hth_pickle *p, const struct hth_pickle_value *object, const char *name)
{
    const struct hth_pickle_value *found = NULL, *state;
    uint32_t value;

    if (object->kind != HTH_PICKLE_OBJECT || !object->built)
        return NULL;
    state = &p->value[object->u.state];
    if (state->kind != HTH_PICKLE_DICT)
        return NULL;
    for (uint32_t c = state->head; c; c = p->cell[value].next) {
        value = p->cell[c].next;
        if (hth_pickle_is(p, hth_pickle_child(p, c), name))
            found = hth_pickle_child(p, value);
    }
    return found;
}
