/* SPDX-License-Identifier: Apache-2.0 */
/* A page of engine/state/events.h. */
#include "recent.h"

#include "core/local/local.h"
#include "engine/state/events.h"
#include "engine/state/node_state.h"
#include "engine/state/quoted.h"

int recent_put(struct hth_node *n, FILE *to, uint32_t what, uint32_t skip, struct hearth_error *err)
{
    char name[QUOTED(HTH_NAME_MAX + 1)], event[QUOTED(sizeof(((struct event *)0)->event))];
    char text[QUOTED(sizeof(((struct event *)0)->text))];
    struct event e;

    (void)what;
    (void)err;
    quoted(n->env.node, name);
    fprintf(to, "{\"node\": \"%s\", \"lines\": %" PRIu64 ", \"events\": [", name,
            events_count(n->events));
    for (uint32_t i = 0; i < HTH_EVENTS_PAGE && i <= UINT32_MAX - skip; i++) {
        if (!events_at(n->events, skip + i, &e))
            break;
        quoted(e.event, event);
        quoted(e.text, text);
        fprintf(to,
                "%s{\"wall_ms\": %" PRIu64
                ", \"level\": \"%s\", \"event\": \"%s\", \"text\": \"%s\"}",
                i ? ", " : "", e.wall_ms, hth_log_level_word(e.level), event, text);
    }
    fputs("]}", to);
    return HEARTH_OK;
}
