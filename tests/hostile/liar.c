/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member that lies: three real engines and their ranks in virtual time, and one of the engines
 * says, with the key and in its turn, what it and the others have said before, and not quite:
 * inventories, DONE, PROMISE, maps, plans, blobs, with other lengths, counts, names and digests.
 * The other two go on to answer, never end, grow by no more than a bound, and name who sent what
 * they do not take.
 */
#include "hostile.h"

#include "replication/held/ctx.h"
#include "transport/session/session_parts.h"
#include "world_parts.h"

#include <malloc.h>

#define NODES    3u
#define LIAR     1u
#define STRANGER 99999u
#define GROWS    (8u << 20) /* bytes that all three engines may grow by in a slice, saves included */

static struct hostile_corpus corpus;
static uint64_t dice;
static unsigned answers, named, lies, ends;
static struct hth_transport_ops tapped[NODES];
static const struct hth_transport_ops *own[NODES];
static struct world w;
static size_t most_grown;

static void liar_hears(struct world *world, const struct letter *l)
{
    struct hth_local_head head;

    (void)world;
    memcpy(&head, l->bytes, sizeof(head));
    answers += l->client == STRANGER && head.type == HTH_LOCAL_BYTES;
}

/* Keeps the messages of all engines for the liar. */
static int tap_send(struct hth_transport *t, hth_conn conn, const void *bytes, size_t len)
{
    const struct hth_transport_ops *ops = NULL;
    struct hth_frame f;

    for (uint32_t i = 0; i < NODES && !ops; i++)
        if (t->ops == &tapped[i])
            ops = own[i];
    CHECK(ops, "a transport of nobody's");
    if (!hth_frame_decode(&f, bytes, len, NULL) && f.type >= HTH_MSG_UP)
        corpus_add(&corpus, &dice, f.type, f.body, f.body_len);
    return ops->send(t, conn, bytes, len);
}

static void liar_named(void *self, enum hearth_log_level level, const char *event, const char *text)
{
    (void)self, (void)level, (void)event;
    named += strstr(text, "node 1") != NULL;
}

/* An engine that was started anew has another transport. */
static void tap(void)
{
    for (uint32_t i = 0; i < NODES; i++) {
        struct hth_node *n = world_node(&w, i);
        struct hth_session *s = n ? hth_node_ctx(n)->session : NULL;

        if (!s || !s->transport || s->transport->ops == &tapped[i])
            continue;
        own[i] = s->transport->ops;
        tapped[i] = *own[i];
        tapped[i].send = tap_send;
        s->transport->ops = &tapped[i];
        if (i != LIAR) {
            s->log = hth_node_ctx(n)->log = (struct hth_log){ .emit = liar_named };
        }
    }
}

/* The judge of the simulator finds the liar's messages broken: that is not our fault, and is
 * dropped. An engine's end is counted. */
static void liar_waits(uint64_t ms)
{
    uint64_t until = w.now_ms + ms;

    while (w.now_ms < until) {
        world_advance(&w, until);
        if (w.why[0] && strstr(w.why, "no engine"))
            ends++;
        w.why[0] = '\0';
        tap();
    }
}

static void liar_opens(uint64_t seed)
{
    struct world_opts o = { .seed = seed,
        .nodes = NODES,
        .ranks_per_node = 2,
        .copies = 1,
        .keep = 1,
        .room = 300, /* in memory as much as three times what is owed: a store is bounded */
        .run_ms = 600000,
        .data_max = 100 };

    world_open(&w, &o);
    w.stranger = liar_hears;
    while (hth_save_none(w.newest.id) && w.now_ms < 60000) {
        tap();
        world_advance(&w, w.now_ms + 1);
        CHECK(!w.why[0], "before any lie: %s", w.why);
    }
    CHECK(!hth_save_none(w.newest.id), "nothing was saved");
}

/* One message again and again, each time of another save, object, number or whatever stands at that
 * place. */
static struct flood {
    int on;
    uint16_t type;
    uint32_t len;
    size_t at;
    unsigned char bytes[HTH_BODY_MAX];
} flood;

static void flood_choose(void)
{
    const struct heard *h = corpus.count ? &corpus.heard[hostile_roll(&dice, corpus.count)] : NULL;

    flood.on = h && h->len >= 8;
    if (!flood.on)
        return;
    flood.type = h->type;
    flood.len = h->len;
    flood.at = hostile_roll(&dice, h->len / 8) * 8;
    memcpy(flood.bytes, h->bytes, h->len);
}

