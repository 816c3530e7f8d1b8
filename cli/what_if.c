/* SPDX-License-Identifier: Apache-2.0 */
/*
 * what-if: which saves survive a loss of nodes, by the placement that this node's engine knows, and
 * what a recovery would pull.
 */
#include "losses.h"

#include "cli.h"
#include "core/local/local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRIES     5  /* to read all pages between two decisions */
#define SHOWN     16 /* ranks of a list */
#define PAIRS_MAX 1000u

struct what_if {
    int job;
    char node[HTH_NAME_MAX + 1]; /* of this engine */
    struct losses l;
    uint8_t *gone; /* [nodes] */
    double rate;   /* bytes of this node per second; 0: not known */
    char rate_of[80];
};

/* ---- What the engine knows ------------------------------------------------------------------- */

static int what_is_coordinator(const struct what_if *w)
{
    return !strcmp(w->l.node, w->l.coordinator);
}

/* Of this node's engine, or (elsewhere) of the coordinator's. */
static int what_page(const struct what_if *w, int elsewhere, struct losses *l, uint32_t skip,
        struct hearth_error *err)
{
    char *text =
            elsewhere ? engine_elsewhere(w->job, HTH_NODE_NONE, "", HTH_LOCAL_PLACES, 0, skip, err)
                      : engine_places(w->job, skip, err);
    json_t *page;
    int rc;

    if (!text)
        return err->code;
    page = json_loads(text, 0, NULL);
    free(text);
    rc = losses_page(l, page, err);
    json_decref(page);
    return rc;
}

static int what_pages(
        const struct what_if *w, int elsewhere, struct losses *l, struct hearth_error *err)
{
    int rc = HEARTH_ESTATE;

    for (int i = 0; i < TRIES && rc == HEARTH_ESTATE; i++) {
        losses_free(l);
        rc = HEARTH_OK;
        for (uint32_t skip = 0; !rc && !losses_whole(l); skip += HTH_PLACES_PAGE)
            rc = what_page(w, elsewhere, l, skip, err);
        if (rc == HEARTH_ESTATE && !l->member)
            return rc; /* the ranks have not joined */
    }
    return rc;
}

/* While the map is not settled, the coordinator alone knows which nodes have what. */
static void what_coordinator(struct what_if *w)
{
    struct losses theirs = { 0 };
    struct hearth_error err; /* it is not asked twice: what this node knows is shown */

    if ((w->l.settled && w->l.current) || what_is_coordinator(w))
        return;
    if (what_pages(w, 1, &theirs, &err) || !theirs.current) {
        losses_free(&theirs);
        return;
    }
    losses_free(&w->l);
    w->l = theirs;
}

/* Every node has the manifest of a kept save; without it all ranks count, and no bytes do. */
static int what_manifests(struct what_if *w, struct hearth_error *err)
{
    for (uint32_t i = 0; i < w->l.saves; i++) {
        struct hth_manifest m;
        int rc;

        if (manifest_of(w->job, w->l.save[i].id, &m, NULL))
            continue;
        rc = losses_manifest(&w->l, i, &m);
        hth_manifest_fini(&m);
        if (rc)
            return hth_fail(err, rc, 0, "no memory for a manifest");
    }
    return HEARTH_OK;
}

static json_int_t what_number(const json_t *of, const char *key)
{
    return json_integer_value(json_object_get(of, key));
}

static json_int_t what_phase_ms(const json_t *row, const char *name)
{
    const json_t *phase;
    size_t i;

    json_array_foreach(json_object_get(row, "phases"), i, phase)
    {
        const char *is = json_string_value(json_object_get(phase, "phase"));

        if (is && !strcmp(is, name))
            return what_number(phase, "to_ms") - what_number(phase, "from_ms");
    }
    return 0;
}

static json_t *what_history(const struct what_if *w, uint32_t what)
{
    char *text = engine_history(w->job, what, 0, NULL);
    json_t *page = text ? json_loads(text, 0, NULL) : NULL;

    free(text);
    return page;
}

