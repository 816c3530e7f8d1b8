/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodes: the members of a running job, those that are not well first. State, copies and places are
 * what this node's engine knows; fabric, version and room are what each member's engine answers.
 */
#include "field.h"
#include "running.h"

#include <stdlib.h>
#include <string.h>

struct nodes {
    json_t *rows; /* of NODES, all pages; each gets "answer" or "unanswered" */
    json_int_t members;
    json_t *as_of;
};

static int nodes_read(struct nodes *n, int job, struct hearth_error *err)
{
    uint32_t skip = 0, count;

    n->rows = json_array();
    do {
        json_t *page = engine_members(job, skip, err), *rows = json_object_get(page, "nodes");

        if (!json_is_array(rows)) {
            json_decref(page);
            return page ? hth_fail(err, HEARTH_EPROTO, 0, "the engine's answer cannot be read")
                        : err->code;
        }
        count = (uint32_t)json_array_size(rows);
        json_array_extend(n->rows, rows);
        n->members = field_int(page, "members");
        json_decref(n->as_of);
        n->as_of = json_incref(json_object_get(page, "as_of_ms"));
        json_decref(page);
        skip += count;
    } while (count && skip < n->members);
    return HEARTH_OK;
}

static void nodes_heard(
        void *self, uint32_t member, const char *text, const struct hearth_error *err)
{
    struct nodes *n = self;
    json_t *row = json_array_get(n->rows, member),
           *status = text ? json_loads(text, 0, NULL) : NULL;

    if (json_is_object(status))
        json_object_set(row, "answer", status);
    else
        json_object_set_new(row, "unanswered",
                err ? json_text(err->text, strlen(err->text))
                    : json_string("its answer cannot be read"));
    json_decref(status);
}

static void nodes_ask(struct nodes *n, int job)
{
    struct everywhere e = { .members = (uint32_t)json_array_size(n->rows),
        .type = HTH_LOCAL_STATUS,
        .heard = nodes_heard,
        .self = n };

    if (engine_everywhere(job, &e, NULL))
        return; /* those that were not asked stay without an answer */
}

/* ---- For people ------------------------------------------------------------------------------ */

/* Of a row, the worst first. */
static int row_rank(const json_t *row)
{
    static const char *const words[] = { "lost", "unreachable", "silent", "", "ok" };
    const char *state = field_text(row, "state");
    int i = 0;

    while (i < 4 && strcmp(words[i], state) != 0)
        i++;
    return i;
}

static void row_number(struct grid *g, const json_t *row, const char *key)
{
    if (json_is_integer(json_object_get(row, key)))
        grid_add(g, "%" JSON_INTEGER_FORMAT, field_int(row, key));
    else
        grid_add(g, "%s", "-");
}

static void row_text(struct grid *g, const json_t *row, const char *key)
{
    const char *text = field_text(row, key);

    grid_add(g, "%s", text[0] ? text : "-");
}

/* The machine, then the domains of the user's, narrowest first. */
static void row_domains(const json_t *row, char out[200])
{
    const json_t *domains = json_object_get(row, "domains");
    const json_t *levels = json_object_get(domains, "levels");
    const char *machine = field_text(domains, "machine");
    size_t n = (size_t)snprintf(out, 200, "%.64s", machine);

    for (size_t i = 0; i < json_array_size(levels) && n < 150; i++)
        n += (size_t)snprintf(out + n, 200 - n, "%s%.30s", n ? "/" : "",
                json_string_value(json_array_get(levels, i)));
    if (!n)
        snprintf(out, 200, "-");
}

static void row_room(const json_t *answer, char out[32])
{
    uint64_t unused, spare = 0;

    if (field_bytes(json_object_get(answer, "room"), "free", &unused)) {
        (void)field_bytes(json_object_get(answer, "room"), "spare", &spare);
        human(out, unused + spare);
    } else {
        snprintf(out, 32, "-");
    }
}

