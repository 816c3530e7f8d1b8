/* SPDX-License-Identifier: Apache-2.0 */
#include "losses.h"

#include "core/base/fail.h"

#include <stdlib.h>
#include <string.h>

#define NODES_MAX (UINT32_C(1) << 20)
#define RANKS_MAX (UINT32_C(1) << 24)

/* ---- Reading --------------------------------------------------------------------------------- */

static uint32_t loss_index(const json_t *of, uint32_t nodes)
{
    json_int_t n = json_is_integer(of) ? json_integer_value(of) : -1;

    return n >= 0 && n < (json_int_t)nodes ? (uint32_t)n : HTH_NODE_NONE;
}

static void loss_word(char *out, size_t len, const json_t *of, const char *key)
{
    const char *text = json_string_value(json_object_get(of, key));

    snprintf(out, len, "%s", text ? text : "");
}

static uint32_t loss_number(const json_t *of, const char *key, uint32_t most)
{
    json_int_t n = json_integer_value(json_object_get(of, key));

    return n >= 0 && n <= (json_int_t)most ? (uint32_t)n : UINT32_MAX;
}

static uint64_t loss_u64(const json_t *of, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(of, key));
}

static int loss_kept(struct losses *l, const json_t *kept)
{
    l->saves = (uint32_t)json_array_size(kept);
    if (l->saves > HTH_KEEP_MAX)
        return HEARTH_EPROTO;
    for (uint32_t i = 0; i < l->saves; i++) {
        const json_t *row = json_array_get(kept, i);
        const char *id = json_string_value(json_object_get(row, "save"));

        if (!id || hth_save_parse(id, &l->save[i].id))
            return HEARTH_EPROTO;
        loss_word(l->save[i].state, sizeof(l->save[i].state), row, "state");
        l->save[i].bad = json_is_true(json_object_get(row, "bad"));
    }
    return HEARTH_OK;
}

static int loss_first(struct losses *l, const json_t *page)
{
    const json_t *as_of = json_object_get(page, "as_of_ms");

    loss_word(l->node, sizeof(l->node), page, "node");
    loss_word(l->coordinator, sizeof(l->coordinator), page, "coordinator");
    l->epoch = loss_u64(page, "epoch");
    l->position = loss_u64(page, "position");
    l->as_of_ms = json_is_integer(as_of) ? json_integer_value(as_of) : -1;
    l->current = json_is_true(json_object_get(page, "current"));
    l->settled = json_is_true(json_object_get(page, "settled"));
    l->dead_ms = loss_number(page, "dead_ms", INT32_MAX);
    l->copies = loss_number(page, "copies", 64);
    l->nodes = loss_number(page, "members", NODES_MAX);
    l->ranks = loss_number(page, "world", RANKS_MAX);
    if (l->copies == UINT32_MAX || l->nodes == UINT32_MAX || l->ranks == UINT32_MAX || !l->nodes ||
            !l->ranks || loss_kept(l, json_object_get(page, "kept")))
        return HEARTH_EPROTO;
    l->member = calloc(l->nodes, sizeof(*l->member));
    l->place = calloc((size_t)l->ranks * (1 + l->copies), sizeof(*l->place));
    return l->member && l->place ? HEARTH_OK : HEARTH_ENOMEM;
}

static void loss_member(const struct losses *l, const json_t *row, struct loss_node *out)
{
    const json_t *domains = json_object_get(row, "domains"), *has = json_object_get(row, "has");

    loss_word(out->name, sizeof(out->name), row, "node");
    out->lost = json_is_true(json_object_get(row, "lost"));
    out->machine = loss_index(json_object_get(row, "machine"), l->nodes);
    for (size_t i = 0; i < json_array_size(domains) && i < HTH_DOMAINS_MAX; i++) {
        const char *hash = json_string_value(json_array_get(domains, i));

        out->domain[i] = hash ? strtoull(hash, NULL, 16) : 0;
    }
    for (uint32_t i = 0; i < l->saves; i++) {
        const json_t *one = json_array_get(has, i);

        out->has[i] = json_is_true(one)    ? LOSS_HAS
                      : json_is_false(one) ? LOSS_HAS_NOT
                                           : LOSS_HAS_UNKNOWN;
    }
}