/* Of all entries together: bytes by the time of that phase. */
static void what_rate_of(struct what_if *w, uint32_t what, const char *list, const char *phase,
        const char *bytes, uint32_t times)
{
    json_t *page = what_history(w, what);
    const json_t *row;
    json_int_t sum = 0, ms = 0;
    unsigned entries = 0;
    size_t i;

    json_array_foreach(json_object_get(page, list), i, row)
    {
        json_int_t one = what_phase_ms(row, phase), n = what_number(row, bytes);

        if (one <= 0 || n <= 0)
            continue;
        sum += n * times;
        ms += one;
        entries++;
    }
    json_decref(page);
    if (!ms)
        return;
    w->rate = (double)sum * 1000 / (double)ms;
    snprintf(
            w->rate_of, sizeof(w->rate_of), "node %.40s in its last %u %s", w->node, entries, list);
}

static void what_rate(struct what_if *w)
{
    what_rate_of(w, HTH_HISTORY_RECOVERIES, "recoveries", "pull", "pulled_bytes", 1);
    if (w->rate <= 0)
        what_rate_of(w, HTH_HISTORY_SAVES, "saves", "copy", "bytes", w->l.copies);
}

/* ---- What is known, and since when ----------------------------------------------------------- */

/* Why something is not known; NULL: all is. */
static const char *what_unsure(const struct what_if *w)
{
    if (!w->l.current)
        return "not known: this engine lacks the newest state of the job";
    if (w->l.settled)
        return NULL;
    return what_is_coordinator(w)
                   ? "not settled: copies are being moved or counted. Those that are not promised\n"
                     "yet do not count"
                   : "not settled: copies are being moved or counted, and only the coordinator\n"
                     "knows which nodes have them";
}

static void what_say_known(const struct what_if *w)
{
    const char *unsure = what_unsure(w);
    int named = 0;

    if (w->l.as_of_ms >= 0)
        say("As node %s knows it, as of %.1f s ago. A loss is known after %.1f s.\n", w->l.node,
                (double)w->l.as_of_ms / 1000, (double)w->l.dead_ms / 1000);
    else
        say("As node %s knows it, which has received nothing of its coordinator.\n", w->l.node);
    for (uint32_t i = 0; i < w->l.nodes; i++)
        if (w->l.member[i].lost)
            say("%s%s", named++ ? ", " : "Lost already: ", w->l.member[i].name);
    if (named)
        say("\n");
    if (unsure)
        say("%s.\n", unsure);
    if (unsure && !what_is_coordinator(w))
        say("Ask on node %s, the coordinator.\n", w->l.coordinator);
}

/* ---- For people ------------------------------------------------------------------------------ */

static const char *const fate_words[] = {
    [LOSS_SURVIVES] = "survives", [LOSS_UNKNOWN] = "not known", [LOSS_LOST] = "LOST"
};

/* The owner at place i of a save's list; 1: it comes for the first time. */
static int what_owner(const struct what_if *w, uint32_t at, size_t i, uint32_t *out)
{
    const struct loss_save *s = &w->l.save[at];

    *out = s->listed ? s->object[i].owner : (uint32_t)i;
    return !s->listed || !i || s->object[i - 1].owner != *out;
}

static size_t what_owners(const struct what_if *w, uint32_t at)
{
    return w->l.save[at].listed ? w->l.save[at].objects : w->l.ranks;
}

/* "0, 1, 5, ..." */
static void what_ranks_text(
        const struct what_if *w, uint32_t at, enum loss_fate fate, char *out, size_t len)
{
    uint32_t owner, shown = 0;
    size_t n = 0;

    out[0] = '\0';
    for (size_t i = 0; i < what_owners(w, at) && n < len; i++) {
        if (!what_owner(w, at, i, &owner) || losses_rank(&w->l, at, owner, w->gone) != fate)
            continue;
        if (shown == SHOWN) {
            snprintf(out + n, len - n, ", ...");
            return;
        }
        n += (size_t)snprintf(out + n, len - n, "%s%" PRIu32, shown++ ? ", " : "", owner);
    }
}

