/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values: what the pickle machine leaves, with the calls in it understood once, at open. Values
 * are numbered so that a part stands before its whole: one pass in order, and nothing recurses.
 */
#include "core/base/opts.h"
#include "values.h"

#include <stdlib.h>

static int is_container(const struct hth_pickle_value *v)
{
    return v->kind == HTH_PICKLE_TUPLE || v->kind == HTH_PICKLE_LIST || v->kind == HTH_PICKLE_DICT;
}

/* Children of a container, one behind the other. */
static int line_up(struct hearth_values *v, struct hearth_error *err)
{
    size_t at = 0;

    v->child = malloc(v->p.cells * sizeof(v->child[0]));
    v->number = malloc(v->p.cells * sizeof(v->number[0]));
    if (!v->child || !v->number)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %u elements", v->p.cells);
    for (uint32_t i = 1; i < v->p.values; i++) {
        struct hth_pickle_value *of = &v->p.value[i];

        if (!is_container(of))
            continue;
        of->u.integer = (int64_t)at;
        of->built = 0;
        for (uint32_t c = of->head; c; c = v->p.cell[c].next)
            v->child[at++] = v->p.cell[c].value;
    }
    return HEARTH_OK;
}

/* --- bytes that are spelled as text --- */

/* Characters up to U+00FF as one byte each: two bytes of UTF-8 from U+0080 on. */
static int text_narrow(
        struct hearth_values *v, struct hth_pickle_value *text, struct hearth_error *err)
{
    const unsigned char *s = v->p.bytes + text->head;
    unsigned char *out;
    size_t n = 0;

    if (text->built)
        return HEARTH_OK; /* done already: u.integer bytes */
    if (!v->latin && !(v->latin = malloc(v->p.len)))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %zu bytes", v->p.len);
    out = v->latin + text->head;
    for (size_t i = 0; i < text->n; i++) {
        if (s[i] > 0xc3)
            return hth_pickle_refuse(text, err, "bytes spelled with a character over U+00FF");
        out[n++] = s[i] < 0x80 ? s[i] : (unsigned char)(s[i] << 6 | (s[i + 1] & 0x3f));
        i += s[i] >= 0x80;
    }
    text->built = 1;
    text->u.integer = (int64_t)n;
    return HEARTH_OK;
}

static int is_latin1(const struct hth_pickle *p, const struct hth_pickle_value *name)
{
    return hth_pickle_is(p, name, "latin1") || hth_pickle_is(p, name, "latin-1");
}

static int spells_bytes(int id)
{
    return id == HTH_VALUE_ENCODE || id == HTH_VALUE_NO_BYTES || id == HTH_VALUE_BYTEARRAY;
}

/* encode(text, "latin1"), bytearray(text, "latin-1"), bytearray(bytes), bytes(), bytearray(), and
 * bytearray() of such a call:
 * u.integer of the object is the value that holds the bytes; 0: there are none. */
static int bytes_spelled(
        struct hearth_values *v, struct hth_pickle_value *object, struct hearth_error *err)
{
    const struct hth_pickle_value *args = hth_pickle_at(&v->p, object->head);
    struct hth_pickle_value *text;

    object->u.integer = 0;
    if (!args->n)
        return HEARTH_OK;
    text = hth_values_kid(v, args, 0);
    object->u.integer = v->child[args->u.integer];
    if (args->n == 1 && text->kind == HTH_PICKLE_BYTES)
        return HEARTH_OK;
    if (args->n == 1 && spells_bytes(hth_pickle_id(&v->p, text))) {
        object->u.integer = text->u.integer;
        return HEARTH_OK;
    }
    if (args->n != 2 || text->kind != HTH_PICKLE_TEXT ||
            !is_latin1(&v->p, hth_values_kid(v, args, 1)))
        return hth_pickle_refuse(object, err, "bytes that are not spelled in latin1");
    return text_narrow(v, text, err);
}

/* --- open --- */

static int object_understand(
        struct hearth_values *v, struct hth_pickle_value *object, struct hearth_error *err)
{
    int id = hth_pickle_id(&v->p, object);

    if (spells_bytes(id))
        return bytes_spelled(v, object, err);
    if (id != HTH_VALUE_SHAPE)
        return hth_values_tensor(v, object, err);
    object->u.integer = v->child[hth_pickle_at(&v->p, object->head)->u.integer];
    return hth_values_integers(v, &v->p.value[object->u.integer], err);
}

static int values_build(struct hearth_values *v, struct hearth_error *err)
{
    int rc = hth_values_load(v, err);

    if (!rc)
        rc = line_up(v, err);
    for (uint32_t i = 1; !rc && i < v->p.values; i++)
        if (v->p.value[i].kind == HTH_PICKLE_OBJECT)
            rc = object_understand(v, &v->p.value[i], err);
    return rc && v->what ? hth_while(err, rc, "%s", v->what) : rc;
}

