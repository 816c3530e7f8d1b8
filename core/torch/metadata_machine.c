/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass 2 over a `.metadata`: the stack machine. Pass 1 has seen that every opcode is whole and
 * every memo number set, so that nothing here looks for the end of the bytes.
 */
#include "metadata_parts.h"

#include "core/base/utf8.h"

#include <limits.h>
#include <stdlib.h>

/* ---- Opcodes ------------------------------------------------------------------------------ */

static int stack_need(struct md_machine *m, const struct md_slot *sp, ptrdiff_t n)
{
    if (sp - m->floor >= n)
        return 1;
    md_refuse(m, "needs %td values, there are %td", n, sp - m->floor);
    return 0;
}

static inline struct md_slot *push_int(
        struct md_machine *m, struct md_slot *sp, enum md_kind kind, int64_t i)
{
    *sp = (struct md_slot){
        .kind = (uint8_t)kind, .small = 1, .at = (uint32_t)(m->op - m->md->bytes), .i = i
    };
    return sp + 1;
}

static inline struct md_slot *push_kind(struct md_machine *m, struct md_slot *sp, enum md_kind kind)
{
    push_int(m, sp, kind, 0);
    sp->small = 0;
    return sp + 1;
}

static struct md_slot *push_long(struct md_machine *m, struct md_slot *sp)
{
    int64_t i = 0;
    const char *wrong = hth_pickle_long(m->op + 2, m->op[1], &i);

    return wrong ? push_kind(m, sp, MD_OPAQUE) : push_int(m, sp, MD_INT, i);
}

/* Every component is a name: nothing that leaves the directory. */
static int is_path(const char *at, size_t len)
{
    const char *end = at + len, *slash;
    size_t n;

    if (len > PATH_MAX - 1 || memchr(at, 0, len))
        return 0;
    for (;; at = slash + 1) {
        slash = memchr(at, '/', (size_t)(end - at));
        n = (size_t)((slash ? slash : end) - at);
        if (n == 0 || (n <= 2 && !memcmp(at, "..", n)))
            return 0;
        if (!slash)
            return 1;
    }
}

static struct md_slot *push_text(
        struct md_machine *m, struct md_slot *sp, const unsigned char *text, size_t len)
{
    if (!hth_utf8(text, len))
        return md_refuse(m, "a text that is not UTF-8");
    *sp = (struct md_slot){ .kind = MD_TEXT,
        .small = (uint8_t)md_attr_of(text, len),
        .at = (uint32_t)(m->op - m->md->bytes),
        .n = is_path((const char *)text, len),
        .x = (uint32_t)len,
        .y = md_hash(m->md, text, len) };
    return sp + 1;
}

static struct md_slot *push_cell(struct md_machine *m, struct md_slot *sp, enum md_kind kind)
{
    uint32_t cell = md_cell_new(m);

    if (cell == UINT32_MAX)
        return NULL;
    push_kind(m, sp, kind);
    sp->x = cell;
    return sp + 1;
}

/* Fields of TensorProperties; later torches add more, of any kind. */
#define FIELDS 5

/* An element that a tuple keeps. Lists, dicts, objects, and tuples but for those of integers,
 * become MD_OPAQUE in it. */
static int tuple_stays(const struct md_slot *e)
{
    return e->kind <= MD_PROPERTIES || e->kind == MD_GLOBAL || e->kind == MD_UNKNOWN;
}

/* Elements of a tuple, stack[0..n): which kind of tuple it is. */
static enum md_kind tuple_kind(const struct md_slot *e, size_t n)
{
    size_t ints = 0;

    for (size_t i = 0; i < n; i++) {
        if (!tuple_stays(&e[i]) && n <= FIELDS)
            return MD_OPAQUE;
        ints += e[i].kind == MD_INT && e[i].small;
    }
    if (ints == n && n <= HTH_DIMS_MAX)
        return MD_INTS;
    return n == 1 && e->kind == MD_INTS ? MD_ARGS : MD_TUPLE;
}

static struct md_slot *tuple_to_heap(struct md_machine *m, struct md_slot *e, size_t n)
{
    struct hearth_metadata *md = m->md;
    uint32_t first;
    uint8_t refers = 0; /* to a class: it is arguments, and no value */
    uint16_t of = MD_OF_STEPS | MD_OF_TEXTS, others = 0;
    struct md_slot unknown = { 0 };