/* "2 ranks: 0, 1", of ranks without a copy; else of ranks of which it is not known. */
static void what_add_save(
        const struct what_if *w, uint32_t at, const struct loss_verdict *v, struct grid *g)
{
    const struct loss_save *s = &w->l.save[at];
    uint32_t ranks = v->lost[at] ? v->lost[at] : v->unknown[at];
    char list[16 * SHOWN];

    what_ranks_text(w, at, v->lost[at] ? LOSS_LOST : LOSS_UNKNOWN, list, sizeof(list));
    grid_add(g, "%" PRIu64, s->id.step);
    grid_add(g, "%s", fate_words[v->fate[at]]);
    grid_add(g, "%s%s", s->state, s->bad ? ", bad" : "");
    if (ranks)
        grid_add(g, "%" PRIu32 "%s: %s", ranks, ranks == 1 ? " rank" : " ranks", list);
    else
        grid_add(g, "-");
}

static void what_say_saves(const struct what_if *w, const struct loss_verdict *v)
{
    struct grid g = { .columns = 4 };

    grid_add(&g, "STEP");
    grid_add(&g, "FATE");
    grid_add(&g, "STATE");
    grid_add(&g, "WITHOUT A COPY");
    for (uint32_t i = 0; i < w->l.saves; i++)
        what_add_save(w, i, v, &g);
    grid_print(&g, "rlll");
    grid_free(&g);
}

static void what_add_pull(
        const struct what_if *w, const char *when, const struct loss_pull *p, struct grid *g)
{
    char bytes[32], most[32];

    human(bytes, p->bytes);
    human(most, p->most);
    grid_add(g, "%s", when);
    grid_add(g, "%" PRIu32, p->nodes);
    grid_add(g, "%s", bytes);
    grid_add(g, "%s", most);
    if (w->rate > 0)
        grid_add(g, "%.1f s", (double)p->most / w->rate);
    else
        grid_add(g, "not known");
}

static void what_say_pulls(const struct what_if *w, const struct loss_verdict *v)
{
    struct grid g = { .columns = 5 };
    char rate[32];

    grid_add(&g, "PULLED");
    grid_add(&g, "NODES");
    grid_add(&g, "BYTES");
    grid_add(&g, "AT MOST");
    grid_add(&g, "ABOUT");
    what_add_pull(w, "before the ranks resume", &v->before, &g);
    what_add_pull(w, "after that", &v->after, &g);
    grid_print(&g, "lrrrr");
    grid_free(&g);
    human(rate, (uint64_t)w->rate);
    if (w->rate > 0)
        say("At %s/s, as %s.\n", rate, w->rate_of);
    else
        say("The time is not known: this engine remembers no recovery or copy.\n");
}

static void what_say_recovery(const struct what_if *w, const struct loss_verdict *v)
{
    if (v->chosen < 0) {
        say("\nNo kept save is known to survive.\n");
        return;
    }
    say("\nA recovery resumes from step %" PRIu64
        ", or from a newer save. If empty nodes take\nthe place of the lost ones, with their ranks "
        "and domains:\n\n",
            w->l.save[v->chosen].id.step);
    if (v->sized)
        what_say_pulls(w, v);
    else
        say("What is pulled is not known: this node has not the manifest of a save.\n");
}

static enum status what_status(const struct what_if *w, const struct loss_verdict *v)
{
    for (uint32_t i = 0; i < w->l.saves; i++)
        if (v->fate[i] != LOSS_SURVIVES)
            return STATUS_WRONG;
    return w->l.saves ? STATUS_OK : STATUS_WRONG;
}

static enum status what_say(const struct what_if *w, const struct loss_verdict *v)
{
    what_say_known(w);
    if (w->l.saves) {
        say("\n");
        what_say_saves(w, v);
        what_say_recovery(w, v);
    } else {
        say("No save is kept: a recovery begins with nothing.\n");
    }
    return what_status(w, v);
}

/* ---- For programs ---------------------------------------------------------------------------- */