static int loss_places(const struct losses *l, const json_t *row, struct loss_place *out)
{
    if (json_array_size(row) != 1 + l->copies)
        return HEARTH_EPROTO;
    for (uint32_t i = 0; i <= l->copies; i++) {
        const json_t *place = json_array_get(row, i);

        out[i] = (struct loss_place){ loss_index(json_array_get(place, 0), l->nodes),
            loss_index(json_array_get(place, 1), l->nodes),
            loss_index(json_array_get(place, 2), l->nodes) };
    }
    return HEARTH_OK;
}

static int loss_rows(struct losses *l, const json_t *page)
{
    const json_t *nodes = json_object_get(page, "nodes"), *ranks = json_object_get(page, "ranks");
    size_t n = json_array_size(nodes), r = json_array_size(ranks);
    int rc = HEARTH_OK;

    if (n > l->nodes - l->nodes_read || r > l->ranks - l->ranks_read || !(n + r))
        return HEARTH_EPROTO;
    for (size_t i = 0; i < n; i++)
        loss_member(l, json_array_get(nodes, i), &l->member[l->nodes_read++]);
    for (size_t i = 0; i < r && !rc; i++)
        rc = loss_places(
                l, json_array_get(ranks, i), &l->place[(size_t)l->ranks_read++ * (1 + l->copies)]);
    return rc;
}

int losses_page(struct losses *l, const json_t *page, struct hearth_error *err)
{
    int rc = l->member ? HEARTH_OK : loss_first(l, page);

    if (!rc && (loss_u64(page, "epoch") != l->epoch || loss_u64(page, "position") != l->position))
        return hth_fail(err, HEARTH_ESTATE, 0, "the job decides faster than it can be asked");
    rc = rc ? rc : loss_rows(l, page);
    if (rc == HEARTH_ENOMEM)
        return hth_fail(err, rc, 0, "no memory for the placement");
    return rc ? hth_fail(err, rc, 0, "the engine's answer cannot be read") : HEARTH_OK;
}

int losses_whole(const struct losses *l)
{
    return l->member && l->nodes_read == l->nodes && l->ranks_read == l->ranks;
}

static int loss_object_cmp(const void *a, const void *b)
{
    const struct loss_object *x = a, *y = b;

    return (x->owner > y->owner) - (x->owner < y->owner);
}

int losses_manifest(struct losses *l, uint32_t at, const struct hth_manifest *m)
{
    struct loss_save *s = &l->save[at];

    s->object = calloc(m->objects + 1, sizeof(*s->object));
    if (!s->object)
        return HEARTH_ENOMEM;
    s->listed = 1;
    for (uint32_t i = 0; i < m->objects; i++) {
        const struct hth_object *o = &m->object[i];

        if (o->kind == HTH_OBJECT_SHARD)
            s->object[s->objects++] =
                    (struct loss_object){ o->owner, HTH_BLOCK + o->data_len + o->table_len };
        else
            s->common = 1;
    }
    qsort(s->object, s->objects, sizeof(*s->object), loss_object_cmp);
    return HEARTH_OK;
}

void losses_free(struct losses *l)
{
    for (uint32_t i = 0; i < HTH_KEEP_MAX; i++)
        free(l->save[i].object);
    free(l->member);
    free(l->place);
    *l = (struct losses){ 0 };
}

uint32_t losses_mark(const struct losses *l, const char *name, uint8_t *gone)
{
    for (uint32_t i = 0; i < l->nodes; i++)
        if (!strcmp(l->member[i].name, name)) {
            gone[i] = 1;
            return 1;
        }
    return 0;
}

uint32_t losses_mark_domain(const struct losses *l, const char *name, uint8_t *gone)
{
    uint64_t hash = hth_domain_hash(name);
    uint32_t marked = 0;

    for (uint32_t i = 0; i < l->nodes; i++)
        for (uint32_t k = 0; k < HTH_DOMAINS_MAX; k++)
            if (l->member[i].domain[k] == hash) {
                gone[i] = 1;
                marked++;
                break;
            }
    return marked;
}

