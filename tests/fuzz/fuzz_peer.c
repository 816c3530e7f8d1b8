/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member that lies: authenticated messages of any type and content, to the coordinator and to another member of
 * three real engines that have a save. Whatever they believe of it, they go on to answer their ranks.
 */
#include "steps.h"
#include "world_parts.h"

#include <stdlib.h>
#include <string.h>

#define LIAR     1u
#define STRANGER 99999u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned answers;

static void stranger_hears(struct world *w, const struct letter *l)
{
    struct hth_local_head head;

    (void)w;
    memcpy(&head, l->bytes, sizeof(head));
    answers += l->client == STRANGER && head.type == HTH_LOCAL_BYTES;
}

static void lying_open(struct world *w)
{
    struct world_opts o = { .seed = 1,
        .nodes = 3,
        .ranks_per_node = 1,
        .copies = 1,
        .keep = 1,
        .run_ms = 60000,
        .data_max = 100 };

    world_open(w, &o);
    w->stranger = stranger_hears;
    while (!w->why[0] && hth_save_none(w->newest.id))
        world_advance(w, w->now_ms + 1);
    if (w->why[0])
        abort();
}

static void lie(struct world *w, const struct step *s)
{
    struct hth_node *liar = world_node(w, LIAR);
    size_t len = s->len < HTH_BODY_MAX ? s->len : HTH_BODY_MAX;

    if (liar)
        (void)hth_session_send(
                hth_node_ctx(liar)->session, s->how & 1 ? 2 : 0, s->type, s->bytes, len);
    machine_touch(w, w->member[LIAR]);
}

/* That it answers at all. */
static void must_answer(struct world *w, uint32_t node)
{
    struct hth_local_head status = { sizeof(status), HTH_LOCAL_STATUS, 1, 0 };
    struct hth_node *n = world_node(w, node);

    answers = 0;
    if (n)
        hth_node_request(n, STRANGER, &status, sizeof(status), NULL);
    world_advance(w, w->now_ms + 2);
    if (n && n == world_node(w, node) && !answers)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hth_reader r = { .at = data, .len = size };
    struct world w;
    struct step s;

    lying_open(&w);
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
