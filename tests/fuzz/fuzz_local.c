/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process of the same user may say to an engine: packets of any type and content, whole by their
 * head or not, with a descriptor's content or none, from a client that is unknown, attached, or a rank's helper. The engine
 * goes on to answer others.
 */
#include "content.h"
#include "steps.h"
#include "world_parts.h"

#include <stdlib.h>
#include <string.h>

#define FIRST  90000u /* clients that are no ranks of the world */
#define OTHERS 90009u

enum { AS_IT_IS = 4, CONTENT = 8, GONE = 16, SECOND = 32, LATER = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned answers;

static void others_hear(struct world *w, const struct letter *l)
{
    struct hth_local_head head;

    (void)w;
    memcpy(&head, l->bytes, sizeof(head));
    answers += l->client == OTHERS && head.type == HTH_LOCAL_BYTES;
}

static void speaking_open(struct world *w)
{
    struct world_opts o = { .seed = 1,
        .nodes = 2,
        .ranks_per_node = 1,
        .copies = 1,
        .keep = 1,
        .run_ms = 60000,
        .data_max = 100 };

    world_open(w, &o);
    w->stranger = others_hear;
    while (!w->why[0] && hth_save_none(w->newest.id))
        world_advance(w, w->now_ms + 1);
    if (w->why[0])
        abort();
}

/* From the bytes behind a head; what follows the packet's fixed part may be a descriptor's content. */
static void speak(struct hth_node *node, const struct step *s, uint64_t request)
{
    size_t most = HTH_LOCAL_MAX - sizeof(struct hth_local_head);
    size_t len = s->len < most ? s->len : most, whole = len + sizeof(struct hth_local_head);
    uint32_t client = FIRST + (s->how & SECOND ? 1 : 0);
    struct hth_local_head head = { (uint32_t)whole, s->type, request, 0 };
    unsigned char *packet = malloc(whole); /* of the exact size, for ASan */

    if (!packet)
        return;
    if (len >= 8)
        head.token = hth_get64(s->bytes + len - 8);
    if (len)
        memcpy(packet + sizeof(head), s->bytes, len);
    memcpy(packet, s->how & AS_IT_IS && len >= sizeof(head) ? (const void *)s->bytes : &head,
            sizeof(head));
    hth_node_request(
            node, client, packet, whole, s->how & CONTENT ? content_of(s->bytes, s->len) : NULL);
    if (s->how & GONE)
        hth_node_client_gone(node, client);
    free(packet);
}

static void must_hear(struct world *w, struct hth_node *node)
{
    struct hth_local_head status = { sizeof(status), HTH_LOCAL_STATUS, 1, 0 };

    answers = 0;
    hth_node_request(node, OTHERS, &status, sizeof(status), NULL);
    world_advance(w, w->now_ms + 2);
    if (world_node(w, 0) == node && !answers)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hth_reader r = { .at = data, .len = size };
    struct hth_node *node;
    struct world w;
    struct step s;

    speaking_open(&w);
    for (int i = 0; i < STEPS_MAX && step_next(&r, &s) && (node = world_node(&w, 0)); i++) {
        if (s.how & 1)
            hth_node_client_gone(node, w.rank[0].client); /* its place may be taken */
        speak(node, &s, (uint64_t)i + 1);
        machine_touch(&w, 0);
        world_advance(&w, w.now_ms + (s.how & LATER ? 40 : 1));
    }
    if ((node = world_node(&w, 0)))
        must_hear(&w, node);
    world_close(&w);
    return 0;
}
