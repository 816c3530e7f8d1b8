/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three forms of an item, and where pickle and storages lie in each:
 *
 *      zip      <top>/data.pkl, <top>/data/<key>, <top>/byteorder, <top>/version
 *      older    pickle of a magic number | of 1001 | of sys_info | the object | list of keys |
 *               for each key: u64 elements, and their bytes
 *      bare     one pickle
 */
#include "core/base/bytes.h"
#include "values.h"

#include <stdlib.h>

#define KEY_MAX 64 /* bytes of a storage's key: torch counts them from 0 */

/* --- one pickle --- */

/* bytes[len] -> *out, with memory of its own. */
static int pickle_load(struct hth_pickle *out, void **out_memory, const unsigned char *bytes,
        size_t len, uint32_t values, struct hearth_error *err)
{
    size_t room = hth_pickle_memory(values);
    void *memory = malloc(room);
    int rc;

    if (!memory)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a pickle of %u opcodes", values);
    rc = hth_pickle_load_values(
            out, hth_value_globals, hth_value_globals_count, bytes, len, memory, room, err);
    if (rc)
        free(memory);
    else
        *out_memory = memory;
    return rc;
}

/* The item's own pickle is bytes[len]. */
static int load_object(struct hearth_values *v, const unsigned char *bytes, size_t len,
        uint32_t values, struct hearth_error *err)
{
    return pickle_load(&v->p, &v->memory, bytes, len, values, err);
}

/* --- zip --- */

static const struct hth_zip_member *zip_member(
        const struct hearth_values *v, const char *name, const void *key, size_t key_len)
{
    unsigned char path[sizeof(v->top) + 32 + KEY_MAX];
    struct hth_writer w = { .at = path, .cap = sizeof(path) };

    if (key_len > KEY_MAX)
        return NULL;
    hth_write(&w, v->top, v->top_len);
    hth_write(&w, name, strlen(name));
    hth_write(&w, key, key_len);
    return hth_zip_find(&v->zip, path, w.len);
}

static int member_is(
        const struct hearth_values *v, const struct hth_zip_member *m, const char *text)
{
    return m->len == strlen(text) && memcmp(v->bytes + m->at, text, m->len) == 0;
}

/* All members lie in one folder, whatever its name. */
static int zip_top(struct hearth_values *v, struct hearth_error *err)
{
    const struct hth_zip_member *first = v->zip.member;
    const char *slash = v->zip.count ? memchr(first->name, '/', first->name_len) : NULL;

    v->top_len = slash ? (size_t)(slash - first->name) + 1 : 0;
    if (!slash || v->top_len > sizeof(v->top))
        return hth_fail(err, HEARTH_ECORRUPT, 0, "this zip is none of torch.save: no folder");
    memcpy(v->top, first->name, v->top_len);
    for (size_t i = 0; i < v->zip.count; i++)
        if (v->zip.member[i].name_len < v->top_len ||
                memcmp(v->zip.member[i].name, v->top, v->top_len) != 0)
            return hth_fail(err, HEARTH_ECORRUPT, 0,
                    "byte %" PRIu64 ": a member outside of the zip's folder",
                    v->zip.member[i].head);
    return HEARTH_OK;
}

static int form_zip(struct hearth_values *v, struct hearth_error *err)
{
    const struct hth_zip_member *pickle, *order;
    uint32_t values;
    size_t n;
    int rc;

    if ((rc = hth_zip_open(&v->zip, v->bytes, v->len, err)) || (rc = zip_top(v, err)))
        return rc;
    if (zip_member(v, "constants.pkl", NULL, 0))
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0, "this zip is a TorchScript program");
    if (!(pickle = zip_member(v, "data.pkl", NULL, 0)))
        return hth_fail(err, HEARTH_ECORRUPT, 0, "this zip is none of torch.save: no data.pkl");
    order = zip_member(v, "byteorder", NULL, 0);
    if (order && !member_is(v, order, "little"))
        return hth_fail(err, member_is(v, order, "big") ? HEARTH_EUNSUPPORTED : HEARTH_ECORRUPT, 0,
                "byte %" PRIu64 ": the numbers' byte order is not `little`", order->at);
    v->what = "data.pkl";
    rc = hth_pickle_measure(v->bytes + pickle->at, pickle->len, &n, &values, err);
    return rc ? rc : load_object(v, v->bytes + pickle->at, pickle->len, values, err);
}

/* --- the older form --- */

/* 2 + 10 digits of 0x1950a86a20f9469cfc6c in the one way that pickle writes it. */
static const unsigned char magic[] = { 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8,
    0x50, 0x19, '.' };