static json_t *json_ranks(const struct what_if *w, uint32_t at, enum loss_fate fate)
{
    json_t *out = json_array();
    uint32_t owner;

    for (size_t i = 0; i < what_owners(w, at); i++)
        if (what_owner(w, at, i, &owner) && losses_rank(&w->l, at, owner, w->gone) == fate)
            json_array_append_new(out, json_integer(owner));
    return out;
}

static json_t *json_save_fate(const struct what_if *w, uint32_t at, const struct loss_verdict *v)
{
    static const char *const fates[] = { "survives", "unknown", "lost" };
    const struct loss_save *s = &w->l.save[at];
    char id[HTH_SAVE_TEXT];
    json_t *out = json_object();

    hth_save_text(s->id, id);
    json_object_set_new(out, "save", json_string(id));
    json_object_set_new(out, "step", json_unsigned(s->id.step));
    json_object_set_new(out, "state", json_text(s->state, strlen(s->state)));
    json_object_set_new(out, "bad", json_boolean(s->bad));
    json_object_set_new(out, "fate", json_string(fates[v->fate[at]]));
    json_object_set_new(out, "lost_ranks", json_ranks(w, at, LOSS_LOST));
    json_object_set_new(out, "unknown_ranks", json_ranks(w, at, LOSS_UNKNOWN));
    return out;
}

static void json_pull(
        json_t *out, const struct what_if *w, const char *key, const struct loss_pull *p)
{
    json_t *pull = json_object();

    json_object_set_new(pull, "bytes", json_unsigned(p->bytes));
    json_object_set_new(pull, "nodes", json_integer(p->nodes));
    json_object_set_new(pull, "most_bytes", json_unsigned(p->most));
    json_object_set_new(
            pull, "seconds", w->rate > 0 ? json_real((double)p->most / w->rate) : json_null());
    json_object_set_new(out, key, pull);
}

static json_t *json_recovery(const struct what_if *w, const struct loss_verdict *v)
{
    json_t *out;

    if (v->chosen < 0)
        return json_null();
    out = json_object();
    json_object_set_new(out, "step", json_unsigned(w->l.save[v->chosen].id.step));
    if (v->sized) {
        json_pull(out, w, "before", &v->before);
        json_pull(out, w, "after", &v->after);
    }
    return out;
}

static json_t *json_nodes(const struct what_if *w, int lost)
{
    json_t *out = json_array();

    for (uint32_t i = 0; i < w->l.nodes; i++)
        if (lost ? w->l.member[i].lost : w->gone[i])
            json_array_append_new(out, json_text(w->l.member[i].name, strlen(w->l.member[i].name)));
    return out;
}

static json_t *what_json(const struct what_if *w, const struct loss_verdict *v)
{
    json_t *out = json_object(), *saves = json_array();

    json_object_set_new(out, "node", json_text(w->l.node, strlen(w->l.node)));
    json_object_set_new(out, "coordinator", json_text(w->l.coordinator, strlen(w->l.coordinator)));
    json_object_set_new(
            out, "as_of_ms", w->l.as_of_ms < 0 ? json_null() : json_integer(w->l.as_of_ms));
    json_object_set_new(out, "current", json_boolean(w->l.current));
    json_object_set_new(out, "settled", json_boolean(w->l.settled));
    json_object_set_new(out, "lost", json_nodes(w, 1));
    json_object_set_new(out, "losing", json_nodes(w, 0));
    for (uint32_t i = 0; i < w->l.saves; i++)
        json_array_append_new(saves, json_save_fate(w, i, v));
    json_object_set_new(out, "saves", saves);
    json_object_set_new(out, "recovery", json_recovery(w, v));
    return out;
}

/* ---- The worst pairs ------------------------------------------------------------------------- */

/* The newest save that survives without a further loss; negative: none does. */
static int what_newest(const struct what_if *w, struct hearth_error *err)
{
    struct loss_verdict v;

    if (losses_judge(&w->l, w->gone, &v))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory");
    return v.chosen;
}

