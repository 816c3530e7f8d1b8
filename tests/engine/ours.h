/* SPDX-License-Identifier: Apache-2.0 */
/* A client that is no rank of the world asks an engine in virtual time; the answer may come
 * later. */
#ifndef HEARTH_TESTS_ENGINE_OURS_H
#define HEARTH_TESTS_ENGINE_OURS_H

#include "check.h"
#include "world_parts.h"

#include "core/base/bytes.h" /* has parameters of the name of the world */

#include <string.h>
#include <unistd.h>

#define OURS 99999u
#define SOON 6000u /* ms: more than recovering, looking, telling and fetching take */

static struct world w;
static uint64_t request;
static uint32_t node; /* where it asks */

static union {
    struct hth_local_head head;
    struct hth_local_error error;
    struct hth_local_mapped mapped;
    struct hth_local_bytes bytes;
    struct hth_local_lent lent;
    struct hth_local_event event;
    struct hth_local_found found;
    struct hth_local_kept_list kept;
} heard; /* the last answer; type 0: none yet */
static uint32_t answers;

static inline void hear(struct world *world, const struct letter *l)
{
    if (l->client != OURS || l->machine != world->member[node])
        return;
    memcpy(&heard, l->bytes, l->len < sizeof(heard) ? l->len : sizeof(heard));
    answers++;
}

static inline void say(void *message, uint32_t len, enum hth_local_type type)
{
    struct hth_local_head head = { len, type, ++request, 0 };

    memcpy(message, &head, sizeof(head));
    heard.head = (struct hth_local_head){ 0 };
    hth_node_request(world_node(&w, node), OURS, message, len, NULL);
    machine_due(&w.machine[w.member[node]], 0);
    world_advance(&w, w.now_ms + 1);
}

static inline void wait_for(enum hth_local_type type)
{
    for (uint64_t until = w.now_ms + SOON; !heard.head.type && w.now_ms < until && !w.why[0];)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(u32, heard.head.type, (uint32_t)type), "node %u: %s", node,
            heard.head.type == HTH_LOCAL_ERROR ? heard.error.text : "nothing was heard");
}

static inline void ask(
        void *message, uint32_t len, enum hth_local_type type, enum hth_local_type answer)
{
    say(message, len, type);
    wait_for(answer);
}

static inline void attach(uint32_t at)
{
    struct hth_local_attach m = { .version = hth_version_written(HTH_FORMAT_LOCAL),
        .rank = at,
        .world = w.ranks,
        .helper = 1, /* of a rank that is there */
        .job = "sim" };

    node = at;
    w.stranger = hear;
    ask(&m, sizeof(m), HTH_LOCAL_ATTACH, HTH_LOCAL_ATTACHED);
}

static inline void end(void)
{
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    world_close(&w);
}

#endif
