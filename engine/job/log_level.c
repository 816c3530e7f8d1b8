/* SPDX-License-Identifier: Apache-2.0 */
#include "log_level.h"

#include "engine/state/answer.h"
#include "engine/state/node_state.h"
#include "engine/state/quoted.h"
#include "engine/state/reply.h"

#include <stdio.h>
#include <string.h>

static void log_level_say(const struct hth_node *n, const char *now, const char *was)
{
    hth_say(&n->ctx.log, HEARTH_LOG_INFO, "log-level",
            "lines up to %s are kept from here on, not %s", now, was);
}

/* 0: there is no such level, or no log. The change is logged at the one of both levels that keeps
 * more lines. */
static int log_level_set(const struct hth_node *n, uint32_t wanted, uint32_t before)
{
    const char *now = hth_log_level_word((enum hearth_log_level)wanted);
    const char *was = hth_log_level_word((enum hearth_log_level)before);
    const struct hth_log *log = &n->ctx.log;

    if (!wanted)
        return 1;
    if (!log->set_level || !hth_log_level_of(now))
        return 0;
    if (wanted < before)
        log_level_say(n, now, was);
    log->set_level(log->self, (enum hearth_log_level)wanted);
    if (wanted > before)
        log_level_say(n, now, was);
    return 1;
}

void log_level_ask(struct hth_node *n, uint32_t client, const struct hth_local_log_level *m)
{
    char node[QUOTED(HTH_NAME_MAX + 1)], path[QUOTED(sizeof(n->env.log_path))];
    char json[512 + sizeof(node) + sizeof(path)];
    struct hth_log_state before, now;
    const char *was;
    int len;

    hth_log_state(&n->ctx.log, &before);
    was = hth_log_level_word(before.level);
    if (!log_level_set(n, m->level, (uint32_t)before.level)) {
        reply_refusal(n, client, m->head.request, HEARTH_EINVAL,
                "a level of the log that is unknown: use one version of Hearth");
        return;
    }
    hth_log_state(&n->ctx.log, &now);
    quoted(n->env.node, node);
    quoted(n->env.log_path, path);
    len = snprintf(json, sizeof(json),
            "{\"job\": \"%s\", \"node\": \"%s\", \"level\": \"%s\", \"was\": \"%s\""
            ", \"log\": \"%s\", \"lost\": %" PRIu64 ", \"lost_now\": %" PRIu64 ", \"why\": \"%s\""
            ", \"held_back\": %" PRIu64 ", \"unsent\": %" PRIu64 "}",
            n->ctx.opts.job, node, hth_log_level_word(now.level), was, path, now.lost, now.lost_now,
            now.lost ? strerrordesc_np(now.why) : "", now.held_back, now.unsent);
    answer_bytes_to(
            n, client, m->head.request, &(struct answer_bytes){ .at = json, .len = (size_t)len });
}
