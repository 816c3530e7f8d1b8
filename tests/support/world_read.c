/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that read while the job saves, dies and recovers: FIND, MAP, UNMAP, RANGE, COMMON_GET,
 * MANIFEST and BAD, one request of a reader after the other, on the connection on which its rank
 * saves. The judge of them: a save that is found as PROTECTED was decided so, and is no older than
 * the newest one that the rank has learned of; bytes that are read are those that a rank wrote; an
 * object that is mapped does not change, and its slot is not lent, until the reader unmaps it or
 * its process ends; BAD puts aside no copy that is right; each request is answered.
 */
#include "core/base/crc.h"
#include "raws.h"
#include "world_parts.h"

#include <hearth/read.h>
#include <stdlib.h>
#include <string.h>

#define READERS  4u
#define MAPS     3u
#define DECIDED  512u                /* saves, the last ones */
#define READ_BIT (UINT64_C(1) << 62) /* of a reader's requests; then whose, in eight bits */
#define WAIT_MS  (20000u + 3000u)    /* beyond recover_ms: as long as an engine looks at a copy */
#define TRIES    20u                 /* actions of a reader at most */

struct mapped { /* what a reader's process has open; it stays so when its engine ends */
    uint64_t slot, generation, lease, sum;
    uint32_t client; /* the connection that has the lease */
};

struct reader {
    uint64_t dice, lineage, next_ms; /* HTH_NEVER: it waits, or there is none */
    uint32_t rank, left;
    uint64_t request; /* not answered; 0: none */
    uint32_t client, type, machine;
    uint64_t until_ms, stood_ms;
    struct hth_save_id save; /* that it reads now */
    uint32_t of;             /* whose object */
    uint64_t off, len;
    int newest; /* FIND of the newest */
    int must;   /* nothing goes wrong any more: it is read */
    struct mapped map[MAPS];
    uint32_t maps;
};

struct world_reads {
    struct reader reader[READERS];
    uint64_t requests;
    struct hth_save_id decided[DECIDED]; /* on some keep record */
    uint32_t decisions;
    struct { /* [lineage] */
        uint64_t epoch, nonce;
    } * epoch;
    uint64_t epochs;
};

struct world_reads *reads_open(void)
{
    struct world_reads *reads = calloc(1, sizeof(*reads));

    if (!reads)
        abort();
    for (uint32_t i = 0; i < READERS; i++)
        reads->reader[i].next_ms = HTH_NEVER;
    return reads;
}

void reads_close(struct world_reads *reads)
{
    free(reads->epoch);
    free(reads);
}

/* ---- What is known of saves ------------------------------------------------------------------ */

void reads_joined(const struct rank_state *r)
{
    struct world_reads *reads = r->world->reads;

    if (r->lineage >= reads->epochs) {
        reads->epoch = realloc(reads->epoch, (r->lineage + 1) * sizeof(*reads->epoch));
        if (!reads->epoch)
            abort();
        memset(reads->epoch + reads->epochs, 0,
                (r->lineage + 1 - reads->epochs) * sizeof(*reads->epoch));
        reads->epochs = r->lineage + 1;
    }
    reads->epoch[r->lineage].epoch = r->epoch;
    reads->epoch[r->lineage].nonce = r->nonce;
}

/* The launch whose ranks wrote the save; 0: not known. */
static uint64_t lineage_of(const struct world_reads *reads, struct hth_save_id id)
{
    for (uint64_t i = 1; i < reads->epochs; i++)
        if (reads->epoch[i].epoch == id.epoch && reads->epoch[i].nonce == id.nonce)
            return i;
    return 0;
}

static int was_decided(const struct world_reads *reads, struct hth_save_id id)
{
    for (uint32_t i = 0; i < reads->decisions && i < DECIDED; i++)
        if (look_same(reads->decided[i], id))
            return 1;
    return 0;
}

int reads_was_decided(const struct world *w, struct hth_save_id id)
{
    return was_decided(w->reads, id);
}

void reads_decided(struct world *w, const struct hth_save_id *keep, uint32_t saves)
{
    struct world_reads *reads = w->reads;

    for (uint32_t i = 0; i < saves; i++)
        if (!was_decided(reads, keep[i]))
            reads->decided[reads->decisions++ % DECIDED] = keep[i];
}