/* "n3", or the first nodes of a domain: "n3, n4, ..." */
static void what_unit_text(
        const struct what_if *w, const uint32_t *unit, uint32_t which, char *out, size_t len)
{
    uint32_t shown = 0;
    size_t n = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < w->l.nodes && n < len; i++) {
        if (unit[i] != which)
            continue;
        if (shown == 3) {
            snprintf(out + n, len - n, ",...");
            return;
        }
        n += (size_t)snprintf(out + n, len - n, "%s%s", shown++ ? "," : "", w->l.member[i].name);
    }
}

struct pairs { /* of nodes, or of domains */
    const char *of;
    uint32_t *unit;
    uint32_t units;
    struct loss_pair *pair;
    int count;
};

static int pairs_find(const struct what_if *w, int at, uint32_t most, int domains, struct pairs *p,
        struct hearth_error *err)
{
    p->of = domains ? "domains" : "nodes";
    p->unit = calloc(w->l.nodes, sizeof(*p->unit));
    p->pair = calloc(most, sizeof(*p->pair));
    if (p->unit && p->pair) {
        p->units = losses_units(&w->l, domains, p->unit);
        p->count = losses_worst(&w->l, (uint32_t)at, p->unit, p->units, p->pair, most);
    }
    return !p->unit || !p->pair || p->count < 0 ? hth_fail(err, HEARTH_ENOMEM, 0, "no memory")
                                                : HEARTH_OK;
}

static void pairs_free(struct pairs *p)
{
    free(p->unit);
    free(p->pair);
}

static void pairs_say(const struct what_if *w, const struct pairs *p)
{
    struct grid g = { .columns = 3 };
    char a[240], b[240];

    if (!p->count) {
        say("No pair of %s: each rank's objects are known to be on a third.\n", p->of);
        return;
    }
    grid_add(&g, "LOST");
    grid_add(&g, "AND");
    grid_add(&g, "RANKS");
    for (int i = 0; i < p->count; i++) {
        what_unit_text(w, p->unit, p->pair[i].a, a, sizeof(a));
        what_unit_text(w, p->unit, p->pair[i].b, b, sizeof(b));
        grid_add(&g, "%s", a);
        grid_add(&g, "%s", b);
        grid_add(&g, "%" PRIu32, p->pair[i].ranks);
    }
    grid_print(&g, "llr");
    grid_free(&g);
}

static json_t *pairs_unit_json(const struct what_if *w, const uint32_t *unit, uint32_t which)
{
    json_t *out = json_array();

    for (uint32_t i = 0; i < w->l.nodes; i++)
        if (unit[i] == which)
            json_array_append_new(out, json_text(w->l.member[i].name, strlen(w->l.member[i].name)));
    return out;
}

static json_t *pairs_json(const struct what_if *w, const struct pairs *p)
{
    json_t *out = json_array();

    for (int i = 0; i < p->count; i++) {
        json_t *row = json_object();

        json_object_set_new(row, "a", pairs_unit_json(w, p->unit, p->pair[i].a));
        json_object_set_new(row, "b", pairs_unit_json(w, p->unit, p->pair[i].b));
        json_object_set_new(row, "ranks", json_integer(p->pair[i].ranks));
        json_array_append_new(out, row);
    }
    return out;
}

static enum status what_worst_show(const struct what_if *w, int json, int at,
        const struct pairs *nodes, const struct pairs *domains)
{
    json_t *out;

    if (json) {
        out = json_object();
        json_object_set_new(out, "step", json_unsigned(w->l.save[at].id.step));
        json_object_set_new(out, "settled", json_boolean(w->l.settled && w->l.current));
        json_object_set_new(out, "nodes", pairs_json(w, nodes));
        json_object_set_new(out, "domains", pairs_json(w, domains));
        return print_json(out);
    }
    what_say_known(w);
    say("Ranks whose objects of step %" PRIu64 " have no known copy on other nodes:\n\n",
            w->l.save[at].id.step);
    pairs_say(w, nodes);
    if (domains->units && domains->units < w->l.nodes) {
        say("\n");
        pairs_say(w, domains);
    }
    return STATUS_OK;
}

