/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world rolled from a seed: machines, ranks, copies, sizes; then rounds of what may happen to it
 * at any time, never more at once than its copies are for. After some the ranks are started again,
 * through others they live on. After each: the newest step that was PROTECTED is there, bit for
 * bit; within a bounded time the job saves on; each copy of what it saved is the same to the last
 * byte; no engine has crashed. At the end no engine and no memory weighs more than it did.
 */
#include "cluster.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RANKS_MOST 12u /* of a world, so that it is quick */
#define SAVE_MS    10000u
#define GO_ON_MS \
    (SAVE_MS + 20000) /* until a save is PROTECTED after the last fault: one may be undecided */

/* What an engine that has lived through rounds may weigh more than after its first. */
#define MORE_KIB       4096u
#define MORE_FILES     8u
#define MORE_STORE_KIB (16u * 1024)
/* Slots of places that have moved back are freed when all nodes have been well for a while, and
 * memory that ranges were read into when no rank has read for 10 s. */
#define GIVE_BACK_MS   15000u

struct dice {
    uint64_t state;
};

/* SplitMix64 (Steele, Lea, Flood 2014); 0 to sides - 1. */
static uint32_t dice_roll(struct dice *d, uint32_t sides)
{
    uint64_t z = d->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ (z >> 31)) % sides);
}

/* Different machines, as many as may be lost at once. */
static uint32_t dice_machines(struct dice *d, const struct world *w, uint32_t out[NODES_MAX])
{
    uint32_t n = 1 + dice_roll(d, w->copies), first = dice_roll(d, w->nodes);

    for (uint32_t i = 0; i < n; i++)
        out[i] = (first + i * (1 + dice_roll(d, 2))) % w->nodes;
    if (n == 2 && out[0] == out[1])
        n = 1;
    return n;
}

/* ---- what happens
 * ----------------------------------------------------------------------------------- */

static int lose_machines(struct world *w, struct dice *d)
{
    uint32_t at[NODES_MAX], n = dice_machines(d, w, at);

    for (uint32_t i = 0; i < n; i++)
        TRY(node_kill(w, at[i]));
    for (uint32_t i = 0; i < n; i++)
        TRY(node_up(w, at[i]));
    return 0;
}

static int tight; /* each machine's memory is what the job needs, and little more */

/* As core/store/need.h has it, with a twentieth and 2 MiB besides: MiB. */
static uint32_t mib_needed(const struct world *w, uint32_t per_node)
{
    uint32_t slot_mib = ((w->kib + 8) * 17 / 16 + 2047) / 2048 * 2;
    uint32_t slots_mib = ((w->keep + 1) * per_node * (1 + w->copies) + 1) * slot_mib;

    return slots_mib * 16 / 15 + slots_mib / 20 + 2;
}

/* Their memory stays. */
static int kill_engines(struct world *w, struct dice *d)
{
    for (uint32_t k = 0; k < w->nodes; k++) {
        if (dice_roll(d, 2) && node_engine(w, k))
            TRY(node_engine_signal(w, k, SIGKILL));
        nap_ms(dice_roll(d, 20));
    }
    return 0;
}

static int lose_ranks(struct world *w, struct dice *d)
{
    (void)d;
    world_stop(w);
    return 0;
}

static int lose_all_processes(struct world *w, struct dice *d)
{
    (void)d;
    world_stop(w);
    for (uint32_t k = 0; k < w->nodes; k++)
        if (node_engine(w, k))
            TRY(node_engine_signal(w, k, SIGKILL));
    return 0;
}

static int damage_an_object(struct world *w, struct dice *d)
{
    struct object o;
    uint32_t owner = dice_roll(d, w->ranks);

    world_stop(w);
    if (!w->protected || object_find(w, dice_roll(d, w->nodes), w->protected, owner, &o))
        return 0; /* it is not on that machine */
    /* The save that the ranks had begun may be PROTECTED since, and this one freed. */
    return file_flip_if_there(w, o.path, 4096 + dice_roll(d, (uint32_t)o.data_len));
}