static size_t flood_lie(unsigned char *body, uint16_t *out_type)
{
    uint64_t value = hth_splitmix64(&dice);

    memcpy(body, flood.bytes, flood.len);
    memcpy(body + flood.at, &value, sizeof(value));
    *out_type = flood.type;
    return flood.len;
}

/* Large blobs that no engine has asked for. */
static size_t blob_lie(unsigned char *body, uint16_t *out_type)
{
    struct hth_writer out = { .at = body, .cap = HTH_BODY_MAX };
    uint64_t kind = 1 + hostile_roll(&dice, 4);

    hth_write32(&out, (uint32_t)kind);
    hth_write32(&out, 0);
    for (int i = 0; i < 5; i++) /* save and object */
        hth_write64(&out, hostile_roll(&dice, i == 3 ? UINT32_MAX : 1000));
    hth_write64(&out, hostile_roll(&dice, UINT64_C(64) << 20));
    for (int i = 0; i < HTH_DIGEST / 8; i++)
        hth_write64(&out, hth_splitmix64(&dice));
    hth_write32(&out, 8);
    hth_write32(&out, 0);
    hth_write64(&out, hth_splitmix64(&dice));
    *out_type = HTH_MSG_BLOB;
    return out.len;
}

/* In the heap, or mapped for it. */
static size_t liar_memory(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static size_t any_lie(unsigned char *body, uint16_t *out_type)
{
    if (flood.on)
        return flood_lie(body, out_type);
    if (hostile_roll(&dice, 50) == 0)
        return blob_lie(body, out_type);
    if (!corpus.count || hostile_roll(&dice, 10) == 0)
        return hostile_random(&dice, body, HTH_BODY_MAX, out_type);
    return corpus_lie(&corpus, &dice, body, HTH_BODY_MAX, out_type);
}

static void liar_lies(void)
{
    unsigned char body[HTH_BODY_MAX];
    struct hth_node *liar = world_node(&w, LIAR);
    uint32_t to = hostile_roll(&dice, 2) ? 2 : 0;
    uint16_t type;
    size_t len = any_lie(body, &type);

    if (liar)
        lies += !hth_session_send(hth_node_ctx(liar)->session, to, type, body, len);
    machine_touch(&w, w.member[LIAR]);
    liar_waits(hostile_roll(&dice, 20) ? 2 : 60);
}

static void must_answer(uint32_t node)
{
    struct hth_local_head status = { sizeof(status), HTH_LOCAL_STATUS, 1, 0 };
    struct hth_node *n = world_node(&w, node);

    CHECK(n, "the engine of node %u has ended", node);
    answers = 0;
    hth_node_request(n, STRANGER, &status, sizeof(status), NULL);
    liar_waits(3);
    CHECK(answers || world_node(&w, node) != n, "node %u does not answer", node);
}

static void liar_slice(const struct hostile_opts *o)
{
    size_t before;

    dice = hth_splitmix64(&(uint64_t){ o->seed ^ hostile_slice << 32 });
    liar_opens(dice >> 1);
    before = liar_memory();
    for (uint32_t i = 0; i < SLICE; i++) {
        if (hostile_slice % 2 && i % (SLICE / 2) == 0)
            flood_choose();
        liar_lies();
    }
    if (o->loud && flood.on)
        printf("flood of type %u at %zu of %u, ", flood.type, flood.at, flood.len);
    flood.on = 0;
    liar_waits(100);
    must_answer(0);
    must_answer(2);
    if (o->loud)
        printf("slice %llu: %zd KiB\n", (unsigned long long)hostile_slice,
                ((ssize_t)liar_memory() - (ssize_t)before) / 1024);
    if (liar_memory() > before + most_grown)
        most_grown = liar_memory() - before;
    CHECK(most_grown < GROWS, "the engines have grown by %zu bytes", most_grown);
    world_close(&w);
    corpus_clear(&corpus);
}

void hostile_lies(const struct hostile_opts *o)
{
    uint64_t last = (o->first + o->frames + SLICE - 1) / SLICE;

    for (hostile_slice = o->first / SLICE; hostile_slice < last; hostile_slice++)
        liar_slice(o);
    printf("liar: %u lies were sent; all engines together grew by %zu KiB at most in a slice; "
           "%u lines name him; %u engines did not start again\n",
            lies, most_grown >> 10, named, ends);
    CHECK(named, "nobody names the liar");
}
