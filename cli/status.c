/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status: whether all is well with a job, as the engine of this node knows it. The engine judges
 * (engine/job/health.h has the checks); only that no engine answers is judged here. What the engine
 * does not know is said to be unknown.
 */
#include "field.h"
#include "running.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STALE_MS 3000 /* what the coordinator said longer ago is told in the past tense */

/* The state of a job, the best first. */
enum state { STATE_WELL, STATE_UNKNOWN, STATE_RISK, STATE_BROKEN };

static const struct {
    const char *word;
    enum status status;
} states[] = {
    [STATE_WELL] = { "well", STATUS_OK },
    [STATE_UNKNOWN] = { "not known", STATUS_WRONG },
    [STATE_RISK] = { "at risk", STATUS_WRONG },
    [STATE_BROKEN] = { "broken", STATUS_USAGE }, /* 2, as the page of the command has it */
};

struct look {
    struct running job;
    enum state state;
    json_t *checks;    /* the worst first */
    json_t *away;      /* rows of members that are not "ok"; NULL: not known */
    json_int_t unsure; /* members whose state the engine does not know */
};

static void look_free(struct look *l)
{
    running_free(&l->job);
    json_decref(l->checks);
    json_decref(l->away);
}

static void look_at_health(struct look *l)
{
    const json_t *health = json_object_get(l->job.status, "health");
    const char *word = field_text(health, "state");
    json_t *checks = json_object_get(health, "checks");

    l->state = STATE_UNKNOWN;
    for (int i = STATE_WELL; i <= STATE_BROKEN; i++)
        if (!strcmp(word, states[i].word))
            l->state = (enum state)i;
    if (json_is_array(checks))
        l->checks = json_incref(checks);
    else
        l->checks = json_pack("[{s:s, s:i, s:s}]", "name", "not_known", "level", 1, "text",
                "The engine is of a version that does not say how all is");
}

/* Members that are not well, of all pages. */
static void look_at_members(struct look *l)
{
    json_t *away = json_array();
    uint32_t skip = 0, count;
    json_int_t members;

    do {
        json_t *page = engine_members(l->job.fd, skip, NULL);
        const json_t *rows = json_object_get(page, "nodes");

        count = (uint32_t)json_array_size(rows);
        members = field_int(page, "members");
        if (!json_is_array(rows)) {
            json_decref(page);
            json_decref(away);
            return;
        }
        for (size_t i = 0; i < count; i++) {
            json_t *row = json_array_get(rows, i);

            l->unsure += json_is_null(json_object_get(row, "state"));
            if (strcmp(field_text(row, "state"), "ok") != 0 && field_text(row, "state")[0])
                json_array_append(away, row);
        }
        json_decref(page);
        skip += count;
    } while (count && skip < members);
    l->away = away;
}

/* Errors: as running_open(). */
static int look_at(const struct args *a, const char *name, struct look *l, struct hearth_error *err)
{
    int rc = running_open(a->root, name, &l->job, err);

    *l = (struct look){ .job = l->job, .state = STATE_BROKEN };
    if (rc)
        return rc;
    if (l->job.status) {
        look_at_health(l);
        look_at_members(l);
    } else if (l->job.is_others) {
        l->state = STATE_UNKNOWN;
        l->checks =
                json_pack("[{s:s, s:i, s:s}]", "name", "not_known", "level", 1, "text", l->job.why);
    } else if (l->job.why[0]) {
        l->checks = json_pack(
                "[{s:s, s:i, s:s}]", "name", "engine_gone", "level", 2, "text", l->job.why);
    }
    return HEARTH_OK;
}

/* ---- For people ------------------------------------------------------------------------------ */

static void status_print_checks(const json_t *checks)
{
    struct grid g = { .columns = 2 };
    const json_t *check;
    size_t i;

    for (i = 0; i < json_array_size(checks); i++) {
        check = json_array_get(checks, i);
        grid_add(&g, "  %s", field_text(check, "name"));
        grid_add(&g, "%s", field_text(check, "text"));
    }
    grid_print(&g, "ll");
    grid_free(&g);
}