static int stop_an_engine(struct world *w, uint32_t k, unsigned ms)
{
    if (!node_engine(w, k))
        return 0;
    TRY(node_engine_signal(w, k, SIGSTOP));
    nap_ms(ms);
    return node_engine_signal(w, k, SIGCONT);
}

/* Shorter than what makes a node lost. */
static int hold_an_engine(struct world *w, struct dice *d)
{
    return stop_an_engine(w, dice_roll(d, w->nodes), 100 + dice_roll(d, 500));
}

/* Longer: it is lost, and found. */
static int silence_an_engine(struct world *w, struct dice *d)
{
    return stop_an_engine(w, dice_roll(d, w->nodes), 2200 + dice_roll(d, 1500));
}

/* Now here, now there. */
static int flap(struct world *w, struct dice *d)
{
    for (uint32_t times = 2 + dice_roll(d, 3); times > 0; times--) {
        TRY(hold_an_engine(w, d));
        nap_ms(dice_roll(d, 300));
    }
    return 0;
}

/* Its thread that decides, and nothing else of it: for less or for more than what makes a node
 * lost. */
static int block_an_engine(struct world *w, struct dice *d)
{
    return node_engine_block(w, dice_roll(d, w->nodes), 100 + dice_roll(d, 3500));
}

/* Between the machine `at` and holders of what its first rank owns, `most` of them: how many,
 * and whether the coordinator is one of the two. */
static int cut_from_holders(
        struct world *w, uint32_t at, uint32_t most, enum loss loss, uint32_t *cuts, int *first)
{
    struct object o;

    for (uint32_t k = 0; k < w->nodes && *cuts < most; k++) {
        if (k == at || object_find(w, k, w->protected, at * w->per_node, &o))
            continue;
        TRY(path_cut(w, at, k, loss));
        TRY(path_cut(w, k, at, loss));
        *first |= k == 0 || at == 0;
        ++*cuts;
    }
    return 0;
}

/* The cut lasts to the round's end where others can hold the copies, and have room: never with
 * the coordinator, which has no place that could move. */
static int cut_some(struct world *w, struct dice *d, uint32_t most, enum loss loss)
{
    uint32_t cuts = 0;
    int first = 0;

    TRY(cut_from_holders(w, dice_roll(d, w->nodes), most, loss, &cuts, &first));
    w->why[0] = '\0';
    if (!tight && !first && w->nodes - 1 - cuts >= w->copies && w->nodes - 2 >= w->copies)
        return 0;
    nap_ms(500 + dice_roll(d, 4000));
    return path_mend(w);
}

static int cut_a_holder(struct world *w, struct dice *d)
{
    return cut_some(w, d, 1, LOSE_ALL);
}

static int cut_all_holders(struct world *w, struct dice *d)
{
    return cut_some(w, d, NODES_MAX, LOSE_ALL);
}

static int lose_large_packets(struct world *w, struct dice *d)
{
    return cut_some(w, d, 1 + dice_roll(d, 2), LOSE_LARGE);
}

static const struct kind {
    const char *name;
    int (*happen)(struct world *, struct dice *);
    int lives_on; /* the ranks do, and save on by themselves */
    int ends_engines;
    int cuts; /* packets are lost until the round's end */
} kinds[] = { { "machines lost", lose_machines, 0, 0, 0 }, { "ranks lost", lose_ranks, 0, 0, 0 },
    { "an object damaged", damage_an_object, 0, 0, 0 },
    { "an engine held", hold_an_engine, 0, 0, 0 },
    { "an engine held under ranks", hold_an_engine, 1, 0, 0 },
    { "an engine silent under ranks", silence_an_engine, 1, 0, 0 },
    { "engines flap under ranks", flap, 1, 0, 0 }, { "engines killed", kill_engines, 0, 1, 0 },
    { "all processes lost", lose_all_processes, 0, 1, 0 },
    { "engines killed under ranks", kill_engines, 1, 1, 0 },
    { "an engine's thread blocked under ranks", block_an_engine, 1, 0, 0 },
    { "a holder cut off under ranks", cut_a_holder, 1, 0, 1 },
    { "all holders cut off under ranks", cut_all_holders, 1, 0, 1 },
    { "large packets lost under ranks", lose_large_packets, 1, 0, 1 } };
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* ---- what was done: of all worlds, in memory that their processes share
 * -------------------------------- */

