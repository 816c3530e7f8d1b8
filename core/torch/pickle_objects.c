/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opcodes that refer: to what was before (memo), to names (globals), and those that make
 * objects of them. A global is, and may do, only what its row of the caller's table allows.
 */
#include "core/base/bytes.h"
#include "pickle_ops.h"

/* --- memo --- */

static int memo_put(struct hth_machine *m, uint32_t index)
{
    int rc = hth_machine_need(m, 1);

    if (rc)
        return rc;
    if (index >= m->p.cap)
        return hth_machine_refuse(m, "memo number %u, there are only %u", index, m->p.cap);
    m->p.memos += m->p.memo[index] == 0;
    m->p.memo[index] = m->p.stack[m->p.depth - 1];
    return HEARTH_OK;
}

int hth_op_memoize(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    (void)arg, (void)n;
    return memo_put(m, m->p.memos);
}

int hth_op_put(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    return memo_put(m, n == 1 ? arg[0] : hth_get32(arg));
}

int hth_op_get(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    uint32_t index = n == 1 ? arg[0] : hth_get32(arg);

    if (index >= m->p.cap || !m->p.memo[index])
        return hth_machine_refuse(m, "memo number %u is not set", index);
    return hth_machine_push(m, m->p.memo[index]);
}

/* --- globals and objects --- */

static int name_is(const char *want, const unsigned char *text, size_t n)
{
    return strlen(want) == n && memcmp(want, text, n) == 0;
}

static int global_push(struct hth_machine *m, const unsigned char *module, size_t module_len,
        const unsigned char *name, size_t name_len)
{
    char say[2][HTH_KEY_TEXT];
    struct hth_pickle_value *v;
    int rc;

    for (uint32_t row = 0; row < m->p.globals; row++) {
        if (!name_is(m->p.global[row].name, name, name_len) ||
                !name_is(m->p.global[row].module, module, module_len))
            continue;
        if (!(rc = hth_machine_make(m, HTH_PICKLE_GLOBAL, &v)))
            v->n = row;
        return rc;
    }
    return hth_machine_refuse(m, "the global %s of %s is not allowed here",
            hth_key_text(name, name_len, say[0]), hth_key_text(module, module_len, say[1]));
}

/* GLOBAL: "module\nname\n" in the pickle. */
int hth_op_global(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    const unsigned char *end = memchr(arg, '\n', n);
    size_t module_len = (size_t)(end - arg);

    return global_push(m, arg, module_len, end + 1, n - module_len - 2);
}

int hth_op_stack_global(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    const struct hth_pickle_value *module, *name;
    int rc = hth_machine_need(m, 2);

    (void)arg, (void)n;
    if (rc)
        return rc;
    module = hth_machine_top(m, 1);
    name = hth_machine_top(m, 0);
    if (module->kind != HTH_PICKLE_TEXT || name->kind != HTH_PICKLE_TEXT)
        return hth_machine_refuse(m, "a global's name is not a text");
    m->p.depth -= 2;
    return global_push(m, m->p.bytes + module->head, module->n, m->p.bytes + name->head, name->n);
}

static int letter_fits(char letter, enum hth_pickle_kind kind)
{
    static const char letters[] = {
        [HTH_PICKLE_BOOL] = 'b',
        [HTH_PICKLE_INT] = 'i',
        [HTH_PICKLE_TEXT] = 's',
        [HTH_PICKLE_TUPLE] = 't',
        [HTH_PICKLE_LIST] = 'l',
        [HTH_PICKLE_DICT] = 'd',
        [HTH_PICKLE_GLOBAL] = 'g',
        [HTH_PICKLE_OBJECT] = 'o',
        [HTH_PICKLE_PERSISTENT] = 'p',
    };

    return letter == 'x' || ((size_t)kind < sizeof(letters) && letters[kind] == letter);
}

int hth_pickle_fits(
        const struct hth_pickle *p, const struct hth_pickle_value *args, const char *want)
{
    int optional = 0;

    if (args->kind != HTH_PICKLE_TUPLE)
        return 0;
    for (uint32_t c = args->head; c; c = p->cell[c].next) {
        if (*want == '?') {
            optional = 1;
            want++;
        }
        if (!*want || !letter_fits(*want, hth_pickle_child(p, c)->kind))
            return 0;
        want += want[1] != '*';
    }
    return optional || !*want || *want == '?' || want[1] == '*';
}

/* callable, arguments -> object, where the arguments are as `want` says. */
static int object_push(
        struct hth_machine *m, const struct hth_pickle_value *callable, const char *want)
{
    uint32_t args = m->p.stack[m->p.depth - 1];
    struct hth_pickle_value *v;
    int rc;

    if (!hth_pickle_fits(&m->p, &m->p.value[args], want))
        return hth_machine_refuse(
                m, "%s does not take these arguments", m->p.global[callable->n].name);
    m->p.depth -= 2;
    if ((rc = hth_machine_make(m, HTH_PICKLE_OBJECT, &v)))
        return rc;
    v->n = callable->n;
    v->head = args;
    return hth_machine_use(m, args, v);
}