/* Where the magic number's pickle ends; 0: there is none. A frame may be around it. */
static size_t magic_end(const unsigned char *bytes, size_t len)
{
    size_t at = len > 11 && bytes[2] == 0x95 ? 11 : 2;

    if (len < at + sizeof(magic) || memcmp(bytes + at, magic, sizeof(magic)) != 0)
        return 0;
    return at + sizeof(magic);
}

/* A pickle of the preamble at *pos; *pos moves behind it. */
static int older_pickle_next(const struct hearth_values *v, size_t *pos, struct hth_pickle *out,
        void **out_memory, struct hearth_error *err)
{
    uint32_t values;
    size_t n;
    int rc = hth_pickle_measure(v->bytes + *pos, v->len - *pos, &n, &values, err);

    if (!rc)
        rc = pickle_load(out, out_memory, v->bytes + *pos, n, values, err);
    if (rc)
        return hth_while(err, rc, "from byte %zu on", *pos);
    *pos += n;
    return rc;
}

static int older_version(const struct hearth_values *v, size_t *pos, struct hearth_error *err)
{
    const struct hth_pickle_value *root;
    struct hth_pickle p;
    void *memory = NULL;
    int rc = older_pickle_next(v, pos, &p, &memory, err);

    if (rc)
        return rc;
    root = hth_pickle_root(&p);
    if (root->kind != HTH_PICKLE_INT || root->u.integer != 1001)
        rc = hth_fail(
                err, HEARTH_EUNSUPPORTED, 0, "byte %zu: torch.save's version is not 1001", *pos);
    free(memory);
    return rc;
}

static int older_byteorder(const struct hearth_values *v, size_t *pos, struct hearth_error *err)
{
    const struct hth_pickle_value *root, *said = NULL;
    struct hth_pickle p;
    void *memory = NULL;
    int rc = older_pickle_next(v, pos, &p, &memory, err);

    if (rc)
        return rc;
    root = hth_pickle_root(&p);
    for (uint32_t c = root->kind == HTH_PICKLE_DICT ? root->head : 0; c;
            c = p.cell[p.cell[c].next].next)
        if (hth_pickle_is(&p, hth_pickle_child(&p, c), "little_endian"))
            said = hth_pickle_child(&p, p.cell[c].next);
    if (!said || said->kind != HTH_PICKLE_BOOL)
        rc = hth_fail(
                err, HEARTH_ECORRUPT, 0, "byte %zu: sys_info does not have `little_endian`", *pos);
    else if (!said->u.integer)
        rc = hth_fail(err, HEARTH_EUNSUPPORTED, 0, "byte %zu: the numbers are big-endian", *pos);
    free(memory);
    return rc;
}

static int by_key(const void *a, const void *b)
{
    const struct hth_stored *x = a, *y = b;
    uint32_t n = x->key_len < y->key_len ? x->key_len : y->key_len;
    int c = n ? memcmp(x->key, y->key, n) : 0;

    return c ? c : x->key_len < y->key_len ? -1 : x->key_len > y->key_len;
}

static int by_number(const void *a, const void *b)
{
    const struct hth_stored *x = a, *y = b;

    return x->number < y->number ? -1 : x->number > y->number;
}

static struct hth_stored *stored_find(
        const struct hearth_values *v, const unsigned char *key, uint32_t key_len)
{
    struct hth_stored want = { .key = key, .key_len = key_len };

    if (!v->stored_count || key_len > KEY_MAX)
        return NULL;
    return bsearch(&want, v->stored, v->stored_count, sizeof(want), by_key);
}

/* The list of keys, sorted by key. Their texts lie in the input and outlive the pickle. */
static int older_keys(struct hearth_values *v, size_t *pos, struct hearth_error *err)
{
    const struct hth_pickle_value *root;
    struct hth_pickle p;
    void *memory = NULL;
    size_t from = *pos;
    int rc = older_pickle_next(v, pos, &p, &memory, err);

    if (rc)
        return rc;
    root = hth_pickle_root(&p);
    if (root->kind != HTH_PICKLE_LIST)
        rc = hth_fail(err, HEARTH_ECORRUPT, 0, "byte %zu: no list of storages' keys", from);
    else if (!(v->stored = calloc((size_t)root->n + 1, sizeof(v->stored[0]))))
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %u keys", root->n);
    for (uint32_t c = rc ? 0 : root->head; c && !rc; c = p.cell[c].next) {
        const struct hth_pickle_value *key = hth_pickle_child(&p, c);
        struct hth_stored *s = &v->stored[v->stored_count];

        if (key->kind != HTH_PICKLE_TEXT || key->n > KEY_MAX)
            rc = hth_fail(err, HEARTH_ECORRUPT, 0,
                    "byte %zu: a storage's key is no text of at most %d bytes", from, KEY_MAX);
        *s = (struct hth_stored){
            .key = p.bytes + key->head, .key_len = key->n, .number = v->stored_count++
        };
    }
    free(memory);
    if (rc || !v->stored_count)
        return rc;
    qsort(v->stored, v->stored_count, sizeof(v->stored[0]), by_key);
    for (size_t i = 1; i < v->stored_count; i++)
        if (by_key(&v->stored[i - 1], &v->stored[i]) == 0)
            return hth_fail(err, HEARTH_ECORRUPT, 0, "byte %zu: a storage's key comes twice", from);
    return HEARTH_OK;
}