static struct tally {
    unsigned rounds[KINDS];
    unsigned worlds, tight, recoveries, saves, refused, engines, rounds_weighed;
    uint64_t bytes;
} * tally;
static unsigned world_rounds;
static int lasting; /* no engine is ended but with its machine: some live through all rounds */

#define COUNT(field, by) __atomic_fetch_add(&tally->field, by, __ATOMIC_RELAXED)

int soak_open(unsigned rounds)
{
    world_rounds = rounds;
    tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return tally == MAP_FAILED ? -1 : 0;
}

void soak_say(void)
{
    unsigned all = 0;

    for (size_t i = 0; i < KINDS; i++)
        all += tally->rounds[i];
    printf("soak: %u worlds, %u of them with tight memory, %u rounds:", tally->worlds, tally->tight,
            all);
    for (size_t i = 0; i < KINDS; i++)
        printf("%s %s %u", i ? "," : "", kinds[i].name, tally->rounds[i]);
    printf("\nsoak: %u recoveries, %u saves PROTECTED, %u undecided or refused in a fault; %lu MiB of copies "
           "compared; %u engines weighed, that had lived through %u rounds\n",
            tally->recoveries, tally->saves, tally->refused, (unsigned long)(tally->bytes >> 20),
            tally->engines, tally->rounds_weighed);
}

/* ---- nothing grows
 * -------------------------------------------------------------------------------------- */

static struct life {
    struct weight first;
    uint32_t made; /* machines, until then */
    unsigned rounds;
} lives[NODES_MAX];

/* At the end of a round, when nothing is under way: what is new is weighed. */
static int lives_begin(struct world *w)
{
    struct weight now;

    for (uint32_t k = 0; k < w->nodes; k++) {
        struct life *l = &lives[k];

        TRY(engine_weigh(w, k, &now));
        if (now.pid == l->first.pid && !strcmp(now.name, l->first.name))
            l->rounds++;
        else
            *l = (struct life){ .first = now, .made = w->made };
        if (!l->rounds)
            engine_files_say(w, k);
    }
    return 0;
}

/* Each slot that there is more of is open, too. */
static unsigned more_slots(const struct weight *before, const struct weight *now)
{
    return now->store_kib > before->store_kib
                   ? (unsigned)((now->store_kib - before->store_kib) / 2048)
                   : 0;
}

/* The most files that the engine may have open now. Each pair has two connections, or four, where
 * both have dialled; and on rxm one that is on its way to each machine that is gone, until the
 * kernel gives it up after two minutes. */
static unsigned files_most(const struct world *w, const struct life *l, const struct weight *now)
{
    int rxm = w->provider && strstr(w->provider, "ofi_rxm");

    return l->first.files + MORE_FILES + more_slots(&l->first, now) + 2 * (w->nodes - 1) +
           (rxm ? w->made - l->made : 0);
}

static int has_grown(
        struct world *w, const struct life *l, const struct weight *now, uint64_t store_kib)
{
    return now->store_kib > store_kib || now->kib > l->first.kib + MORE_KIB ||
           now->files > files_most(w, l, now);
}

/* Waits for slots, memory and connections to nodes that are gone: the engine may be about to free
 * them. */
static int weigh_at_rest(
        struct world *w, uint32_t k, const struct life *l, uint64_t store_kib, struct weight *now)
{
    uint64_t until = now_ms() + GIVE_BACK_MS;