/* "12.3 s", or longer units. */
static void status_age(double seconds, char out[32])
{
    if (seconds < 10)
        snprintf(out, 32, "%.1f s", seconds);
    else
        human_age(out, (int64_t)seconds);
}

static void status_print_newest(const json_t *status)
{
    const json_t *newest = json_object_get(status, "newest_protected");
    const json_t *intervals = json_object_get(newest, "intervals");
    const char *state = field_text(newest, "state");
    char age[32], every[32], step[24];

    if (!json_is_object(newest)) {
        say_field("newest", json_is_null(newest) ? "no save is protected" : "not known");
        return;
    }
    status_age(json_number_value(json_object_get(newest, "age_s")), age);
    status_age(json_number_value(json_object_get(status, "interval_s")), every);
    if (json_is_number(intervals))
        say_field("newest", "step %s, %s, %s old: %.1f save intervals of %s%s",
                field_number(newest, "step", step), state[0] ? state : "protected", age,
                json_number_value(intervals), every,
                strcmp(state, "kept") ? "" : "; whether its copies are there is not known now");
    else
        say_field("newest", "step %s, %s, %s old; how often it saves is not known yet%s",
                field_number(newest, "step", step), state[0] ? state : "protected", age,
                strcmp(state, "kept") ? "" : "; nor whether its copies are there");
}

static void status_print_copies(const json_t *status)
{
    const json_t *copies = json_object_get(status, "copies");
    json_int_t below = field_int(copies, "below"), crowded = field_int(copies, "no_domain");
    const json_t *as_of = json_object_get(status, "as_of_ms");
    char more[100] = "";

    if (!json_is_object(copies)) {
        say_field("copies", "not known");
        return;
    }
    if (crowded > 0)
        snprintf(more, sizeof(more), "; %lld of each object have no failure domain of their own",
                (long long)crowded);
    if (json_is_integer(as_of) && json_integer_value(as_of) < STALE_MS)
        say_field("copies", "%lld asked for; %lld saves have fewer%s",
                (long long)field_int(copies, "asked"), (long long)below, more);
    else if (json_is_integer(as_of))
        say_field("copies", "%lld asked for; %lld saves had fewer %lld s ago%s",
                (long long)field_int(copies, "asked"), (long long)below,
                (long long)json_integer_value(as_of) / 1000, more);
    else
        say_field("copies", "%lld asked for; how many there are is not known%s",
                (long long)field_int(copies, "asked"), more);
}

/* "n2 lost for 14 s, n3 silent for 2 s"; at most eight. */
static void status_away(const json_t *away, char out[600])
{
    size_t n = 0, count = json_array_size(away);

    out[0] = '\0';
    for (size_t i = 0; i < count && i < 8 && n < 500; i++) {
        const json_t *row = json_array_get(away, i);
        char since[32];

        human_age(since, field_int(row, "since_s"));
        n += (size_t)snprintf(out + n, 600 - n, "%s%.64s %s for %s", i ? ", " : "",
                field_text(row, "node"), field_text(row, "state"), since);
        if (i == 7 && count > 8)
            snprintf(out + n, 600 - n, ", and %zu more", count - 8);
    }
}

static void status_print_nodes(const struct look *l)
{
    long long members = (long long)field_int(l->job.status, "members");
    char away[600];

    if (!l->away) {
        say_field("nodes", "%lld; which of them are well is not known", members);
        return;
    }
    status_away(l->away, away);
    if (away[0])
        say_field("nodes", "%lld: %s%s", members, away,
                l->unsure ? "; of others it is not known" : "");
    else if (l->unsure)
        say_field("nodes", "%lld; the state of %lld is not known", members, (long long)l->unsure);
    else
        say_field("nodes", "%lld, all well as far as node %s knows", members,
                field_text(l->job.status, "node"));
}

static void status_print_behind(const json_t *status)
{
    const json_t *behind = json_object_get(status, "behind");
    uint64_t bytes = 0;
    char size[32], oldest[32];

    if (!json_is_object(behind)) {
        say_field("behind", "not known");
        return;
    }
    (void)field_bytes(behind, "bytes", &bytes);
    human(size, bytes);
    human_age(oldest, field_int(behind, "oldest_s"));
    if (!bytes && !field_int(behind, "saves"))
        say_field("behind", "nothing: this node has all copies that it knows it is to hold");
    else
        say_field("behind", "%lld saves, the oldest for %s; %s to be pulled by this node",
                (long long)field_int(behind, "saves"), oldest, size);
}

