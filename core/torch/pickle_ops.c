/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opcodes of the pickle machine: each takes values from the stack, or a few bytes, and
 * leaves one value. The table is at the end.
 *
 * No cycles: a container takes children only as long as it is part of no other value (`used`), and
 * never itself. The last edge of a cycle would go into a container that is used already.
 */
#include "pickle_ops.h"
#include "core/base/bytes.h"
#include "core/base/utf8.h"
#include "pickle_code.h"

/* --- marks and children --- */

/* Close the last mark; the values above it begin at *out_from. */
static int mark_pop(struct hth_machine *m, uint32_t *out_from)
{
    if (!m->marks)
        return hth_machine_refuse(m, "no MARK is open");
    *out_from = m->mark[--m->marks];
    return HEARTH_OK;
}

/* stack[from..to) become the next children of container `over`. */
static int children_add(
        struct hth_machine *m, struct hth_pickle_value *over, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        uint32_t cell = m->p.cells;
        int rc = hth_machine_use(m, m->p.stack[i], over);

        if (rc)
            return rc;
        if (cell >= m->p.cap)
            return hth_machine_refuse(m, "more than %u elements", m->p.cap);
        m->p.cells++;
        m->p.cell[cell] = (struct hth_pickle_cell){ .value = m->p.stack[i] };
        if (over->n++)
            m->p.cell[over->u.tail].next = cell;
        else
            over->head = cell;
        over->u.tail = cell;
    }
    return HEARTH_OK;
}

/* --- constants --- */

static int op_proto(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    (void)n;
    if (m->op != 0)
        return hth_machine_refuse(m, "PROTO in the middle of a pickle");
    if (*arg < 2 || *arg > 5)
        return hth_machine_refuse(m, "protocol %u, not 2 to 5", *arg);
    return HEARTH_OK;
}

static int op_frame(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    uint64_t frame = hth_get64(arg);

    (void)n;
    if (m->op < m->frame_end || frame > m->p.len - m->pos)
        return hth_machine_refuse(m, "a frame of %" PRIu64 " bytes does not fit here", frame);
    m->frame_end = m->pos + (size_t)frame;
    return HEARTH_OK;
}

static int op_none(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    struct hth_pickle_value *v;

    (void)arg, (void)n;
    return hth_machine_make(m, HTH_PICKLE_NONE, &v);
}

static int integer_push(struct hth_machine *m, enum hth_pickle_kind kind, int64_t i)
{
    struct hth_pickle_value *v;
    int rc = hth_machine_make(m, kind, &v);

    if (!rc)
        v->u.integer = i;
    return rc;
}

static int op_true(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    (void)arg, (void)n;
    return integer_push(m, HTH_PICKLE_BOOL, 1);
}

static int op_false(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    (void)arg, (void)n;
    return integer_push(m, HTH_PICKLE_BOOL, 0);
}

/* BININT1, BININT2: unsigned. */
static int op_unsigned(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    return integer_push(m, HTH_PICKLE_INT, n == 1 ? arg[0] : hth_get16(arg));
}

static int op_int(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    (void)n;
    return integer_push(m, HTH_PICKLE_INT, (int32_t)hth_get32(arg));
}

static int op_long(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    int64_t i = 0;
    const char *wrong = hth_pickle_long(arg, n, &i);

    return wrong ? hth_machine_refuse(m, "%s", wrong) : integer_push(m, HTH_PICKLE_INT, i);
}

static int op_text(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    struct hth_pickle_value *v;
    int rc;

    if (!hth_utf8(arg, n))
        return hth_machine_refuse(m, "a text that is not UTF-8");
    if ((rc = hth_machine_make(m, HTH_PICKLE_TEXT, &v)))
        return rc;
    v->n = (uint32_t)n;
    v->head = (uint32_t)(arg - m->p.bytes);
    return HEARTH_OK;
}

/* BINFLOAT: big-endian. */
static int op_float(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    uint64_t bits = __builtin_bswap64(hth_get64(arg));
    struct hth_pickle_value *v;
    int rc = hth_machine_make(m, HTH_PICKLE_FLOAT, &v);

    (void)n;
    if (!rc)
        memcpy(&v->u.real, &bits, sizeof(bits));
    return rc;
}

static int op_bytes(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    struct hth_pickle_value *v;
    int rc = hth_machine_make(m, HTH_PICKLE_BYTES, &v);

    if (rc)
        return rc;
    v->n = (uint32_t)n;
    v->head = (uint32_t)(arg - m->p.bytes);
    return HEARTH_OK;
}

/* --- containers --- */

static int op_mark(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    (void)arg, (void)n;
    if (m->marks >= HTH_PICKLE_MARKS)
        return hth_machine_refuse(m, "more than %d open MARKs", HTH_PICKLE_MARKS);
    m->mark[m->marks++] = m->p.depth;
    return HEARTH_OK;
}

static int op_empty_tuple(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    struct hth_pickle_value *v;

    (void)arg, (void)n;
    return hth_machine_make(m, HTH_PICKLE_TUPLE, &v);
}

static int op_empty_list(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    struct hth_pickle_value *v;

    (void)arg, (void)n;
    return hth_machine_make(m, HTH_PICKLE_LIST, &v);
}

static int op_empty_dict(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    struct hth_pickle_value *v;

    (void)arg, (void)n;
    return hth_machine_make(m, HTH_PICKLE_DICT, &v);
}