    TRY(engine_weigh(w, k, now));
    while (has_grown(w, l, now, store_kib) && now_ms() < until) {
        nap_ms(100);
        TRY(engine_weigh(w, k, now));
    }
    return 0;
}

static int lives_end(struct world *w)
{
    struct weight now;
    uint64_t store_kib;

    for (uint32_t k = 0; k < w->nodes; k++) {
        const struct life *l = &lives[k];

        if (!l->rounds)
            continue;
        store_kib = l->first.store_kib + MORE_STORE_KIB;
        TRY(weigh_at_rest(w, k, l, store_kib, &now));
        note(w, "engine of %s after %u rounds: %lu KiB, %lu before; %u files, %u before; %lu KiB kept, %lu before",
                now.name, l->rounds, (unsigned long)now.kib, (unsigned long)l->first.kib, now.files,
                l->first.files, (unsigned long)now.store_kib, (unsigned long)l->first.store_kib);
        if (now.kib > l->first.kib + MORE_KIB)
            return lost(w, "the engine of %s has %lu KiB, and %lu %u rounds ago", now.name,
                    (unsigned long)now.kib, (unsigned long)l->first.kib, l->rounds);
        if (now.files > l->first.files + MORE_FILES)
            engine_files_say(w, k);
        if (now.files > files_most(w, l, &now))
            return lost(w, "the engine of %s has %u files open, and %u %u rounds ago", now.name,
                    now.files, l->first.files, l->rounds);
        if (now.store_kib > store_kib)
            return lost(w, "machine %s keeps %lu KiB, and %lu %u rounds ago", now.name,
                    (unsigned long)now.store_kib, (unsigned long)l->first.store_kib, l->rounds);
        COUNT(engines, 1);
        COUNT(rounds_weighed, l->rounds);
    }
    return 0;
}

/* ---- rounds
 * --------------------------------------------------------------------------------------------- */

static int no_crash(struct world *w)
{
    char words[2400];

    node_last_words(w, words, sizeof(words));
    return words[0] ? lost(w, "an engine crashed%s", words) : 0;
}

static int save_on(struct world *w)
{
    TRY(world_save(w, w->newest + 1));
    COUNT(saves, 1);
    return 0;
}

/* A save of all ranks, whether it succeeds or not. 1: it is PROTECTED. */
static int try_to_save(struct world *w)
{
    char line[64];
    int rc;

    snprintf(line, sizeof(line), "wait %lu %u %u", (unsigned long)w->newest, PROTECTED,
            SAVE_MS + 5000);
    if ((rc = world_answers_any(w, 15000)) || (rc = world_post(w, line)))
        return rc < 0 ? rc : 0;
    if ((rc = world_answers_any(w, SAVE_MS + 10000)))
        return rc < 0 ? rc : 0;
    w->protected = w->newest;
    w->protected_tag = w->tags;
    return 1;
}

/* Saves, one after the other, until one is PROTECTED: in a bounded time, and without help. The
 * first has begun. */
static int go_on(struct world *w)
{
    uint64_t until = now_ms() + GO_ON_MS;
    int rc;

    while (!(rc = try_to_save(w))) {
        COUNT(refused, 1);
        if (now_ms() >= until)
            return lost(w, "no save was PROTECTED in %u ms after the last fault", GO_ON_MS);
        nap_ms(100);
        TRY(world_save_begin(w, w->newest + 1));
    }
    if (rc < 0)
        return rc;
    COUNT(saves, 1);
    return 0;
}

/* The ranks are as they were. After a cut a node may still be called lost, and a save fails with
 * that. */
static int live_on(struct world *w, struct dice *d, const struct kind *kind)
{
    TRY(world_save_begin(w, w->newest + 1));
    nap_ms(dice_roll(d, 200));
    TRY(kind->happen(w, d));
    TRY(go_on(w));
    if (!kind->cuts)
        return 0;
    TRY(path_mend(w));
    TRY(world_save_begin(w, w->newest + 1));
    return go_on(w);
}

/* With endpoints without connections an engine that was started again has another address, and its
 * ranks have to be, too. */