static void status_print_room(const json_t *status)
{
    const json_t *room = json_object_get(status, "room");
    uint64_t kept = 0, undecided = 0, copies = 0, unused = 0, spare = 0, size, left;
    char a[32], b[32], c[32], d[32], e[32], limit[100] = "";

    if (!json_is_object(room)) {
        say_field("room", "not known");
        return;
    }
    (void)field_bytes(room, "kept", &kept), (void)field_bytes(room, "undecided", &undecided);
    (void)field_bytes(room, "copies", &copies), (void)field_bytes(room, "free", &unused);
    human(a, kept), human(b, copies), human(c, undecided), human(d, unused);
    if (field_bytes(room, "tmpfs_size", &size) && field_bytes(room, "tmpfs_free", &left)) {
        char whole[32];

        human(e, left), human(whole, size);
        snprintf(limit, sizeof(limit), "; mount: %s of %s free", e, whole);
    }
    if (field_bytes(room, "spare", &spare)) {
        human(e, spare);
        say_field("room", "saves %s, copies %s, undecided %s, free slots %s, %s more can be had%s",
                a, b, c, d, e, limit);
    } else {
        say_field("room", "saves %s, copies %s, undecided %s, free slots %s%s", a, b, c, d, limit);
    }
}

static void status_print_source(const json_t *status)
{
    const json_t *as_of = json_object_get(status, "as_of_ms");
    char ago[48] = "an unknown time";

    if (json_is_integer(as_of))
        snprintf(ago, sizeof(ago), "%.1f s ago", (double)json_integer_value(as_of) / 1000.0);
    say_field("as of", "%s, by the coordinator, node %s; asked on node %s (%s, Hearth %s)", ago,
            field_text(status, "coordinator"), field_text(status, "node"),
            field_text(status, "fabric"), field_text(status, "version"));
}

static void status_print(const struct look *l)
{
    say("%s: ", l->job.name);
    say_state(states[l->state].word);
    puts("");
    if (json_array_size(l->checks))
        status_print_checks(l->checks);
    if (!l->job.status)
        return;
    status_print_newest(l->job.status);
    status_print_copies(l->job.status);
    status_print_nodes(l);
    status_print_behind(l->job.status);
    status_print_room(l->job.status);
    status_print_source(l->job.status);
}

/* ---- All jobs -------------------------------------------------------------------------------- */

static void status_add_row(struct grid *g, const struct look *l)
{
    const json_t *newest = json_object_get(l->job.status, "newest_protected");
    char age[32] = "-", why[400] = "", step[24];
    size_t n = 0;

    if (json_is_object(newest))
        status_age(json_number_value(json_object_get(newest, "age_s")), age);
    for (size_t i = 0; i < json_array_size(l->checks) && n < 300; i++)
        n += (size_t)snprintf(why + n, sizeof(why) - n, "%s%.40s", i ? ", " : "",
                field_text(json_array_get(l->checks, i), "name"));
    grid_add(g, "%s", l->job.name);
    grid_add(g, "%s", states[l->state].word);
    if (json_is_object(newest))
        grid_add(g, "%s", field_number(newest, "step", step));
    else
        grid_add(g, "%s", "-");
    grid_add(g, "%s", age);
    if (l->job.status)
        grid_add(g, "%lld", (long long)field_int(l->job.status, "members"));
    else
        grid_add(g, "%s", "-");
    grid_add(g, "%s", why[0] ? why : "-");
}

static json_t *json_look(const struct look *l)
{
    return json_pack("{s:o, s:s, s:O, s:o, s:o}", "job",
            json_text(l->job.name, strlen(l->job.name)), "state", states[l->state].word, "checks",
            l->checks, "away", l->away ? json_incref(l->away) : json_null(), "status",
            l->job.status ? json_incref(l->job.status) : json_null());
}

struct looks {
    struct look *at; /* [count] */
    size_t count;
    unsigned closed; /* jobs that this user may not look into */
};