    for (size_t i = n; i-- > 0;) {
        if (tuple_stays(&e[i]))
            continue;
        if (md_place(m, &e[i]))
            return NULL;
        md_drop(m, &e[i]);
        push_kind(m, &e[i], MD_OPAQUE);
        others = MD_OF_OTHERS;
    }
    first = md->heap.count;
    for (size_t i = 0; i < n; i++) {
        if (!MD_ROOM(m, md->heap))
            return NULL;
        md->heap.at[md->heap.count++] = e[i];
        refers |= e[i].kind == MD_GLOBAL;
        if (e[i].kind == MD_UNKNOWN && !unknown.kind)
            unknown = e[i];
        if (e[i].kind != MD_TEXT)
            of &= e[i].kind == MD_INT && e[i].small ? MD_OF_STEPS : 0;
    }
    if (unknown.kind) { /* found again behind them: the tuple may be fetched as often as it is long */
        if (!MD_ROOM(m, md->heap))
            return NULL;
        md->heap.at[md->heap.count++] = unknown;
        others |= MD_OF_UNKNOWN;
    }
    push_kind(m, e, MD_TUPLE);
    e->small = refers;
    e->n = of | others;
    e->x = first;
    e->y = (uint32_t)n;
    return e + 1;
}

/* Python's hash of an integer is its rest by 2^61 - 1, and -1 counts as -2: numbers from there on
 * can be chosen to be of one hash. Alone there are few of them; of tuples any number, and
 * then each key of a dict is compared with all others. */
static int int_hashes(int64_t i)
{
    return i >= 0 && i < (INT64_C(1) << 61) - 1;
}

/* A tuple of the n values at e, in their place. */
static struct md_slot *tuple_make(struct md_machine *m, struct md_slot *e, size_t n)
{
    enum md_kind kind = tuple_kind(e, n);
    uint8_t small = 0;

    if (kind == MD_TUPLE)
        return tuple_to_heap(m, e, n);
    if (kind == MD_INTS) {
        for (size_t i = 0; i < n; i++)
            small |= (e[i].i < 0 ? MD_NEGATIVE : 0) | (int_hashes(e[i].i) ? 0 : MD_HASHLESS);
        if (n == 0)
            e->at = (uint32_t)(m->op - m->md->bytes);
        e->kind = MD_INTS;
        e->small = small;
        e->n = (uint16_t)n;
        return e + 1;
    }
    if (kind == MD_ARGS) {
        e->kind = MD_ARGS;
        return e + 1;
    }
    for (size_t i = n; i-- > 0;) {
        if (md_place(m, &e[i]))
            return NULL;
        md_drop(m, &e[i]);
    }
    return push_kind(m, e, MD_OPAQUE);
}

static struct md_slot *md_op_mark(struct md_machine *m, struct md_slot *sp)
{
    if (m->marks >= HTH_PICKLE_MARKS)
        return md_refuse(m, "more than %d open MARKs", HTH_PICKLE_MARKS);
    m->mark[m->marks++] = m->floor;
    m->floor = sp;
    return sp;
}

/* Close the last mark: what lies above it begins at the result. */
static struct md_slot *mark_close(struct md_machine *m)
{
    struct md_slot *from = m->floor;

    if (!m->marks)
        return md_refuse(m, "no MARK is open");
    m->floor = m->mark[--m->marks];
    return from;
}

static struct md_slot *md_op_tuple(struct md_machine *m, struct md_slot *sp)
{
    struct md_slot *from = mark_close(m);

    return from ? tuple_make(m, from, (size_t)(sp - from)) : NULL;
}

/* TUPLE1 to TUPLE3 are neighbours. */
static struct md_slot *md_op_tuple_n(struct md_machine *m, struct md_slot *sp)
{
    ptrdiff_t n = *m->op - 0x84;

    return stack_need(m, sp, n) ? tuple_make(m, sp - n, (size_t)n) : NULL;
}

/* An object of an unknown class takes any value; none is kept. */
static int takes_all(const struct md_slot *s)
{
    return s->kind == MD_UNKNOWN && s->small;
}

/* Drop values[0..n). */
static struct md_slot *values_drop(
        struct md_machine *m, struct md_slot *values, const struct md_slot *sp)
{
    for (const struct md_slot *v = sp; v-- > values;) {
        if (md_place(m, v))
            return NULL;
        md_drop(m, v);
    }
    return values;
}

/* values[0..n) go into the list below them. */
static struct md_slot *list_append(struct md_machine *m, struct md_slot *values, struct md_slot *sp)
{
    struct md_cell *list;