static const struct kind *kind_of(const struct world *w, struct dice *d)
{
    int strict = w->provider && !strcmp(w->provider, "strict");
    /* After a cut rxm has 12 MiB more, which is not explained. */
    int cuts = w->namespaces && !(w->provider && strstr(w->provider, "ofi_rxm"));
    const struct kind *kind;

    do
        kind = &kinds[dice_roll(d, KINDS)];
    while ((kind->ends_engines && (lasting || (strict && kind->lives_on))) ||
            (kind->cuts && !cuts));
    return kind;
}

/* In the middle of a save, or between two. */
static int start_again(struct world *w, struct dice *d, const struct kind *kind)
{
    if (dice_roll(d, 2)) {
        TRY(world_save_begin(w, w->newest + 1));
        nap_ms(dice_roll(d, 120));
    }
    TRY(kind->happen(w, d));
    TRY(world_restart(w, STEP_ANY));
    COUNT(recoveries, 1);
    return w->got ? world_protected(w) : 0;
}

/* Each rank reads the next one's part of the newest save, wherever it lies. */
static int read_all(struct world *w)
{
    char line[64];

    for (uint32_t r = 0; r < w->ranks; r++) {
        snprintf(line, sizeof(line), "read %u 1 %lu", (r + 1) % w->ranks, (unsigned long)w->newest);
        TRY(rank_post(w, r, line));
    }
    return world_answers(w, 30000);
}

static int round_of(struct world *w, struct dice *d)
{
    const struct kind *kind = kind_of(w, d);
    uint64_t bytes = 0;

    w->why[0] = '\0';
    note(w, "round: %s", kind->name);
    TRY(kind->lives_on ? live_on(w, d, kind) : start_again(w, d, kind));
    for (uint32_t more = 1 + dice_roll(d, 3); more > 0; more--)
        TRY(save_on(w));
    TRY(objects_compare(w, w->newest, &bytes));
    TRY(read_all(w));
    COUNT(bytes, bytes);
    COUNT(rounds[kind - kinds], 1);
    TRY(no_crash(w));
    return lives_begin(w);
}

static int soak(struct world *w, const char *seed)
{
    struct dice d = { strtoull(seed, NULL, 10) };
    uint32_t nodes = 2 + dice_roll(&d, 5), per_node = 1 + dice_roll(&d, 4);

    per_node = per_node * nodes > RANKS_MOST ? RANKS_MOST / nodes : per_node;
    w->copies = nodes > 2 ? 1 + dice_roll(&d, 2) : 1;
    w->keep = 1 + dice_roll(&d, 2);
    w->kib = 1u << dice_roll(&d, 12);
    w->common_kib = dice_roll(&d, 3) ? 0 : 1u << dice_roll(&d, 11);
    w->save_ms = SAVE_MS;
    w->loses_engines = 1;
    lasting = !dice_roll(&d, 3);
    tight = w->common_kib == 0 && dice_roll(&d, 2);
    w->mib = tight ? mib_needed(w, per_node) : 0;
    note(w, "seed %s: %u machines of %u ranks, %u copies, keep %u, %u KiB%s%s", seed, nodes,
            per_node, w->copies, w->keep, w->kib, lasting ? ", engines last" : "",
            tight ? ", tight memory" : "");
    TRY(world_begin(w, nodes, per_node, 1 + dice_roll(&d, 2)));
    for (unsigned i = 0; i < world_rounds; i++)
        TRY(round_of(w, &d));
    COUNT(worlds, 1);
    COUNT(tight, tight != 0);
    return lives_end(w);
}

int soak_world(struct scenario *s, uint64_t seed)
{
    static char names[SOAK_MAX][32];
    static size_t count;

    if (count == SOAK_MAX)
        return -1;
    snprintf(names[count], sizeof(names[0]), "soak-%lu", (unsigned long)seed);
    *s = (struct scenario){ names[count], soak, names[count] + 5 };
    count++;
    return 0;
}