/* The worst first; of one state by name. */
static int looks_compare(const void *a, const void *b)
{
    const struct look *x = a, *y = b;

    return x->state != y->state ? (int)y->state - (int)x->state : strcmp(x->job.name, y->job.name);
}

/* 1: it runs, or should. */
static int looks_add(struct looks *all, const struct args *a, const char *name)
{
    struct look *more = realloc(all->at, (all->count + 1) * sizeof(*more));
    struct hearth_error err = { 0 };

    if (!more)
        return 0;
    all->at = more;
    more += all->count;
    memset(more, 0, sizeof(*more));
    if (look_at(a, name, more, &err)) {
        if (err.code != HEARTH_ENOENT)
            note("%s", err.text);
        all->closed += err.native == EACCES;
    } else if (more->checks) {
        all->count++;
        return 1;
    }
    look_free(more);
    return 0;
}

static void looks_print(const struct looks *all, const struct args *a, enum status *printed)
{
    static const char *const titles[] = { "JOB", "STATE", "NEWEST", "AGE", "NODES", "CHECKS" };
    struct grid g = { .columns = 6 };
    json_t *jobs = json_array();

    grid_titles(&g, titles);
    for (size_t i = 0; i < all->count; i++) {
        status_add_row(&g, &all->at[i]);
        json_array_append_new(jobs, json_look(&all->at[i]));
    }
    if (a->json)
        *printed = print_json(json_pack("{s:O}", "jobs", jobs));
    else
        grid_print(&g, "lsrrrl");
    json_decref(jobs);
    grid_free(&g);
}

static enum status status_all(const struct args *a)
{
    struct hearth_error err = { 0 };
    enum status status = STATUS_OK, printed = STATUS_OK;
    struct looks all = { NULL, 0, 0 };
    char **names = running_names(a->root, &err);

    if (!names)
        return complain(&err);
    for (size_t i = 0; names[i]; i++)
        looks_add(&all, a, names[i]);
    names_free(names);
    if (all.count) {
        qsort(all.at, all.count, sizeof(*all.at), looks_compare);
        status = states[all.at[0].state].status;
        looks_print(&all, a, &printed);
    } else if (all.closed) {
        hth_fail(&err, HEARTH_EIO, EACCES,
                "%u jobs of %.300s are other users': whether their engines run is not known; ask "
                "as their users or as root",
                all.closed, a->root);
        status = complain(&err);
    } else {
        hth_fail(&err, HEARTH_ENOENT, 0,
                "no engine runs on a job of %.300s: hearth ls shows what lies there", a->root);
        status = complain(&err);
    }
    for (size_t i = 0; i < all.count; i++)
        look_free(&all.at[i]);
    free(all.at);
    return printed ? printed : status;
}

static enum status status_one(const struct args *a)
{
    struct hearth_error err = { 0 };
    struct look l = { .unsure = 0 };
    enum status status = STATUS_OK;
    int rc = look_at(a, a->value[0], &l, &err);

    if (!rc && !l.checks)
        rc = hth_fail(&err, HEARTH_ENOENT, 0,
                "no engine runs on job '%.64s', and the last one ended in order: hearth ls shows "
                "what lies here",
                a->value[0]);
    if (rc)
        status = complain(&err);
    else if (a->json)
        status = print_json(json_look(&l));
    else
        status_print(&l);
    if (!status)
        status = states[l.state].status;
    look_free(&l);
    return status;
}

/* For probes: an engine that answers is not to be killed, however ill the job is. It has the only
 * copies of what other nodes lost. */
static enum status status_alive(const struct args *a)
{
    struct hearth_error err = { 0 };
    struct running job;
    int rc;

    if (!a->count || a->json)
        return complain_usage("status: --alive needs a job, and does not go with --json");
    rc = running_need(a->root, a->value[0], &job, &err);
    if (!rc)
        say("%s: the engine answers\n", job.name);
    running_free(&job);
    return rc ? complain(&err) : STATUS_OK;
}

enum status run_status(const struct args *a)
{
    if (!a->root)
        return complain_usage(
                "status needs --root, or HEARTH_ROOT set: the tmpfs that is Hearth's");
    if (a->alive)
        return status_alive(a);
    return a->count ? status_one(a) : status_all(a);
}
