/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What engines say of themselves and of others (STATUS, NODES), asked at random times of random
 * ones, and the judge of it. It has notes of its own: which machine was cut off, stopped, killed or
 * muted, and until when; when which save was decided; what was planted. A false word is P9.
 *
 * A question changes nothing in an engine, comes when something happens anyway, and has dice of its
 * own: a world's history is the same with and without it.
 */
#include "world_parts.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASKER    (UINT32_MAX - 7) /* the number of a connection that no rank has */
#define EVERY_MS 400u
#define SLACK_MS 60u /* for messages, and ticks, on the way of a change to each node */

struct notes {         /* of one machine */
    uint64_t bad_ms;   /* since when something is wrong with it; 0: nothing is */
    uint64_t dead_ms;  /* since when nothing comes from it and goes to it; 0: something may */
    uint64_t until_ms; /* when something was wrong with it last ... */
    uint64_t noise_ms; /* ... and when a message or pull of it was lost, late or doubled */
    uint32_t mutes;    /* ways between it and others that are cut */
};

struct decided {
    struct hth_save_id id;
    uint64_t ms;
};

struct world_said {
    struct notes *of;        /* [machines] */
    uint8_t *muted;          /* [machines][machines] */
    struct decided *decided; /* newest last */
    size_t decisions;
    uint64_t dice, due_ms, request;
    uint64_t lineage, calm_ms; /* all ranks of that launch have recovered then */
    char *text;                /* of the last answer */
};

struct world_said *said_open(uint64_t seed, uint32_t machines)
{
    struct world_said *s = calloc(1, sizeof(*s));

    if (!s || !(s->of = calloc(machines, sizeof(*s->of))) ||
            !(s->muted = calloc(machines, machines)))
        abort();
    s->dice = seed * 0x9e3779b97f4a7c15u + 77;
    return s;
}

void said_close(struct world_said *s)
{
    free(s->of);
    free(s->muted);
    free(s->decided);
    free(s->text);
    free(s);
}

size_t said_bytes(const struct world_said *s)
{
    return malloc_usable_size(s->decided);
}

/* ---- Notes ----------------------------------------------------------------------------------- */

static int is_dead(const struct machine *x)
{
    return !x->node || x->silent || (x->stopped && !x->blocked);
}

static void note_time(uint64_t *since_ms, int is, uint64_t now_ms)
{
    if (!is)
        *since_ms = 0;
    else if (!*since_ms)
        *since_ms = now_ms;
}

void said_changed(const struct machine *x)
{
    struct world *w = x->world;
    struct notes *n = &w->said->of[x->index];

    note_time(&n->dead_ms, is_dead(x), w->now_ms + 1);
    note_time(&n->bad_ms,
            is_dead(x) || x->stopped || x->dying || n->mutes ||
                    (x->store && mem_of(x->store)->no_records),
            w->now_ms + 1);
    n->until_ms = w->now_ms + 1;
}

void said_muted(struct world *w, uint32_t from, uint32_t to, int on)
{
    uint8_t *is = &w->said->muted[(size_t)from * w->machines + to];
    int more = (on != 0) - (*is != 0);

    *is = on != 0;
    w->said->of[from].mutes += (uint32_t)more;
    w->said->of[to].mutes += (uint32_t)more;
    said_changed(&w->machine[from]);
    said_changed(&w->machine[to]);
}

/* A message between the two was lost, late or doubled. */
void said_noise(struct world *w, uint32_t from_port, uint32_t to_port)
{
    if (from_port && from_port <= w->machines)
        w->said->of[from_port - 1].noise_ms = w->now_ms + 1;
    if (to_port && to_port <= w->machines)
        w->said->of[to_port - 1].noise_ms = w->now_ms + 1;
}

static const struct decided *said_decision(const struct world *w, struct hth_save_id id)
{
    for (size_t i = w->said->decisions; i-- > 0;)
        if (look_same(w->said->decided[i].id, id))
            return &w->said->decided[i];
    return NULL;
}