static void nodes_add(struct grid *g, const json_t *row)
{
    const json_t *answer = json_object_get(row, "answer");
    char since[32] = "-", domains[200], room[32];

    if (json_is_integer(json_object_get(row, "since_s")))
        human_age(since, field_int(row, "since_s"));
    row_text(g, row, "node");
    grid_add(g, "%s", field_text(row, "state")[0] ? field_text(row, "state") : "not known");
    grid_add(g, "%s", since);
    row_number(g, row, "ranks");
    row_number(g, row, "holds");
    row_number(g, row, "owes");
    row_room(answer, room);
    grid_add(g, "%s", room);
    row_text(g, answer, "fabric");
    row_text(g, answer, "version");
    row_domains(row, domains);
    grid_add(g, "%s", domains);
    row_text(g, row, "address");
}

static void nodes_print(const struct nodes *n)
{
    static const char *const titles[] = { "NODE", "STATE", "SINCE", "RANKS", "HOLDS", "OWES",
        "ROOM", "FABRIC", "VERSION", "DOMAINS", "ADDRESS" };
    struct grid g = { .columns = 11, .needed = 6 };

    grid_titles(&g, titles);
    for (int rank = 0; rank < 5; rank++)
        for (size_t i = 0; i < json_array_size(n->rows); i++)
            if (row_rank(json_array_get(n->rows, i)) == rank)
                nodes_add(&g, json_array_get(n->rows, i));
    grid_print(&g, "lsrrrrrllll");
    grid_free(&g);
}

/* ---- For programs ---------------------------------------------------------------------------- */

static json_t *nodes_json_row(const json_t *row)
{
    static const char *const known[] = { "node", "member", "address", "domains", "state", "since_s",
        "ranks", "holds", "owes" };
    static const char *const told[] = { "fabric", "version", "room", "behind", "pulled_bytes" };
    const json_t *answer = json_object_get(row, "answer");
    json_t *out = json_object(), *v;

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        json_object_set_new(
                out, known[i], (v = json_object_get(row, known[i])) ? json_incref(v) : json_null());
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++)
        json_object_set_new(out, told[i],
                (v = json_object_get(answer, told[i])) ? json_incref(v) : json_null());
    json_object_set_new(out, "unanswered",
            (v = json_object_get(row, "unanswered")) ? json_incref(v) : json_null());
    return out;
}

static enum status nodes_json(const struct nodes *n, const struct running *job)
{
    json_t *rows = json_array();

    for (size_t i = 0; i < json_array_size(n->rows); i++)
        json_array_append_new(rows, nodes_json_row(json_array_get(n->rows, i)));
    return print_json(json_pack("{s:o, s:s, s:o, s:I, s:o}", "job",
            json_text(job->name, strlen(job->name)), "asked", field_text(job->status, "node"),
            "as_of_ms", n->as_of ? json_incref(n->as_of) : json_null(), "members", n->members,
            "nodes", rows));
}

enum status run_nodes(const struct args *a)
{
    struct hearth_error err = { 0 };
    struct nodes n = { .rows = NULL };
    struct running job;
    enum status status = STATUS_OK;
    int rc;

    if (!a->root)
        return complain_usage("nodes needs --root, or HEARTH_ROOT set: the tmpfs that is Hearth's");
    rc = running_need(a->root, a->value[0], &job, &err);
    rc = rc ? rc : nodes_read(&n, job.fd, &err);
    if (!rc && !json_array_size(n.rows))
        rc = hth_fail(&err, HEARTH_ENOENT, 0,
                "the engine of job '%.64s' has joined no epoch: it knows of no node", job.name);
    if (rc) {
        status = complain(&err);
    } else {
        nodes_ask(&n, job.fd);
        if (a->json)
            status = nodes_json(&n, &job);
        else
            nodes_print(&n);
        for (size_t i = 0; i < json_array_size(n.rows) && !status; i++)
            status = row_rank(json_array_get(n.rows, i)) < 4 ? STATUS_WRONG : STATUS_OK;
    }
    running_free(&job);
    json_decref(n.rows);
    json_decref(n.as_of);
    return status;
}
