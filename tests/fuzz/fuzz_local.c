/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process of the same user sends anything to an engine: packets of any type and content, whole by
 * their head or not, with a descriptor's content or none, from a client that is unknown, attached,
 * or a rank's helper. The engine goes on to answer others.
 */
#include "content.h"
#include "engines.h"
#include "steps.h"

#define FIRST 90000u /* clients that are no ranks of the world */

enum { AS_IT_IS = 4, CONTENT = 8, GONE = 16, SECOND = 32, LATER = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* From the bytes behind a head; what follows the packet's fixed part may be a descriptor's
 * content. */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hth_reader r = { .at = data, .len = size };
    struct hth_node *node;
    struct world w;
    struct step s;

    engines_open(&w, 2, 0);
    for (int i = 0; i < STEPS_MAX && step_next(&r, &s) && (node = world_node(&w, 0)); i++) {
        if (s.how & 1)
            hth_node_client_gone(node, w.rank[0].client); /* its place may be taken */
        speak(node, &s, (uint64_t)i + 1);
        machine_touch(&w, 0);
        engines_advance(&w, s.how & LATER ? 40 : 1);
    }
    must_answer(&w, 0);
    world_close(&w);
    return 0;
}
