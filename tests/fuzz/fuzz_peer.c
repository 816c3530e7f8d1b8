/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member that lies: authenticated messages of any type and content, to the coordinator and to another member of
 * three real engines that have a save. Whatever they believe of it, they go on to answer their ranks.
 */
#include "engines.h"
#include "steps.h"

#define LIAR 1u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void lie(struct world *w, const struct step *s)
{
    struct hth_node *liar = world_node(w, LIAR);
    size_t len = s->len < HTH_BODY_MAX ? s->len : HTH_BODY_MAX;

    if (liar)
        (void)hth_session_send(
                hth_node_ctx(liar)->session, s->how & 1 ? 2 : 0, s->type, s->bytes, len);
    machine_touch(w, w->member[LIAR]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hth_reader r = { .at = data, .len = size };
    struct world w;
    struct step s;

    engines_open(&w, 3);
    for (int i = 0; i < STEPS_MAX && step_next(&r, &s); i++) {
        lie(&w, &s);
        world_advance(&w, w.now_ms + (s.how & 2 ? 40 : 2));
    }
    world_advance(&w, w.now_ms + 50);
    must_answer(&w, 0);
    must_answer(&w, 2);
    world_close(&w);
    return 0;
}