/* ---- Judging --------------------------------------------------------------------------------- */

static const struct loss_place *loss_of(const struct losses *l, uint32_t owner)
{
    return &l->place[(size_t)(l->ranks ? owner % l->ranks : 0) * (1 + l->copies)];
}

/* 1: the node is left, and is known to have what it should have of the save. */
static int loss_is_sure(const struct losses *l, uint32_t at, uint32_t node, const uint8_t *gone)
{
    return node != HTH_NODE_NONE && !(gone && gone[node]) && !l->member[node].lost &&
           l->member[node].has[at] == LOSS_HAS;
}

/* 1: the node is not among those that are gone, so it may have a copy, or return with one. */
static int loss_may_have(uint32_t node, const uint8_t *gone)
{
    return node != HTH_NODE_NONE && !gone[node];
}

/* While the map is not settled, or its newest state is not known here, a copy may lie on any
 * node. */
static enum loss_fate loss_without_copy(const struct losses *l, const uint8_t *gone)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < l->nodes && !left && !(l->settled && l->current); i++)
        left = !gone[i];
    return left ? LOSS_UNKNOWN : LOSS_LOST;
}

enum loss_fate losses_rank(const struct losses *l, uint32_t at, uint32_t owner, const uint8_t *gone)
{
    const struct loss_place *p = loss_of(l, owner);
    int may = 0;

    for (uint32_t i = 0; i <= l->copies; i++) {
        if (loss_is_sure(l, at, p[i].now, gone))
            return LOSS_SURVIVES;
        may |= loss_may_have(p[i].now, gone) || loss_may_have(p[i].home, gone) ||
               loss_may_have(p[i].was, gone);
    }
    return may ? LOSS_UNKNOWN : loss_without_copy(l, gone);
}

/* Of what every node keeps. */
static enum loss_fate loss_common(const struct losses *l, uint32_t at, const uint8_t *gone)
{
    enum loss_fate fate = LOSS_LOST;

    for (uint32_t i = 0; i < l->nodes; i++) {
        if (loss_is_sure(l, at, i, gone))
            return LOSS_SURVIVES;
        if (!gone[i])
            fate = LOSS_UNKNOWN;
    }
    return fate;
}

static void loss_count(
        const struct losses *l, uint32_t at, uint32_t owner, const uint8_t *gone, uint32_t *counts)
{
    counts[losses_rank(l, at, owner, gone)]++;
}

static void loss_save_judge(
        const struct losses *l, uint32_t at, const uint8_t *gone, struct loss_verdict *out)
{
    const struct loss_save *s = &l->save[at];
    uint32_t counts[3] = { 0 };
    enum loss_fate common = s->common ? loss_common(l, at, gone) : LOSS_SURVIVES;

    for (uint32_t r = 0; r < l->ranks && !s->listed; r++)
        loss_count(l, at, r, gone, counts);
    for (size_t i = 0; i < s->objects; i++)
        if (!i || s->object[i].owner != s->object[i - 1].owner)
            loss_count(l, at, s->object[i].owner, gone, counts);
    out->lost[at] = counts[LOSS_LOST];
    out->unknown[at] = counts[LOSS_UNKNOWN];
    out->fate[at] = counts[LOSS_LOST]      ? LOSS_LOST
                    : counts[LOSS_UNKNOWN] ? LOSS_UNKNOWN
                                           : LOSS_SURVIVES;
    if (common > out->fate[at])
        out->fate[at] = common;
}

/* A save that is marked bad is chosen only if no older one survives. */
static int loss_chosen(const struct losses *l, const struct loss_verdict *v)
{
    int bad = -1;

    for (uint32_t i = 0; i < l->saves; i++) {
        if (v->fate[i] != LOSS_SURVIVES)
            continue;
        if (!l->save[i].bad)
            return (int)i;
        bad = bad < 0 ? (int)i : bad;
    }
    return bad;
}