static enum status what_worst(const struct what_if *w, const struct args *a, uint32_t most)
{
    struct pairs nodes = { 0 }, domains = { 0 };
    struct hearth_error err = { 0 };
    int at = what_newest(w, &err), rc = err.code;
    enum status status;

    if (!rc && at < 0)
        rc = hth_fail(&err, HEARTH_ENOENT, 0,
                "no kept save is known to be whole without a further loss: see hearth what-if "
                "JOB");
    rc = rc ? rc : pairs_find(w, at, most, 0, &nodes, &err);
    rc = rc ? rc : pairs_find(w, at, most, 1, &domains, &err);
    status = rc ? complain(&err) : what_worst_show(w, a->json, at, &nodes, &domains);
    pairs_free(&nodes);
    pairs_free(&domains);
    return status;
}

/* ---- The command ----------------------------------------------------------------------------- */

/* A node, or domain=NAME; a name that is no node's may be a domain's. */
static int what_mark(struct what_if *w, const char *name, struct hearth_error *err)
{
    const char *domain = !strncmp(name, "domain=", 7) ? name + 7 : NULL;
    uint32_t marked = domain ? 0 : losses_mark(&w->l, name, w->gone);

    marked = marked ? marked : losses_mark_domain(&w->l, domain ? domain : name, w->gone);
    return marked ? HEARTH_OK
                  : hth_fail(err, HEARTH_ENOENT, 0,
                            "no node of the job has the name or the failure domain '%.100s'",
                            domain ? domain : name);
}

static int what_read(struct what_if *w, const struct args *a, struct hearth_error *err)
{
    int rc = what_pages(w, 0, &w->l, err);

    if (rc)
        return rc;
    snprintf(w->node, sizeof(w->node), "%s", w->l.node);
    what_coordinator(w);
    rc = what_manifests(w, err);
    if (rc)
        return rc;
    w->gone = calloc(w->l.nodes, sizeof(*w->gone));
    if (!w->gone)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory");
    for (int i = 1; i < a->count && !rc; i++)
        rc = what_mark(w, a->value[i], err);
    what_rate(w);
    return rc;
}

static enum status what_judge(const struct what_if *w, const struct args *a)
{
    struct hearth_error err = { 0 };
    struct loss_verdict v;
    enum status status;

    if (losses_judge(&w->l, w->gone, &v)) {
        hth_fail(&err, HEARTH_ENOMEM, 0, "no memory");
        return complain(&err);
    }
    if (!a->json)
        return what_say(w, &v);
    status = print_json(what_json(w, &v));
    return status ? status : what_status(w, &v);
}

static int what_pairs_wanted(const struct args *a, uint32_t *out)
{
    const char *text = a->worst;
    unsigned long n;
    char *end;

    *out = 0;
    if (!text)
        return HEARTH_OK;
    errno = 0;
    n = strtoul(text, &end, 10);
    *out = (uint32_t)n;
    return *text < '0' || *text > '9' || *end || errno || !n || n > PAIRS_MAX ? HEARTH_EINVAL
                                                                              : HEARTH_OK;
}

enum status run_what_if(const struct args *a)
{
    struct hearth_error err = { 0 };
    struct what_if w = { .job = -1 };
    enum status status;
    uint32_t worst;
    int rc;

    if (!a->root)
        return complain_usage("what-if: which root? give --root or HEARTH_ROOT");
    if (what_pairs_wanted(a, &worst))
        return complain_usage("what-if: --worst takes a number from 1 to %u", PAIRS_MAX);
    rc = job_open(a->root, a->value[0], &w.job, &err);
    rc = rc ? rc : job_check(w.job, a->value[0], &err);
    if (rc == HEARTH_ENOENT)
        job_unknown(a->root, a->value[0], &err);
    rc = rc ? rc : what_read(&w, a, &err);
    status = rc ? complain(&err) : worst ? what_worst(&w, a, worst) : what_judge(&w, a);
    losses_free(&w.l);
    free(w.gone);
    if (w.job >= 0)
        close(w.job);
    return status;
}