void said_decided(struct world *w, const struct hth_save_id *keep, uint32_t saves)
{
    struct world_said *s = w->said;

    for (uint32_t i = saves; i-- > 0;) {
        if (said_decision(w, keep[i]))
            continue;
        s->decided = realloc(s->decided, (s->decisions + 1) * sizeof(*s->decided));
        if (!s->decided)
            abort();
        s->decided[s->decisions++] = (struct decided){ keep[i], w->now_ms };
    }
}

/* For so long nothing was wrong with the machine. */
static uint64_t well_for_ms(const struct world *w, uint32_t m)
{
    const struct notes *n = &w->said->of[m];

    return n->bad_ms ? 0 : w->now_ms + 1 - n->until_ms;
}

/* The same of all members but one. */
static uint64_t others_well_ms(const struct world *w, uint32_t but)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < w->opts.nodes; i++)
        if (w->member[i] != but && well_for_ms(w, w->member[i]) < least)
            least = well_for_ms(w, w->member[i]);
    return least;
}

static uint32_t said_degree(const struct world *w)
{
    return w->opts.degree ? w->opts.degree : 32;
}

/* All by way of which x learns of a loss of machine m were well for so long: where the tree has one
 * level, the coordinator and x itself. */
static uint64_t way_well_ms(const struct world *w, const struct machine *x, uint32_t m)
{
    uint64_t first_ms = well_for_ms(w, w->member[0]), own_ms = well_for_ms(w, x->index);

    if (w->opts.nodes > said_degree(w) + 1 || m == w->member[0])
        return others_well_ms(w, m);
    return first_ms < own_ms ? first_ms : own_ms;
}

/* For so long no message of a member was lost, late or doubled. */
static uint64_t quiet_for_ms(const struct world *w)
{
    uint64_t last_ms = 0;

    for (uint32_t i = 0; i < w->opts.nodes; i++)
        if (w->said->of[w->member[i]].noise_ms > last_ms)
            last_ms = w->said->of[w->member[i]].noise_ms;
    return w->now_ms + 1 - last_ms;
}