/* 1: the node has its copy of that rank's objects already, in whatever place. */
static int loss_is_here(const struct losses *l, uint32_t at, const struct loss_place *p,
        uint32_t node, const uint8_t *gone)
{
    for (uint32_t i = 0; i <= l->copies; i++)
        if (p[i].now == node)
            return loss_is_sure(l, at, node, gone);
    return 0;
}

static void loss_add(struct loss_pull *pull, uint64_t *of_node, uint32_t node, uint64_t bytes)
{
    pull->nodes += !of_node[node] && bytes;
    pull->bytes += bytes;
    of_node[node] += bytes;
    pull->most = of_node[node] > pull->most ? of_node[node] : pull->most;
}

/* The bytes that nodes pull because they have the places of the next epoch without them: of the
 * chosen save first those that the ranks of a node wait for; then copies, and older saves. */
static void loss_pulls_of(const struct losses *l, uint32_t at, const uint8_t *gone,
        struct loss_verdict *out, uint64_t *of_node)
{
    const struct loss_save *s = &l->save[at];

    for (size_t i = 0; i < s->objects; i++) {
        const struct loss_place *p = loss_of(l, s->object[i].owner);

        for (uint32_t k = 0; k <= l->copies; k++) {
            int first = !k && at == (uint32_t)out->chosen;

            if (p[k].home != HTH_NODE_NONE && !loss_is_here(l, at, p, p[k].home, gone))
                loss_add(first ? &out->before : &out->after, first ? of_node : of_node + l->nodes,
                        p[k].home, s->object[i].bytes);
        }
    }
}

static int loss_pulls(const struct losses *l, const uint8_t *gone, struct loss_verdict *out)
{
    uint64_t *of_node = calloc(2 * (size_t)l->nodes, sizeof(*of_node));

    if (!of_node)
        return HEARTH_ENOMEM;
    out->sized = 1;
    for (uint32_t at = (uint32_t)out->chosen; at < l->saves; at++) {
        if (out->fate[at] != LOSS_SURVIVES)
            continue;
        loss_pulls_of(l, at, gone, out, of_node);
        out->sized &= l->save[at].listed;
    }
    free(of_node);
    return HEARTH_OK;
}

int losses_judge(const struct losses *l, const uint8_t *gone, struct loss_verdict *out)
{
    *out = (struct loss_verdict){ 0 };
    for (uint32_t i = 0; i < l->saves; i++)
        loss_save_judge(l, i, gone, out);
    out->chosen = loss_chosen(l, out);
    return out->chosen < 0 ? HEARTH_OK : loss_pulls(l, gone, out);
}

/* ---- The worst pairs ------------------------------------------------------------------------- */

struct worst {
    uint32_t units;
    uint32_t *alone;        /* [units] ranks whose objects are in this unit alone */
    struct loss_pair *pair; /* of ranks whose objects are in these two units alone */
    uint32_t pairs;
};

/* The units in which the rank's objects are known to be; more than two are not told apart. */
static uint32_t worst_units(
        const struct losses *l, uint32_t at, uint32_t owner, const uint32_t *unit, uint32_t out[2])
{
    const struct loss_place *p = loss_of(l, owner);
    uint32_t units = 0;

    for (uint32_t i = 0; i <= l->copies && units < 3; i++) {
        uint32_t u = loss_is_sure(l, at, p[i].now, NULL) ? unit[p[i].now] : UINT32_MAX;

        if (u == UINT32_MAX || (units && out[0] == u) || (units > 1 && out[1] == u))
            continue;
        if (units < 2)
            out[units] = u;
        units++;
    }
    return units;
}

static void worst_add(
        struct worst *w, const struct losses *l, uint32_t at, uint32_t owner, const uint32_t *unit)
{
    uint32_t u[2], units = worst_units(l, at, owner, unit, u);

    if (units == 1)
        w->alone[u[0]]++;
    else if (units == 2)
        w->pair[w->pairs++] =
                (struct loss_pair){ u[0] < u[1] ? u[0] : u[1], u[0] < u[1] ? u[1] : u[0], 1 };
}

static int worst_by_units(const void *a, const void *b)
{
    const struct loss_pair *x = a, *y = b;

    if (x->a != y->a)
        return x->a < y->a ? -1 : 1;
    return (x->b > y->b) - (x->b < y->b);
}