/* How large an element of each storage is, only the object's pickle says. */
static int stored_elements(struct hearth_values *v, struct hearth_error *err)
{
    struct hth_storage storage;
    struct hth_stored *s;
    int rc;

    for (uint32_t i = 1; i < v->p.values; i++) {
        const struct hth_pickle_value *id = hth_pickle_at(&v->p, i);

        if (id->kind != HTH_PICKLE_PERSISTENT)
            continue;
        if ((rc = hth_values_persistent(&v->p, id, &storage, err)))
            return rc;
        s = stored_find(v, storage.key, storage.key_len);
        if (s && !s->element)
            s->element = hearth_dtype_bytes(storage.dtype);
    }
    return HEARTH_OK;
}

/* From *pos on: for each key, in the list's order, the number of elements and their bytes. */
static int older_storages(struct hearth_values *v, size_t pos, struct hearth_error *err)
{
    for (size_t i = 0; i < v->stored_count; i++) {
        struct hth_stored *s = &v->stored[i];
        uint64_t n, left = v->len - pos;

        if (!s->element)
            return hth_fail(
                    err, HEARTH_ECORRUPT, 0, "byte %zu: a storage that nothing speaks of", pos);
        if (left < 8 || (n = hth_get64(v->bytes + pos)) > (left - 8) / s->element)
            return hth_fail(err, HEARTH_ECORRUPT, 0, "byte %zu: a storage is cut off", pos);
        s->at = pos + 8;
        s->len = n * s->element;
        pos += 8 + (size_t)s->len;
    }
    if (pos != v->len)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "%zu bytes behind the last storage", v->len - pos);
    return HEARTH_OK;
}

static int form_older(struct hearth_values *v, size_t pos, struct hearth_error *err)
{
    uint32_t values;
    size_t n, from;
    int rc;

    if ((rc = older_version(v, &pos, err)) || (rc = older_byteorder(v, &pos, err)))
        return rc;
    from = pos;
    if ((rc = hth_pickle_measure(v->bytes + pos, v->len - pos, &n, &values, err)) ||
            (rc = load_object(v, v->bytes + pos, n, values, err)))
        return hth_while(err, rc, "from byte %zu on", from);
    pos += n;
    if ((rc = older_keys(v, &pos, err)) || (rc = stored_elements(v, err)))
        return rc;
    qsort(v->stored, v->stored_count, sizeof(v->stored[0]), by_number);
    rc = older_storages(v, pos, err);
    qsort(v->stored, v->stored_count, sizeof(v->stored[0]), by_key);
    v->what = "the object's pickle";
    return rc;
}

/* --- which --- */

int hth_values_load(struct hearth_values *v, struct hearth_error *err)
{
    uint32_t values;
    size_t n, end;
    int rc;

    if (v->len >= 4 && memcmp(v->bytes, "PK\3\4", 4) == 0)
        return form_zip(v, err);
    if (v->len < 2 || v->bytes[0] != 0x80)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "byte 0: neither a zip nor a pickle, as torch.save writes them");
    if ((end = magic_end(v->bytes, v->len)))
        return form_older(v, end, err);
    rc = hth_pickle_measure(v->bytes, v->len, &n, &values, err);
    return rc ? rc : load_object(v, v->bytes, v->len, values, err);
}

const unsigned char *hth_values_storage(const struct hearth_values *v, const unsigned char *key,
        uint32_t key_len, uint64_t *out_len, uint64_t *out_number)
{
    const struct hth_zip_member *m;
    const struct hth_stored *s;

    if (v->zip.count && (m = zip_member(v, "data/", key, key_len))) {
        *out_len = m->len;
        *out_number = (uint64_t)(m - v->zip.member);
        return v->bytes + m->at;
    }
    if (!(s = stored_find(v, key, key_len)))
        return NULL;
    *out_len = s->len;
    *out_number = s->number;
    return v->bytes + s->at;
}