    if (!stack_need(m, values, 1))
        return NULL;
    if (takes_all(values - 1))
        return values_drop(m, values, sp);
    if (values[-1].kind != MD_LIST || m->cell.at[values[-1].x].closed)
        return md_refuse(m, "there is no list below that may change");
    list = &m->cell.at[values[-1].x];
    for (struct md_slot *v = values; v < sp; v++)
        if (md_place(m, v) || (list->closed && (md_refuse(m, "a list in itself"), 1)) ||
                md_element(m, list, v))
            return NULL;
    return values;
}

static int state_is_for(const struct md_machine *m, const struct md_slot *below)
{
    return below >= m->floor && below->kind > MD_DICT && !m->cell.at[below->x].closed;
}

static int part_hashes(const struct md_slot *s)
{
    switch (s->kind) {
    case MD_INT:
        return int_hashes(s->i);
    case MD_INTS:
    case MD_ARGS:
    case MD_SIZE:
        return !s->small;
    default:
        return s->kind != MD_FLOAT;
    }
}

/* Python hashes a key each time it is used, and a tuple element by element: for tuples that
 * share tuples that takes exponential time, so a tuple of tuples is a key only where those hold
 * integers. */
static int is_key(const struct md_machine *m, const struct md_slot *s)
{
    const struct md_slot *part = s;
    uint32_t parts = 0;

    if (s->kind == MD_OPAQUE || s->kind == MD_LIST || s->kind == MD_DICT)
        return 0;
    if (s->kind == MD_TUPLE && (s->y > HTH_DIMS_MAX || s->n & MD_OF_OTHERS))
        return 0;
    if (s->kind == MD_TUPLE) {
        part = &m->md->heap.at[s->x];
        parts = s->y;
    } else if (s->kind == MD_INTS || s->kind == MD_ARGS || s->kind == MD_SIZE) {
        parts = 1;
    } else if (s->kind == MD_INDEX && m->cell.at[s->x].closed) {
        part = &m->cell.at[s->x].attr[MD_I_OFFSET];
        parts = part->kind == MD_SIZE;
    }
    for (; parts; parts--, part++)
        if (!part_hashes(part))
            return 0;
    return 1;
}

#define NO_KEY \
    "a key that is a list, a dict or a tuple of many, of tuples or of numbers out of range"

/* values[0..n) go into the dict below them: attributes, where the object they are of is below
 * it. */
static struct md_slot *set_items(struct md_machine *m, struct md_slot *values, struct md_slot *sp)
{
    struct md_slot *below = values - 1;
    struct md_cell *dict;

    if (!stack_need(m, values, 1))
        return NULL;
    if ((sp - values) % 2)
        return md_refuse(m, "a key without a value");
    if (takes_all(below))
        return values_drop(m, values, sp);
    if (below->kind != MD_DICT || m->cell.at[below->x].closed)
        return md_refuse(m, "there is no dict below that may change");
    dict = &m->cell.at[below->x];
    if (state_is_for(m, below - 1) && sp > values) {
        if (dict->holds != MD_EMPTY && (dict->holds != MD_STATE || dict->first != below[-1].x))
            return md_refuse(m, "a dict that is no object's state");
        dict->holds = MD_STATE;
        dict->first = below[-1].x;
        return md_attributes(m, below - 1, values, (size_t)(sp - values) / 2) ? NULL : values;
    }
    for (struct md_slot *v = values; v < sp; v += 2)
        if ((!is_key(m, v) && (md_refuse(m, NO_KEY), 1)) || md_place(m, v) || md_place(m, v + 1) ||
                (dict->closed && (md_refuse(m, "a dict in itself"), 1)) ||
                md_pair(m, dict, v, v + 1))
            return NULL;
    return values;
}

static struct md_slot *md_op_append(struct md_machine *m, struct md_slot *sp)
{
    return stack_need(m, sp, 2) ? list_append(m, sp - 1, sp) : NULL;
}

static struct md_slot *md_op_appends(struct md_machine *m, struct md_slot *sp)
{
    struct md_slot *from = mark_close(m);

    return from ? list_append(m, from, sp) : NULL;
}

static struct md_slot *md_op_setitem(struct md_machine *m, struct md_slot *sp)
{
    return stack_need(m, sp, 3) ? set_items(m, sp - 2, sp) : NULL;
}

static struct md_slot *md_op_setitems(struct md_machine *m, struct md_slot *sp)
{
    struct md_slot *from = mark_close(m);

    return from ? set_items(m, from, sp) : NULL;
}

/* The values above the last MARK are a frozenset, or go into the set below. A set may
 * stand only in attributes that are ignored. */
static struct md_slot *md_op_set_items(struct md_machine *m, struct md_slot *sp)
{
    struct md_slot *from = mark_close(m);
    int frozen = *m->op == 0x91;