/* callable, arguments -> dict that takes attributes. */
static int dict_push(struct hth_machine *m, const struct hth_pickle_value *callable)
{
    struct hth_pickle_value *v;
    int rc;

    if (!hth_pickle_fits(&m->p, hth_machine_top(m, 0), m->p.global[callable->n].args))
        return hth_machine_refuse(
                m, "%s does not take these arguments", m->p.global[callable->n].name);
    m->p.depth -= 2;
    if (!(rc = hth_machine_make(m, HTH_PICKLE_DICT, &v)))
        v->built = HTH_PICKLE_OPEN;
    return rc;
}

int hth_op_newobj(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    const struct hth_pickle_value *class;
    int rc = hth_machine_need(m, 2);

    (void)arg, (void)n;
    if (rc)
        return rc;
    class = hth_machine_top(m, 1);
    if (class->kind != HTH_PICKLE_GLOBAL || !(m->p.global[class->n].may & HTH_PICKLE_AS_NEW))
        return hth_machine_refuse(m, "a new object of what is no class");
    return object_push(m, class, "");
}

int hth_op_reduce(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    const struct hth_pickle_value *callable;
    int rc = hth_machine_need(m, 2);

    (void)arg, (void)n;
    if (rc)
        return rc;
    callable = hth_machine_top(m, 1);
    if (callable->kind != HTH_PICKLE_GLOBAL || !m->p.global[callable->n].args)
        return hth_machine_refuse(m, "a call of what cannot be called");
    if (m->p.global[callable->n].may & HTH_PICKLE_AS_DICT)
        return dict_push(m, callable);
    return object_push(m, callable, m->p.global[callable->n].args);
}

/* A tuple -> what it names; whether it names anything is for the caller to find out. */
int hth_op_persistent(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    struct hth_pickle_value *v;
    uint32_t id;
    int rc = hth_machine_need(m, 1);

    (void)arg, (void)n;
    if (rc)
        return rc;
    if (hth_machine_top(m, 0)->kind != HTH_PICKLE_TUPLE)
        return hth_machine_refuse(m, "a persistent id that is no tuple");
    id = m->p.stack[--m->p.depth];
    if ((rc = hth_machine_make(m, HTH_PICKLE_PERSISTENT, &v)))
        return rc;
    v->head = id;
    return hth_machine_use(m, id, v);
}

/* Attributes are texts, and none is of Python's own (`__class__`). A dict is looked at once,
 * however many objects have it as their state: from then on it does not change. */
static int attributes_check(struct hth_machine *m, struct hth_pickle_value *dict)
{
    if (dict->built == HTH_PICKLE_NAMED)
        return HEARTH_OK;
    for (uint32_t c = dict->head; c; c = m->p.cell[m->p.cell[c].next].next) {
        const struct hth_pickle_value *key = hth_pickle_child(&m->p, c);

        if (key->kind != HTH_PICKLE_TEXT)
            return hth_machine_refuse(m, "an attribute's name is not a text");
        if (key->n >= 2 && memcmp(m->p.bytes + key->head, "__", 2) == 0)
            return hth_machine_refuse(m, "an attribute whose name begins with __");
    }
    dict->built = HTH_PICKLE_NAMED;
    return HEARTH_OK;
}

static int attributes_drop(
        struct hth_machine *m, struct hth_pickle_value *dict, struct hth_pickle_value *state)
{
    int rc;

    if (state == dict || state->kind != HTH_PICKLE_DICT)
        return hth_machine_refuse(m, "the state of a dict is no dict");
    if ((rc = attributes_check(m, state)))
        return rc;
    m->p.depth--;
    dict->built = 0;
    return hth_machine_use(m, m->p.stack[m->p.depth], NULL);
}

int hth_op_build(struct hth_machine *m, const unsigned char *arg, size_t n)
{
    struct hth_pickle_value *v, *state;
    unsigned may;
    int rc = hth_machine_need(m, 2);

    (void)arg, (void)n;
    if (rc)
        return rc;
    v = hth_machine_top(m, 1);
    state = hth_machine_top(m, 0);
    if (v->kind == HTH_PICKLE_DICT && v->built == HTH_PICKLE_OPEN && !v->used)
        return attributes_drop(m, v, state);
    if (v->kind != HTH_PICKLE_OBJECT || v->built || v->used)
        return hth_machine_refuse(m, "BUILD of what is no new object");
    may = m->p.global[v->n].may;
    if (!(state->kind == HTH_PICKLE_DICT && may & HTH_PICKLE_STATE_DICT) &&
            !(state->kind == HTH_PICKLE_TUPLE && may & HTH_PICKLE_STATE_TUPLE))
        return hth_machine_refuse(m, "%s does not take this state", m->p.global[v->n].name);
    if (state->kind == HTH_PICKLE_DICT && (rc = attributes_check(m, state)))
        return rc;
    m->p.depth--;
    v->u.state = m->p.stack[m->p.depth];
    v->built = 1;
    return hth_machine_use(m, v->u.state, v);
}