/* A tuple of all from stack[from] on, in their place. */
static int tuple_push(struct hth_machine *m, uint32_t from)
{
    struct hth_pickle_value *v;
    uint32_t to = m->p.depth;
    int rc;

    if ((rc = hth_machine_make(m, HTH_PICKLE_TUPLE, &v)) || (rc = children_add(m, v, from, to)))
        return rc;
    m->p.stack[from] = m->p.stack[to];
    m->p.depth = from + 1;
    return HEARTH_OK;
}

static int op_tuple(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    uint32_t from = 0;
    int rc = mark_pop(m, &from);

    (void)arg, (void)n;
    return rc ? rc : tuple_push(m, from);
}

/* TUPLE1 to TUPLE3 are neighbours. */
static int op_tuple_n(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    uint32_t want = m->p.bytes[m->op] - 0x84u;
    int rc = hth_machine_need(m, want);

    (void)arg, (void)n;
    return rc ? rc : tuple_push(m, m->p.depth - want);
}

/* stack[from..) go into the list or dict below them. */
static int container_extend(struct hth_machine *m, uint32_t from, enum hth_pickle_kind kind)
{
    struct hth_pickle_value *over;
    uint32_t to = m->p.depth;
    int rc;

    m->p.depth = from;
    if ((rc = hth_machine_need(m, 1)))
        return rc;
    over = hth_machine_top(m, 0);
    if (over->kind != kind)
        return hth_machine_refuse(
                m, "there is no %s below", kind == HTH_PICKLE_LIST ? "list" : "dict");
    if (over->used)
        return hth_machine_refuse(m, "a container that is in use changes");
    for (uint32_t i = from; kind == HTH_PICKLE_DICT && i < to; i += 2) {
        enum hth_pickle_kind key = m->p.value[m->p.stack[i]].kind;

        if (key == HTH_PICKLE_LIST || key == HTH_PICKLE_DICT || key == HTH_PICKLE_GLOBAL)
            return hth_machine_refuse(m, "a key that is a list, a dict or a global");
    }
    if (kind == HTH_PICKLE_DICT && (to - from) % 2)
        return hth_machine_refuse(m, "a key without a value");
    return children_add(m, over, from, to);
}

static int op_append(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    int rc = hth_machine_need(m, 2);

    (void)arg, (void)n;
    return rc ? rc : container_extend(m, m->p.depth - 1, HTH_PICKLE_LIST);
}

static int op_appends(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    uint32_t from = 0;
    int rc = mark_pop(m, &from);

    (void)arg, (void)n;
    return rc ? rc : container_extend(m, from, HTH_PICKLE_LIST);
}

static int op_setitem(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    int rc = hth_machine_need(m, 3);

    (void)arg, (void)n;
    return rc ? rc : container_extend(m, m->p.depth - 2, HTH_PICKLE_DICT);
}

static int op_setitems(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    uint32_t from = 0;
    int rc = mark_pop(m, &from);

    (void)arg, (void)n;
    return rc ? rc : container_extend(m, from, HTH_PICKLE_DICT);
}

static int op_stop(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    (void)arg, (void)n;
    if (m->marks || m->p.depth != 1)
        return hth_machine_refuse(m, "STOP with %u values and %u open MARKs", m->p.depth, m->marks);
    if (m->pos != m->p.len)
        return hth_machine_refuse(m, "%zu bytes after STOP", m->p.len - m->pos);
    m->stopped = 1;
    m->p.root = m->p.stack[0];
    return hth_machine_use(m, m->p.root, NULL);
}

const struct hth_op hth_pickle_op[256] = {
    ['('] = { .run = op_mark },
    [')'] = { .run = op_empty_tuple },
    ['.'] = { .run = op_stop },
    ['B'] = { .values = 1, .run = op_bytes },
    ['C'] = { .values = 1, .run = op_bytes },
    ['G'] = { .values = 1, .run = op_float },
    ['J'] = { .run = op_int },
    ['K'] = { .run = op_unsigned },
    ['M'] = { .run = op_unsigned },
    ['N'] = { .run = op_none },
    ['Q'] = { .values = 1, .run = hth_op_persistent },
    ['R'] = { .run = hth_op_reduce },
    ['X'] = { .run = op_text },
    [']'] = { .run = op_empty_list },
    ['a'] = { .run = op_append },
    ['b'] = { .run = hth_op_build },
    ['c'] = { .run = hth_op_global },
    ['e'] = { .run = op_appends },
    ['h'] = { .run = hth_op_get },
    ['j'] = { .run = hth_op_get },
    ['q'] = { .run = hth_op_put },
    ['r'] = { .run = hth_op_put },
    ['s'] = { .run = op_setitem },
    ['t'] = { .run = op_tuple },
    ['u'] = { .run = op_setitems },
    ['}'] = { .run = op_empty_dict },
    [0x80] = { .run = op_proto },
    [0x81] = { .run = hth_op_newobj },
    [0x85] = { .run = op_tuple_n },
    [0x86] = { .run = op_tuple_n },
    [0x87] = { .run = op_tuple_n },
    [0x88] = { .run = op_true },
    [0x89] = { .run = op_false },
    [0x8a] = { .run = op_long },
    [0x8c] = { .run = op_text },
    [0x8d] = { .run = op_text },
    [0x8e] = { .values = 1, .run = op_bytes },
    [0x93] = { .run = hth_op_stack_global },
    [0x94] = { .run = hth_op_memoize },
    [0x95] = { .run = op_frame },
    [0x96] = { .values = 1, .run = op_bytes },
};