    if (!from)
        return NULL;
    if (!frozen && !(from > m->floor && from[-1].kind == MD_OPAQUE && from[-1].small))
        return md_refuse(m, "there is no set below");
    for (const struct md_slot *v = from; v < sp; v++)
        if (!is_key(m, v))
            return md_refuse(m, NO_KEY);
    if (!values_drop(m, from, sp))
        return NULL;
    return frozen ? push_kind(m, from, MD_OPAQUE) : from;
}

static struct md_slot *md_op_empty_set(struct md_machine *m, struct md_slot *sp)
{
    return push_int(m, sp, MD_OPAQUE, 0);
}

/* ---- Memo --------------------------------------------------------------------------------- */

/* Memo number m->memos is fetched later: keep the value on top. */
static struct md_slot *memo_keep(struct md_machine *m, struct md_slot *sp)
{
    struct md_slot *s = &m->kept[m->keeps++];

    *s = sp[-1];
    if (s->kind == MD_INT)
        s->small = 0; /* its opcode is not where it is fetched */
    else if (s->kind == MD_TUPLE || s->kind == MD_PATH)
        m->heap_floor = m->md->heap.count;
    else if (s->kind > MD_GLOBAL)
        m->cell.at[s->x].pinned = 1;
    return sp;
}

static inline struct md_slot *memo_add(struct md_machine *m, struct md_slot *sp)
{
    uint64_t number = m->memos++;

    if (sp == m->floor)
        return md_refuse(m, "MEMOIZE of nothing");
    return m->memo[number / 64].fetched >> number % 64 & 1 ? memo_keep(m, sp) : sp;
}

static inline struct md_slot *memo_fetch(struct md_machine *m, struct md_slot *sp, uint32_t number)
{
    *sp = m->kept[md_memo_rank(m->memo, number)];
    return sp + 1;
}

/* Nearly all that is fetched has one of the first numbers: the classes and their attributes. */
static inline struct md_slot *memo_fetch_low(
        struct md_machine *m, struct md_slot *sp, uint8_t number)
{
    *sp = m->kept[m->low[number]];
    return sp + 1;
}

/* ---- The loop ----------------------------------------------------------------------------- */

/* Opcodes without an argument. */
typedef struct md_slot *op_fn(struct md_machine *m, struct md_slot *sp);

static struct md_slot *md_op_none(struct md_machine *m, struct md_slot *sp)
{
    return push_kind(m, sp, MD_NONE);
}

static struct md_slot *md_op_true(struct md_machine *m, struct md_slot *sp)
{
    return push_int(m, sp, MD_BOOL, 1);
}

static struct md_slot *md_op_false(struct md_machine *m, struct md_slot *sp)
{
    return push_int(m, sp, MD_BOOL, 0);
}

static struct md_slot *md_op_empty_tuple(struct md_machine *m, struct md_slot *sp)
{
    return tuple_make(m, sp, 0);
}

static struct md_slot *md_op_empty_list(struct md_machine *m, struct md_slot *sp)
{
    return push_cell(m, sp, MD_LIST);
}

static struct md_slot *md_op_empty_dict(struct md_machine *m, struct md_slot *sp)
{
    return push_cell(m, sp, MD_DICT);
}

static op_fn *const plain[256] = {
    ['('] = md_op_mark,
    [')'] = md_op_empty_tuple,
    ['N'] = md_op_none,
    ['R'] = md_reduce,
    [']'] = md_op_empty_list,
    ['a'] = md_op_append,
    ['b'] = md_build,
    ['e'] = md_op_appends,
    ['s'] = md_op_setitem,
    ['t'] = md_op_tuple,
    ['u'] = md_op_setitems,
    ['}'] = md_op_empty_dict,
    [0x81] = md_newobj,
    [0x85] = md_op_tuple_n,
    [0x86] = md_op_tuple_n,
    [0x87] = md_op_tuple_n,
    [0x88] = md_op_true,
    [0x89] = md_op_false,
    [0x8f] = md_op_empty_set,
    [0x90] = md_op_set_items,
    [0x91] = md_op_set_items,
    [0x92] = md_newobj_ex,
    [0x93] = md_stack_global,
};