static int worst_by_ranks(const void *a, const void *b)
{
    const struct loss_pair *x = a, *y = b;

    if (x->ranks != y->ranks)
        return x->ranks > y->ranks ? -1 : 1;
    return worst_by_units(a, b);
}

static void worst_merge(struct worst *w)
{
    uint32_t left = 0;

    qsort(w->pair, w->pairs, sizeof(*w->pair), worst_by_units);
    for (uint32_t i = 0; i < w->pairs; i++) {
        if (left && !worst_by_units(&w->pair[left - 1], &w->pair[i]))
            w->pair[left - 1].ranks += w->pair[i].ranks;
        else
            w->pair[left++] = w->pair[i];
    }
    w->pairs = left;
    for (uint32_t i = 0; i < w->pairs; i++)
        w->pair[i].ranks += w->alone[w->pair[i].a] + w->alone[w->pair[i].b];
}

static int worst_listed(const struct worst *w, uint32_t a, uint32_t b)
{
    const struct loss_pair key = { a, b, 0 };

    return bsearch(&key, w->pair, w->pairs, sizeof(*w->pair), worst_by_units) != NULL;
}

/* Pairs that have no rank's objects between them, and of which one has some alone: with the unit
 * that has most. */
static void worst_add_alone(struct worst *w)
{
    uint32_t top = 0, before = w->pairs;

    for (uint32_t u = 1; u < w->units; u++)
        top = w->alone[u] > w->alone[top] ? u : top;
    for (uint32_t u = 0; u < w->units && w->alone[top]; u++) {
        uint32_t a = u < top ? u : top, b = u < top ? top : u;
        struct worst known = { .pair = w->pair, .pairs = before };

        if (u != top && !worst_listed(&known, a, b))
            w->pair[w->pairs++] = (struct loss_pair){ a, b, w->alone[a] + w->alone[b] };
    }
}

int losses_worst(const struct losses *l, uint32_t at, const uint32_t *unit, uint32_t units,
        struct loss_pair *out, uint32_t most)
{
    const struct loss_save *s = &l->save[at];
    size_t owners = s->listed ? s->objects : l->ranks;
    struct worst w = { .units = units,
        .alone = calloc(units, sizeof(*w.alone)),
        .pair = calloc(owners + units + 1, sizeof(*w.pair)) };
    int rc = w.alone && w.pair ? HEARTH_OK : HEARTH_ENOMEM;

    for (size_t i = 0; i < owners && !rc; i++) {
        uint32_t owner = s->listed ? s->object[i].owner : (uint32_t)i;

        if (!s->listed || !i || owner != s->object[i - 1].owner)
            worst_add(&w, l, at, owner, unit);
    }
    if (!rc) {
        worst_merge(&w);
        worst_add_alone(&w);
        qsort(w.pair, w.pairs, sizeof(*w.pair), worst_by_ranks);
        w.pairs = w.pairs < most ? w.pairs : most;
        if (w.pairs)
            memcpy(out, w.pair, w.pairs * sizeof(*out));
    }
    free(w.alone);
    free(w.pair);
    return rc ? rc : (int)w.pairs;
}

/* The widest level at which some node names a domain. */
static uint32_t loss_widest(const struct losses *l)
{
    uint32_t levels = 0;

    for (uint32_t i = 0; i < l->nodes; i++)
        for (uint32_t k = levels; k < HTH_DOMAINS_MAX; k++)
            if (l->member[i].domain[k])
                levels = k + 1;
    return levels;
}

uint32_t losses_units(const struct losses *l, int domains, uint32_t *unit)
{
    uint32_t levels = domains ? loss_widest(l) : 0, units = 0;

    for (uint32_t i = 0; i < l->nodes; i++) {
        uint64_t d = levels ? l->member[i].domain[levels - 1] : 0;
        uint32_t k = 0;

        while (d && k < i && l->member[k].domain[levels - 1] != d)
            k++;
        unit[i] = d && k < i ? unit[k] : units++;
    }
    return units;
}