/* ---- What is mapped -------------------------------------------------------------------------- */

static uint64_t sum_of(const struct slot *s)
{
    uint64_t sum = 0xcbf29ce484222325u, word;

    for (uint64_t i = 0; i + 8 <= s->pub.capacity; i += 8) {
        memcpy(&word, s->pub.base + i, sizeof(word));
        sum = (sum ^ word) * 0x100000001b3u;
    }
    return sum;
}

/* The bytes of a slot that is condemned and dropped stay its reader's alone. */
static void judge_mapped(struct world *w, const struct reader *d)
{
    for (uint32_t i = 0; i < d->maps; i++) {
        const struct mapped *map = &d->map[i];
        const struct slot *s = slots_find(&w->machine[d->machine], map->slot);

        if (s && (s->pub.generation != map->generation || s->state == HELD || s->state == RECEIVED))
            world_broken(w, "P7: machine %u uses slot %llu, which rank %u has mapped to read",
                    d->machine, (unsigned long long)map->slot, d->rank);
        else if (s && sum_of(s) != map->sum && !w->hits[WORLD_KIND_ROT])
            world_broken(w, "P7: the object that rank %u has mapped in slot %llu changes", d->rank,
                    (unsigned long long)map->slot);
    }
}

/* Its launch runs, and its process lives. */
static int reader_lives(const struct world *w, const struct reader *d)
{
    const struct rank_state *r = &w->rank[d->rank];

    return d->lineage && d->lineage == w->lineage && d->rank < w->ranks && r->step != R_NONE &&
           r->machine == d->machine;
}

/* A reader has a file of its own open, whatever its engine's is. */
int reads_elsewhere(const struct machine *x, uint64_t slot)
{
    const struct world *w = x->world;

    for (uint32_t i = 0; i < READERS && !(w->opts.breaks & HTH_BREAK_READER); i++) {
        const struct reader *d = &w->reads->reader[i];

        for (uint32_t k = 0; k < d->maps && d->machine == x->index; k++)
            if (d->map[k].slot == slot && reader_lives(w, d))
                return 1;
    }
    return 0;
}

void reads_lent(struct machine *x, uint64_t slot)
{
    struct world *w = x->world;

    for (uint32_t i = 0; i < READERS; i++) {
        const struct reader *d = &w->reads->reader[i];

        for (uint32_t k = 0; k < d->maps && d->machine == x->index; k++)
            if (d->map[k].slot == slot && reader_lives(w, d))
                world_broken(w, "P7: machine %u lends slot %llu, which rank %u has mapped to read",
                        x->index, (unsigned long long)slot, d->rank);
    }
}

