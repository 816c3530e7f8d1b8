/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member that lies: authenticated messages of any type and content, of the session itself too, from any of three
 * real engines that have a save to another one; the tree is of one level or of two. Whatever they believe of it,
 * they go on to answer their ranks.
 */
#include "engines.h"
#include "steps.h"

#include "transport/session/session_parts.h"

/* Of a step's `how`. The first step's second byte is the tree's degree: 0, or a chain. */
enum { HIGHER = 1, LATER = 2, WHO = 2 /* bits to shift */ };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void lie(struct world *w, const struct step *s)
{
    static const uint32_t who[] = { 1, 2, 0, 1 };
    uint32_t from = who[s->how >> WHO & 3], to = s->how & HIGHER ? (from + 1) % 3 : (from + 2) % 3;
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hth_reader r = { .at = data, .len = size };
    struct world w;
    struct step s;

    engines_open(&w, 3, size > 1 && data[1] ? 1 : 0);
    for (int i = 0; i < STEPS_MAX && step_next(&r, &s); i++) {
        lie(&w, &s);
        world_advance(&w, w.now_ms + (s.how & LATER ? 40 : 2));
    }
    world_advance(&w, w.now_ms + 50);
    for (uint32_t node = 0; node < 3; node++)
        must_answer(&w, node);
    world_close(&w);
    return 0;
}