int hearth_values_open(
        const void *bytes, size_t len, struct hearth_values **out, struct hearth_error *err)
{
    struct hearth_values *v;
    int rc;

    if (!bytes || !out)
        return hth_fail(err, HEARTH_EINVAL, 0, "bytes or out is NULL");
    if (!(v = calloc(1, sizeof(*v))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for values");
    v->bytes = bytes;
    v->len = len;
    if ((rc = values_build(v, err)))
        hearth_values_close(v);
    else
        *out = v;
    return rc;
}

void hearth_values_close(struct hearth_values *v)
{
    if (!v)
        return;
    hth_zip_close(&v->zip);
    free(v->stored);
    free(v->memory);
    free(v->child);
    free(v->number);
    free(v->tensor);
    free(v->latin);
    free(v);
}

/* --- one value --- */

static int value_refuse(const struct hearth_values *v, const struct hth_pickle_value *p,
        struct hearth_error *err, const char *text)
{
    int rc = hth_pickle_refuse(p, err, "%s", text);

    return v->what ? hth_while(err, rc, "%s", v->what) : rc;
}

static void give_tensor(const struct hth_tensor *t, struct hearth_value *out)
{
    out->kind = HEARTH_VALUE_TENSOR;
    out->dtype = t->dtype;
    out->data = t->data;
    out->len = (size_t)t->len;
    out->ndim = t->ndim;
    out->requires_grad = t->requires_grad;
    out->conj = t->conj;
    out->neg = t->neg;
    out->shape = t->shape;
    out->strides = t->strides;
    out->storage = t->storage;
    out->offset = t->offset;
}

static void give_bytes(
        const struct hearth_values *v, const struct hth_pickle_value *p, struct hearth_value *out)
{
    const struct hth_pickle_value *from = hth_pickle_at(&v->p, (uint32_t)p->u.integer);

    out->kind = HEARTH_VALUE_BYTES;
    out->data = "";
    if (!p->u.integer)
        return;
    out->data = (from->kind == HTH_PICKLE_TEXT ? v->latin : v->p.bytes) + from->head;
    out->len = from->kind == HTH_PICKLE_TEXT ? (size_t)from->u.integer : from->n;
}

static void give_object(
        const struct hearth_values *v, const struct hth_pickle_value *p, struct hearth_value *out)
{
    int id = hth_pickle_id(&v->p, p);

    if (id == HTH_VALUE_SHAPE) {
        out->kind = HEARTH_VALUE_SIZE;
        out->count = hth_pickle_at(&v->p, (uint32_t)p->u.integer)->n;
    } else if (spells_bytes(id)) {
        give_bytes(v, p, out);
    } else {
        give_tensor(&v->tensor[p->u.integer], out);
    }
}

static int value_give(const struct hearth_values *v, uint32_t number, struct hearth_value *theirs,
        struct hearth_error *err)
{
    static const uint32_t kinds[] = {
        [HTH_PICKLE_NONE] = HEARTH_VALUE_NONE,
        [HTH_PICKLE_BOOL] = HEARTH_VALUE_BOOL,
        [HTH_PICKLE_INT] = HEARTH_VALUE_INT,
        [HTH_PICKLE_FLOAT] = HEARTH_VALUE_FLOAT,
        [HTH_PICKLE_TEXT] = HEARTH_VALUE_TEXT,
        [HTH_PICKLE_BYTES] = HEARTH_VALUE_BYTES,
        [HTH_PICKLE_TUPLE] = HEARTH_VALUE_TUPLE,
        [HTH_PICKLE_LIST] = HEARTH_VALUE_LIST,
        [HTH_PICKLE_DICT] = HEARTH_VALUE_DICT,
        [HTH_PICKLE_PERSISTENT] = 0,
    };
    const struct hth_pickle_value *p = hth_pickle_at(&v->p, number);
    struct hearth_value out = { .kind = kinds[p->kind], .handle = number };

    switch (p->kind) {
    case HTH_PICKLE_BOOL:
    case HTH_PICKLE_INT:
        out.integer = p->u.integer;
        break;
    case HTH_PICKLE_FLOAT:
        out.real = p->u.real;
        break;
    case HTH_PICKLE_TEXT:
    case HTH_PICKLE_BYTES:
        out.data = v->p.bytes + p->head;
        out.len = p->n;
        break;
    case HTH_PICKLE_DICT:
        out.count = p->n / 2;
        break;
    case HTH_PICKLE_TUPLE:
    case HTH_PICKLE_LIST:
        out.count = p->n;
        break;
    case HTH_PICKLE_GLOBAL:
        out.integer = hth_pickle_id(&v->p, p);
        if (out.integer >= HTH_VALUE_STORAGE)
            return value_refuse(v, p, err, "a class or a function is no value");
        out.kind = HEARTH_VALUE_DTYPE;
        break;
    case HTH_PICKLE_OBJECT:
        give_object(v, p, &out);
        break;
    case HTH_PICKLE_PERSISTENT:
        return value_refuse(v, p, err, "a storage without a tensor");
    }
    return hth_give(theirs, &out, sizeof(out), err);
}

int hearth_value_root(
        const struct hearth_values *v, struct hearth_value *out, struct hearth_error *err)
{
    if (!v)
        return hth_fail(err, HEARTH_EINVAL, 0, "the values are NULL");
    return value_give(v, v->p.root, out, err);
}

int hearth_value_child(struct hearth_values *v, const struct hearth_value *of, size_t index,
        struct hearth_value *out, struct hearth_error *err)
{
    const struct hth_pickle_value *p;

    if (!v || !of || of->struct_size < offsetof(struct hearth_value, handle) + sizeof(of->handle) ||
            !of->handle || of->handle >= v->p.values)
        return hth_fail(err, HEARTH_EINVAL, 0, "the values are NULL, or `of` is none of them");
    p = hth_pickle_at(&v->p, (uint32_t)of->handle);
    if (hth_pickle_id(&v->p, p) == HTH_VALUE_SHAPE && p->kind == HTH_PICKLE_OBJECT)
        p = hth_pickle_at(&v->p, (uint32_t)p->u.integer);
    if (!is_container(p))
        return hth_fail(err, HEARTH_EINVAL, 0, "a value of kind %u has no children", of->kind);
    if (index >= p->n)
        return hth_fail(err, HEARTH_ENOENT, 0, "child %zu of %u", index, p->n);
    return value_give(v, v->child[(size_t)p->u.integer + index], out, err);
}