/* Opcodes with one that are not frequent. Their length: *n. */
static struct md_slot *opcode_seldom(
        struct md_machine *m, struct md_slot *sp, const unsigned char *p, size_t *n)
{
    switch (*p) {
    case 'J':
        *n = 5;
        return push_int(m, sp, MD_INT, (int32_t)hth_get32(p + 1));
    case 'j':
        *n = 5;
        return memo_fetch(m, sp, hth_get32(p + 1));
    case 'X':
        *n = 5 + (size_t)hth_get32(p + 1);
        return push_text(m, sp, p + 5, *n - 5);
    case 0x8d:
        *n = 9 + (size_t)hth_get64(p + 1);
        return push_text(m, sp, p + 9, *n - 9);
    case 0x8a:
        *n = 2 + (size_t)p[1];
        return push_long(m, sp);
    case 'B':
    case 'C':
    case 0x8e:
    case 0x96:
        *n = *p == 'C'   ? 2 + (size_t)p[1]
             : *p == 'B' ? 5 + (size_t)hth_get32(p + 1)
                         : 9 + (size_t)hth_get64(p + 1);
        return push_kind(m, sp, MD_OPAQUE);
    case 'G':
        *n = 9;
        return push_kind(m, sp, MD_FLOAT);
    case 0x95:
        *n = 9;
        return sp;
    default: /* pass 1 would have refused it */
        return md_refuse(m, "opcode %02x is not allowed", *p);
    }
}

/* A byte pushes one value at most. */
static size_t stack_slots(const struct hearth_metadata *md)
{
    return md->len < MD_STACK ? md->len + 1 : MD_STACK;
}

/* Up to STOP: the stack then, or NULL. */
static struct md_slot *machine_run(struct md_machine *m)
{
    const unsigned char *p = m->md->bytes + 2;
    struct md_slot *sp = m->stack;
    size_t n, room = (stack_slots(m->md) - 1) * sizeof(*sp);

    for (;; p += n) {
        m->op = p;
        n = 1;
        switch (*p) {
        case 0x94:
            sp = memo_add(m, sp);
            break;
        case 'h':
            sp = memo_fetch_low(m, sp, p[1]);
            n = 2;
            break;
        case 'K':
            sp = push_int(m, sp, MD_INT, p[1]);
            n = 2;
            break;
        case 'M':
            sp = push_int(m, sp, MD_INT, hth_get16(p + 1));
            n = 3;
            break;
        case 0x8c:
            n = 2 + (size_t)p[1];
            sp = push_text(m, sp, p + 2, n - 2);
            break;
        case '.':
            return sp;
        default:
            sp = plain[*p] ? plain[*p](m, sp) : opcode_seldom(m, sp, p, &n);
            break;
        }
        /* NULL is far below the stack: one comparison for both. */
        if ((uintptr_t)sp - (uintptr_t)m->stack >= room)
            return sp ? md_refuse(m, "more than %d values on the stack", MD_STACK - 1) : NULL;
    }
}

static int no_metadata(struct md_machine *m)
{
    struct hearth_text module, name;
    char say[2][HTH_KEY_TEXT];
    struct md_what what;

    if (!md_unknown(m, m->stack, &what)) {
        md_refuse(m, "what the pickle holds is no Metadata");
        return m->rc;
    }
    module = md_text(m->md, what.module);
    name = md_text(m->md, what.name);
    md_refuse(m, "what the pickle holds is no Metadata, but %s of %s",
            hth_key_text(name.data, name.len, say[0]),
            hth_key_text(module.data, module.len, say[1]));
    return m->rc;
}

/* The root, a Metadata, says which of the records are its own. */
static int machine_finish(struct md_machine *m, const struct md_slot *sp)
{
    if (!sp)
        return m->rc;
    if (m->marks || sp - m->stack != 1) {
        md_refuse(m, "STOP with %td values and %u open MARKs", sp - m->stack, m->marks);
        return m->rc;
    }
    if (m->stack->kind != MD_METADATA)
        return no_metadata(m);
    return md_place(m, m->stack) ? m->rc : md_root(m, &m->cell.at[m->stack->x]);
}

int md_run(struct hearth_metadata *md, const struct md_memo *memo, uint64_t kept,
        struct hearth_error *err)
{
    struct md_machine m = { .md = md, .memo = memo, .err = err };

    m.stack = malloc(stack_slots(md) * sizeof(*m.stack));
    m.kept = malloc((kept + 1) * sizeof(*m.kept));
    m.floor = m.stack;
    for (uint32_t i = 0; i < 256 && i / 64 <= md->len / 64; i++)
        m.low[i] = md_memo_rank(memo, i);
    if (!m.stack || !m.kept)
        m.rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %" PRIu64 " values", kept);
    else
        m.rc = machine_finish(&m, machine_run(&m));
    free(m.stack);
    free(m.kept);
    free(m.cell.at);
    return m.rc;
}
