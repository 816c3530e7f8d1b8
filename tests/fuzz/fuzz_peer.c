/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member that lies: authenticated messages of any type and content, of the session itself too,
 * from any of three real engines that have a save to another one, or that is silent for a time; the
 * tree is of one level or of two. Whatever they believe of it, they go on to answer their ranks.
 */
#include "engines.h"
#include "steps.h"

#include "transport/session/session_parts.h"

/* Of a step's `how`, and of `more`, which in the first one is the tree's degree: 0, or a chain. */
enum { HIGHER = 1, LATER = 2, WHO = 2 /* bits to shift */ };
enum { SILENT = 1, MUCH_LATER = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t liar_of(const struct step *s)
{
    static const uint32_t who[] = { 1, 2, 0, 1 };

    return who[s->how >> WHO & 3];
}

static void lie(struct world *w, const struct step *s)
{
    uint32_t from = liar_of(s), to = s->how & HIGHER ? (from + 1) % 3 : (from + 2) % 3;
    struct hth_node *liar = world_node(w, from);
    struct hth_session *session = liar ? hth_node_ctx(liar)->session : NULL;
    const struct peer *peer = session ? hth_peer_find(session, to) : NULL;
    struct link *link = peer ? hth_peer_out(peer) : NULL;
    size_t len = s->len < HTH_BODY_MAX ? s->len : HTH_BODY_MAX;

    if (link)
        (void)hth_link_send(session, link, s->type, s->bytes, len);
    else if (session)
        (void)hth_session_send(session, to, s->type, s->bytes, len);
    machine_touch(w, w->member[from]);
}

/* A node that has fallen silent speaks again at its next step of that kind. */
static void be_silent(struct world *w, const struct step *s, unsigned *silent)
{
    uint32_t node = liar_of(s);

    *silent ^= 1u << node;
    world_silence(w, w->member[node], *silent >> node & 1);
}

static void act(struct world *w, const struct step *s, int first, unsigned *silent)
{
    unsigned more = first ? 0 : s->more;

    if (more & SILENT)
        be_silent(w, s, silent);
    else
        lie(w, s);
    engines_advance(w, more & MUCH_LATER ? 3000 : s->how & LATER ? 40 : 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hth_reader r = { .at = data, .len = size };
    unsigned silent = 0;
    struct world w;
    struct step s;

    engines_open(&w, 3, size > 1 && data[1] ? 1 : 0);
    for (int i = 0; i < STEPS_MAX && step_next(&r, &s); i++)
        act(&w, &s, !i, &silent);
    engines_advance(&w, 50);
    for (uint32_t node = 0; node < 3; node++)
        must_answer(&w, node);
    world_close(&w);
    return 0;
}