/* It took part in that save. */
static int rank_saves(const struct world *w, struct hth_save_id id, uint32_t rank)
{
    uint64_t lineage = lineage_of(w->reads, id);

    return !(id.attempt >> 31) || some_have(lineage, id.step, w->launch_ranks[lineage], rank);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static uint32_t roll(struct reader *d, uint32_t sides)
{
    return world_roll_of(&d->dice, sides);
}

static void ask(struct world *w, struct reader *d, void *m, size_t len, uint32_t type)
{
    struct rank_state *r = &w->rank[d->rank];
    struct hth_local_head *head = m;

    d->request = READ_BIT | (uint64_t)(d - w->reads->reader) << 48 | ++w->reads->requests;
    d->client = r->client;
    d->type = type;
    d->until_ms = w->now_ms + w->opts.recover_ms + w->opts.recover_ms / 8 + WAIT_MS;
    d->stood_ms = machine_stood_ms(&w->machine[d->machine]);
    d->next_ms = d->until_ms;
    *head = (struct hth_local_head){ (uint32_t)len, type, d->request, 0 };
    rank_send(r, m, len, NULL, 0);
}

static void ask_find(struct world *w, struct reader *d)
{
    const struct rank_state *r = &w->rank[d->rank];
    struct hth_local_find m = { .step = HEARTH_STEP_NEWEST,
        .wait_ms = roll(d, 2) ? 0 : roll(d, w->opts.save_ms) };

    d->newest = 1;
    if (roll(d, 3) == 0)
        m.step = r->next - (r->next > 1 ? roll(d, 2) : 0);
    else if (roll(d, 3) == 0)
        m.save = hth_local_save_of(roll(d, 2) ? r->save : w->newest.id);
    d->newest = m.step == HEARTH_STEP_NEWEST && !m.save.epoch;
    ask(w, d, &m, sizeof(m), HTH_LOCAL_FIND);
}

/* One of its bytes of data or some; its length is known where its launch is. */
static void choose_range(struct world *w, struct reader *d, uint32_t type)
{
    uint64_t lineage = lineage_of(w->reads, d->save);
    uint64_t len = rank_bytes(lineage, d->save.step, d->of, w->opts.data_max);

    d->off = type == HTH_LOCAL_RANGE && roll(d, 4) ? roll(d, (uint32_t)len) : 0;
    d->len = len - d->off;
    if (roll(d, 4))
        d->len = 1 + roll(d, (uint32_t)d->len);
}

static void ask_map(struct world *w, struct reader *d, uint32_t type)
{
    struct hth_local_map m = { .save = hth_local_save_of(d->save),
        .object = hth_object_id(d->of, 0) };

    choose_range(w, d, type);
    if (type == HTH_LOCAL_RANGE) {
        m.off = HTH_BLOCK + d->off;
        m.len = d->len;
    }
    ask(w, d, &m, sizeof(m), type);
}

static void ask_common(struct world *w, struct reader *d)
{
    struct hth_local_common m = { .save = hth_local_save_of(d->save), .name = WORLD_COMMON };

    ask(w, d, &m, sizeof(m), HTH_LOCAL_COMMON_GET);
}

static void ask_bad(struct world *w, struct reader *d)
{
    struct hth_local_bad m = { .save = hth_local_save_of(d->save),
        .object = hth_object_id(d->of, 0),
        .chunk = roll(d, 2) ? 0 : HTH_BAD_TABLE };

    ask(w, d, &m, sizeof(m), HTH_LOCAL_BAD);
}

/* The connection that had the lease may have ended; then the process unmaps without a request. */
static void ask_unmap(struct world *w, struct reader *d)
{
    struct mapped map = d->map[--d->maps];
    struct hth_local_unmap m = { .lease = map.lease };

    if (map.client == w->rank[d->rank].client)
        ask(w, d, &m, sizeof(m), HTH_LOCAL_UNMAP);
}

static struct hth_save_id choose_save(struct world *w, struct reader *d)
{
    const struct rank_state *r = &w->rank[d->rank];

    switch (roll(d, 6)) {
    case 0:
        return r->save;
    case 1:
        return r->from;
    case 2:
    case 3:
        return w->newest.id;
    default:
        return d->save;
    }
}

static void ask_any(struct world *w, struct reader *d)
{
    uint32_t die = roll(d, 12);

    d->save = choose_save(w, d);
    d->of = roll(d, 2) ? d->rank : roll(d, w->ranks);
    if (die < 2 || !d->save.epoch)
        ask_find(w, d);
    else if (die < 5 && d->maps < MAPS)
        ask_map(w, d, HTH_LOCAL_MAP);
    else if (die < 6 && d->maps)
        ask_unmap(w, d);
    else if (die < 9)
        ask_map(w, d, HTH_LOCAL_RANGE);
    else if (die < 10)
        ask_common(w, d);
    else if (die < 11)
        ask_bad(w, d);
    else
        ask_map(w, d, HTH_LOCAL_MANIFEST);
}

/* ---- Hearing --------------------------------------------------------------------------------- */

/* Wrong bytes. If bytes have rotted, the reader reports them, as the library does, and reads no
 * further. */
static void wrong(struct world *w, struct reader *d, const char *what)
{
    if (!w->hits[WORLD_KIND_ROT]) {
        world_broken(w, "P2: rank %u reads wrong bytes: %s of rank %u's object of step %llu",
                d->rank, what, d->of, (unsigned long long)d->save.step);
        return;
    }
    ask_bad(w, d);
}

static void hear_found(struct world *w, const struct reader *d, const struct hth_local_found *m)
{
    struct hth_save_id id = hth_local_save_to(m->save), heard = w->rank[d->rank].heard;

    if (m->level >= HEARTH_PROTECTED && !was_decided(w->reads, id))
        world_broken(w, "P3: rank %u finds step %llu PROTECTED, and no record has it", d->rank,
                (unsigned long long)id.step);
    if (d->newest && look_before(id, heard) && id.epoch == heard.epoch)
        world_broken(w, "P1: rank %u finds step %llu as the newest after step %llu was PROTECTED",
                d->rank, (unsigned long long)id.step, (unsigned long long)heard.step);
}

/* If a slot is freed after the engine's answer, its bytes stay while it is leased. */
static void hear_mapped(struct world *w, struct reader *d, const struct hth_local_mapped *m)
{
    const struct slot *s = slots_find(&w->machine[d->machine], m->slot);
    struct look_object o;
    struct slot had;

    if (!s || (s->state != SEALED && !(s->state == GIVEN && s->pub.leases)) ||
            s->pub.generation != m->generation) {
        world_broken(w, "P7: rank %u is given slot %llu to read, which holds no object", d->rank,
                (unsigned long long)m->slot);
        return;
    }
    had = *s;
    had.state = SEALED;
    d->map[d->maps++] = (struct mapped){ m->slot, m->generation, m->lease, sum_of(s), d->client };
    if (!look_slot(&had, &o) || !look_same(o.save, d->save) || o.rank != d->of ||
            o.len != m->data_len || !look_whole(&had, &o))
        wrong(w, d, "a mapping");
}

/* All of a rank's bytes as its launch wrote them; freed by the caller. */
static unsigned char *written(const struct world *w, const struct reader *d, uint64_t *out_len)
{
    uint64_t lineage = lineage_of(w->reads, d->save);
    unsigned char *bytes;

    *out_len = rank_bytes(lineage, d->save.step, d->of, w->opts.data_max);
    bytes = malloc(*out_len + 8);
    if (!bytes)
        abort();
    rank_fill(bytes, *out_len, rank_tag(lineage, d->save.attempt), d->save.step, d->of);
    return bytes;
}

static void hear_range(struct world *w, struct reader *d, const struct hth_local_bytes *m,
        const unsigned char *bytes, uint64_t len)
{
    uint64_t all;
    unsigned char *want = written(w, d, &all);
    int same = len == d->len && !memcmp(bytes, want + d->off, len) &&
               (!m->summed || m->sum == hth_crc32c(bytes, len));

    free(want);
    if (!same)
        wrong(w, d, "a range");
}

static void hear_bytes(struct world *w, struct reader *d, const struct hth_local_bytes *m,
        const unsigned char *bytes, uint64_t len)
{
    unsigned char common[WORLD_COMMON_MAX];
    uint64_t lineage = lineage_of(w->reads, d->save);

    if (!lineage)
        return;
    if (d->type == HTH_LOCAL_RANGE)
        hear_range(w, d, m, bytes, len);
    else if (d->type == HTH_LOCAL_MANIFEST && (len < 192 || memcmp(bytes, "HTHMANIF", 8) != 0))
        world_broken(w, "P2: rank %u reads a manifest that is none", d->rank);
    else if (d->type == HTH_LOCAL_COMMON_GET &&
             (len != world_common(common, rank_tag(lineage, d->save.attempt), d->save.step) ||
                     memcmp(bytes, common, len) != 0))
        wrong(w, d, "what is common");
}

/* BAD may put a right copy aside only in worlds in which bytes or records change. */
static void judge_bad(struct world *w, const struct reader *d)
{
    const struct machine *x = &w->machine[d->machine];

    if (x->store && mem_of(x->store)->evidence && !w->hits[WORLD_KIND_ROT] &&
            !w->hits[WORLD_KIND_RECORD] && !w->hits[WORLD_KIND_FLIP] &&
            !(w->opts.breaks & HTH_BREAK_VERIFY))
        world_broken(w, "P1: machine %u puts a copy aside that is right, for BAD of rank %u",
                d->machine, d->rank);
}

int reads_hear(struct rank_state *r, const struct letter *l)
{
    const struct hth_local_head *head = (const void *)l->bytes;
    struct world *w = r->world;
    struct reader *d = &w->reads->reader[head->request >> 48 & 0xff];

    if (!(head->request & READ_BIT) || head->request >> 63)
        return 0;
    if (head->request != d->request)
        return 1; /* of a launch before */
    d->request = 0;
    d->next_ms = w->now_ms + 1 + roll(d, 300);
    world_say(w, "rank %u reads step %llu: %u is answered by %u", d->rank,
            (unsigned long long)d->save.step, d->type, head->type);
    if (head->type == HTH_LOCAL_FOUND)
        hear_found(w, d, (const void *)l->bytes);
    else if (head->type == HTH_LOCAL_MAPPED)
        hear_mapped(w, d, (const void *)l->bytes);
    else if (head->type == HTH_LOCAL_BYTES)
        hear_bytes(w, d, (const void *)l->bytes, l->bytes + l->len, l->attached);
    else if (d->must)
        world_broken(w, "P4: rank %u cannot read rank %u's object of step %llu at rest: %s",
                d->rank, d->of, (unsigned long long)d->save.step,
                ((const struct hth_local_error *)(const void *)l->bytes)->text);
    if (d->type == HTH_LOCAL_BAD)
        judge_bad(w, d);
    return 1;
}

/* ---- When ------------------------------------------------------------------------------------ */

static void reader_end(struct reader *d)
{
    d->lineage = d->request = 0;
    d->maps = 0;
    d->next_ms = HTH_NEVER;
}

/* It waits for an answer; 1: no longer, since the connection has ended. */
static int reader_waits(struct world *w, struct reader *d)
{
    const struct machine *x = &w->machine[d->machine];
    uint64_t stood_ms = machine_stood_ms(x) - d->stood_ms;

    if (w->rank[d->rank].client != d->client || w->restart_ms != HTH_NEVER)
        return 1;
    if (w->now_ms < d->until_ms) {
        d->next_ms = d->until_ms;
        return 0;
    }
    if (stood_ms || x->stopped) {
        d->stood_ms += stood_ms;
        d->next_ms = d->until_ms = w->now_ms + stood_ms + 1000;
        return 0;
    }
    world_broken(w, "P4: rank %u waits for an answer to its request %u for ever", d->rank, d->type);
    return 0;
}

static void reader_act(struct world *w, struct reader *d)
{
    if (!reader_lives(w, d)) {
        reader_end(d);
        return;
    }
    judge_mapped(w, d);
    if (d->request && !reader_waits(w, d))
        return;
    d->request = 0;
    d->next_ms = w->now_ms + 1 + roll(d, w->opts.dead_ms);
    if (d->left)
        d->left--;
    if (!w->rank[d->rank].client || !w->machine[d->machine].node)
        return;
    if (d->left && !w->quiet)
        ask_any(w, d);
    else if (d->maps)
        ask_unmap(w, d);
    else
        reader_end(d);
}

void reads_act(struct world *w)
{
    for (uint32_t i = 0; i < READERS; i++)
        if (w->reads->reader[i].next_ms <= w->now_ms)
            reader_act(w, &w->reads->reader[i]);
}

uint64_t reads_due_ms(const struct world *w)
{
    uint64_t due = HTH_NEVER;

    for (uint32_t i = 0; i < READERS; i++)
        if (w->reads->reader[i].next_ms < due)
            due = w->reads->reader[i].next_ms;
    return due;
}

void reads_last(struct world *w)
{
    for (uint32_t i = 0; i < READERS && !ill_any_lasts(w); i++) {
        struct reader *d = &w->reads->reader[i];
        uint32_t node = world_roll(w, w->opts.nodes), of = world_roll(w, w->ranks);

        *d = (struct reader){ .dice = w->opts.seed + i,
            .lineage = w->lineage,
            .rank = node * w->opts.ranks_per_node,
            .machine = w->member[node],
            .save = w->newest.id,
            .of = of,
            .must = rank_saves(w, w->newest.id, of) };
        ask_map(w, d, HTH_LOCAL_RANGE);
    }
}

void reads_begin(struct world *w)
{
    uint32_t rank = fault_roll(w, w->ranks);
    struct reader *d = w->reads->reader;

    while (d < w->reads->reader + READERS && d->lineage)
        d++;
    if (d == w->reads->reader + READERS || w->rank[rank].step == R_NONE)
        return;
    *d = (struct reader){ .dice = fault_roll(w, UINT32_MAX),
        .lineage = w->lineage,
        .next_ms = w->now_ms + 1,
        .rank = rank,
        .machine = w->rank[rank].machine,
        .left = 2 + fault_roll(w, TRIES - 1) };
    w->hits[WORLD_KIND_READ]++;
}