/* All members have been well, and the net has been. */
static uint64_t all_well_ms(const struct world *w)
{
    uint64_t ms = others_well_ms(w, UINT32_MAX), quiet_ms = quiet_for_ms(w);

    return quiet_ms < ms ? quiet_ms : ms;
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* What follows this key; NULL: it is not there. */
static const char *said_at(const char *text, const char *key)
{
    char quoted[64];
    const char *at;

    snprintf(quoted, sizeof(quoted), "\"%s\": ", key);
    at = text ? strstr(text, quoted) : NULL;
    return at ? at + strlen(quoted) : NULL;
}

static uint64_t said_number(const char *text, const char *key)
{
    const char *at = said_at(text, key);

    return at && *at >= '0' && *at <= '9' ? strtoull(at, NULL, 10) : UINT64_MAX;
}

static int said_is(const char *text, const char *key, const char *word)
{
    const char *at = said_at(text, key);

    return at && !strncmp(at, word, strlen(word));
}

/* The sentence of a check that is raised; NULL: it is not. */
static const char *said_check(const char *text, const char *name)
{
    char quoted[64];
    const char *at = said_at(text, "health");

    snprintf(quoted, sizeof(quoted), "\"name\": \"%s\"", name);
    at = at ? strstr(at, quoted) : NULL;
    return at ? said_at(at, "text") : NULL;
}

static void said_take(struct world *w, uint32_t m)
{
    struct letter **at = &w->letters, *l;

    free(w->said->text);
    w->said->text = NULL;
    while (*at && !((*at)->client == ASKER && (*at)->machine == m))
        at = &(*at)->next;
    if (!(l = *at))
        return;
    *at = l->next;
    w->letters_end = &w->letters;
    while (*w->letters_end)
        w->letters_end = &(*w->letters_end)->next;
    if (!(w->said->text = calloc(1, l->attached + 1)))
        abort();
    memcpy(w->said->text, l->bytes + l->len, l->attached);
    free(l);
}

static const char *said_ask(struct machine *x, enum hth_local_type type)
{
    struct hth_local_nodes m = { .head = { .type = type, .request = ++x->world->said->request } };

    m.head.length = type == HTH_LOCAL_NODES ? sizeof(m) : sizeof(m.head);
    hth_node_request(x->node, ASKER, &m, m.head.length, NULL);
    said_take(x->world, x->index);
    if (!x->world->said->text && !x->dying)
        world_broken(x->world, "P9: machine %u answers nothing to message %u", x->index, type);
    return x->world->said->text;
}

static void said_wrong(const struct machine *x, const char *what)
{
    char part[240];

    snprintf(part, sizeof(part), "%s",
            said_at(x->world->said->text, "health") ? said_at(x->world->said->text, "health") : "");
    world_broken(x->world, "P9: machine %u says %s; %s", x->index, what, part);
}

/* ---- When what has to be known --------------------------------------------------------------- */

static uint64_t its_time(const struct world *w, uint64_t ms)
{
    return fault_is_on(w, WORLD_KIND_CLOCK) ? ms * 10 / 8 : ms;
}

/* A member that its parent watches is dialled by the coordinator before it is lost. What is lost on
 * the way is sent again. */
static uint64_t noticed_ms(const struct world *w, uint32_t member)
{
    const struct world_opts *o = &w->opts;

    return its_time(w, o->dead_ms + 2 * (uint64_t)o->heartbeat_ms +
                               (member > said_degree(w) ? o->connect_ms : 0)) +
           SLACK_MS;
}

/* All ranks have recovered, for so long; the engine is in their epoch. */
static uint64_t calm_for_ms(const struct world *w, const struct machine *x)
{
    const struct hth_ctx *ctx = hth_node_ctx(x->node);

    if (w->recovered < w->ranks || w->restart_ms != HTH_NEVER || !ctx->epoch ||
            ctx->epoch->epoch != w->rank[0].epoch || ctx->epoch->nonce != w->rank[0].nonce ||
            w->said->lineage != w->lineage)
        return 0;
    return w->now_ms - w->said->calm_ms;
}

/* ---- The judge ------------------------------------------------------------------------------- */

/* After that time all that was wrong is known to be over. */
static uint64_t over_ms(const struct world *w)
{
    return its_time(w, 6 * (uint64_t)w->opts.dead_ms + w->opts.connect_ms + 2000);
}

/* All has been well for long: no engine says otherwise of nodes. */
static void judge_alarm(const struct machine *x, const char *text)
{
    static const char *const names[] = { "engine_gone", "epoch_failed", "coordinator_silent",
        "object_lost", "not_running", "node_lost", "node_unreachable" };
    struct world *w = x->world;

    if (calm_for_ms(w, x) < over_ms(w) || all_well_ms(w) < over_ms(w) || ill_any(w))
        return;
    w->count[WORLD_SAID_CALM]++;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (said_check(text, names[i]))
            said_wrong(x, "that a node is not well, and all have been for long");
    if (said_is(text, "as_of_ms", "null"))
        said_wrong(x, "that it has not heard of the coordinator, and it has");
}

/* A machine from which nothing has come for long enough, while all others were well. */
static void judge_well(const struct machine *x, const char *text)
{
    struct world *w = x->world;

    for (uint32_t i = 0; i < w->opts.nodes; i++) {
        uint32_t m = w->member[i];
        uint64_t ms = w->said->of[m].dead_ms ? w->now_ms + 1 - w->said->of[m].dead_ms : 0;
        uint64_t most_ms = noticed_ms(w, i) + (i ? 0 : w->opts.nodes * w->opts.heartbeat_ms);

        if (m == x->index || ms <= most_ms || calm_for_ms(w, x) < ms + w->opts.dead_ms ||
                way_well_ms(w, x, m) < ms + w->opts.dead_ms)
            continue;
        w->count[WORLD_SAID_DEAD]++;
        if (said_is(text, "state", "\"well\"") ||
                said_is(said_at(text, "health"), "state", "\"well\""))
            said_wrong(x, "that all is well, and a machine is dead");
        if (i && !said_check(text, "node_lost"))
            said_wrong(x, "nothing of a machine that is dead");
        if (!i && !said_check(text, "coordinator_silent"))
            said_wrong(x, "nothing of a coordinator that is dead");
    }
}

/* The newest protected save is one that a coordinator has written, and none that is newer was
 * written long ago. */
static void judge_newest(const struct machine *x, const char *text)
{
    struct world *w = x->world;
    const char *at = said_at(text, "newest_protected");
    uint64_t step = said_number(at, "step");
    const struct decided *d = NULL;
    int sure = said_is(at, "state", "\"protected\"") || said_is(at, "state", "\"degraded\"");

    if (!at || *at == 'n')
        return;
    for (size_t i = w->said->decisions; i-- > 0 && !d;)
        if (w->said->decided[i].id.step == step)
            d = &w->said->decided[i];
    if (!d) {
        said_wrong(x, "that a save is PROTECTED which no coordinator has written");
        return;
    }
    if (!sure || calm_for_ms(w, x) < over_ms(w) || all_well_ms(w) < over_ms(w) || w->beyond ||
            w->gone)
        return;
    w->count[WORLD_SAID_NEW]++;
    for (size_t i = 0; i < w->said->decisions; i++)
        if (w->said->decided[i].id.epoch == w->rank[0].epoch &&
                w->said->decided[i].ms + noticed_ms(w, 0) < w->now_ms &&
                w->said->decided[i].id.step > step)
            said_wrong(x, "that an older save is the newest");
}

/* Its age, by clocks that go alike. */
static void judge_age(const struct machine *x, const char *text)
{
    struct world *w = x->world;
    const char *at = said_at(text, "newest_protected");
    uint64_t step = said_number(at, "step"), first_ms = UINT64_MAX, last_ms = 0, age_ms;
    const char *age = at ? said_at(at, "age_s") : NULL;

    if (!at || *at == 'n' || !age || fault_is_on(w, WORLD_KIND_CLOCK))
        return;
    age_ms = (uint64_t)(strtod(age, NULL) * 1000 + 0.5);
    for (size_t i = 0; i < w->said->decisions; i++)
        if (w->said->decided[i].id.step == step) {
            first_ms = w->said->decided[i].ms < first_ms ? w->said->decided[i].ms : first_ms;
            last_ms = w->said->decided[i].ms;
        }
    if (first_ms == UINT64_MAX)
        return;
    /* it is younger here by the time that the head needed, and no more than a second is cut off */
    if (age_ms > w->now_ms - first_ms + 1500 + x->ahead_ms)
        said_wrong(x, "that the newest save is older than it is");
    if (all_well_ms(w) > over_ms(w) && age_ms + 1500 + over_ms(w) < w->now_ms - last_ms)
        said_wrong(x, "that the newest save is younger than it is");
}

/* Wrong bytes are found only where some were planted. */
static void judge_bytes(const struct machine *x, const char *text)
{
    const struct world *w = x->world;

    if (w->hits[WORLD_KIND_ROT] || w->hits[WORLD_KIND_FLIP] || w->count[WORLD_FLIP])
        return;
    if (said_check(text, "checksum_error"))
        said_wrong(x, "that bytes are wrong, and none were changed");
}

/* An object that is called lost is on no machine that is well. */
static void judge_lost_object(const struct machine *x, const char *text)
{
    struct world *w = x->world;
    const char *at = said_check(text, "object_lost");
    unsigned long long step;
    unsigned rank;
    struct look_object o;

    if (!at ||
            sscanf(at, "\"Of step %llu, which is kept, this node has to hold the object of rank %u",
                    &step, &rank) != 2)
        return;
    for (uint32_t i = 0; i < w->opts.nodes; i++) {
        struct machine *other = &w->machine[w->member[i]];

        if (!other->store || other == x || well_for_ms(w, other->index) < over_ms(w))
            continue;
        for (const struct slot *s = mem_of(other->store)->slots; s; s = s->next)
            if (look_slot(s, &o) && o.save.step == step && o.rank == rank && look_whole(s, &o))
                said_wrong(x, "that no node has an object which one has");
    }
}

/* Slots are what the memory has. */
static void judge_room(const struct machine *x, const char *text)
{
    const char *at = said_at(text, "room");
    uint64_t slots = 0, free_bytes = 0, in_use;

    for (const struct slot *s = mem_of(x->store)->slots; s; s = s->next) {
        slots += s->pub.capacity;
        free_bytes += s->state == FREE ? s->pub.capacity : 0;
    }
    in_use = said_number(at, "kept") + said_number(at, "undecided") + said_number(at, "copies");
    if (said_number(at, "reserved") != slots || said_number(at, "free") != free_bytes ||
            in_use + free_bytes > slots)
        said_wrong(x, "other room than its memory has");
}

static void judge_status(const struct machine *x, const char *text)
{
    judge_alarm(x, text);
    judge_well(x, text);
    judge_newest(x, text);
    judge_age(x, text);
    judge_bytes(x, text);
    judge_lost_object(x, text);
    judge_room(x, text);
}

/* One member, as x says of it. */
static void judge_member(const struct machine *x, const char *at, uint32_t i)
{
    struct world *w = x->world;
    const struct notes *n = &w->said->of[w->member[i]];
    uint64_t ms = n->dead_ms ? w->now_ms + 1 - n->dead_ms : 0;

    if (said_is(at, "state", "\"lost\"") && all_well_ms(w) > over_ms(w))
        said_wrong(x, "that a node is lost, which is not, nor was any for long");
    if (w->member[i] == x->index || !said_is(at, "state", "\"ok\""))
        return;
    if (ms > noticed_ms(w, i) + (i ? 0 : w->opts.nodes * w->opts.heartbeat_ms) &&
            calm_for_ms(w, x) > ms + w->opts.dead_ms &&
            way_well_ms(w, x, w->member[i]) > ms + w->opts.dead_ms)
        said_wrong(x, "that a node is ok, which is dead");
}

static void judge_nodes(const struct machine *x, const char *text)
{
    struct world *w = x->world;
    const char *at = text;
    char name[32];

    if (!calm_for_ms(w, x))
        return;
    if (said_number(text, "members") != w->opts.nodes)
        said_wrong(x, "another number of members than there are");
    for (uint32_t i = 0; i < w->opts.nodes && i < HTH_NODES_PAGE && at; i++) {
        snprintf(name, sizeof(name), "{\"node\": \"m%u\", \"member\": %u,", w->member[i], i);
        at = strstr(at, name);
        if (at)
            judge_member(x, at, i);
    }
    if (!at)
        said_wrong(x, "other members than there are");
}

/* ---- Time ------------------------------------------------------------------------------------ */

static int said_asks(const struct world *w)
{
    return w->opts.faults && (!w->opts.breaks || w->opts.breaks == HTH_BREAK_VOUCH);
}

/* For longer than it takes to notice that. */
static int one_is_dead(const struct world *w)
{
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        if (w->said->of[w->member[i]].dead_ms &&
                w->now_ms > w->said->of[w->member[i]].dead_ms + w->opts.dead_ms)
            return 1;
    return 0;
}

void said_act(struct world *w)
{
    struct world_said *s = w->said;
    struct machine *x;

    if (!said_asks(w))
        return;
    if (w->recovered == w->ranks && s->lineage != w->lineage) {
        s->lineage = w->lineage;
        s->calm_ms = w->now_ms;
    }
    if (w->now_ms < s->due_ms)
        return;
    s->due_ms = w->now_ms + 1 + world_roll_of(&s->dice, one_is_dead(w) ? EVERY_MS / 10 : EVERY_MS);
    x = &w->machine[w->member[world_roll_of(&s->dice, w->opts.nodes)]];
    if (!x->node || x->stopped || x->dying || w->runs)
        return;
    w->count[WORLD_SAID]++;
    judge_status(x, said_ask(x, HTH_LOCAL_STATUS));
    if (!w->why[0])
        judge_nodes(x, said_ask(x, HTH_LOCAL_NODES));
}
