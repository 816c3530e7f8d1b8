/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that are not chosen, and the reasons: for the log here and, before GO, for the ranks of
 * every node. A step may be ruled out by each node that lists it, and be looked at again by a later
 * plan; it is reported once.
 */
#include "choice_state.h"

#include "core/base/bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MORE 160u /* bytes that are left for the last line */

static int ruled_out_has(const struct hth_choice *co, const char *line, size_t len)
{
    for (const char *at = co->ruled_out; (at = strstr(at, line)); at++)
        if ((at == co->ruled_out || at[-1] == '\n') && at[len] == '\n')
            return 1;
    return 0;
}

static void ruled_out_add(struct hth_choice *co, const char *line)
{
    size_t len = strlen(line), used = strlen(co->ruled_out), room = sizeof(co->ruled_out) - used;

    if (co->ruled_more || ruled_out_has(co, line, len))
        return;
    co->ruled_more = len + 2 + MORE > room;
    if (co->ruled_more)
        snprintf(co->ruled_out + used, room, "and more: see the engine's log on node %s\n",
                co->ctx->epoch->member[co->ctx->epoch->self].node);
    else
        snprintf(co->ruled_out + used, room, "%s\n", line);
}

void rule_out(struct hth_choice *co, const char *event, const char *fmt, ...)
{
    char line[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    hth_say(&co->ctx->log, HEARTH_LOG_WARN, event, "%s", line);
    for (char *at = line; *at; at++)
        if (*at == '\n')
            *at = ' ';
    ruled_out_add(co, line);
}

void ruled_out_tell(struct hth_choice *co, uint32_t node)
{
    unsigned char body[4 + sizeof(co->ruled_out)];
    size_t len = strlen(co->ruled_out);

    if (!len)
        return;
    hth_put32(body, co->serial);
    memcpy(body + 4, co->ruled_out, len);
    if (node == HTH_NODE_NONE)
        hth_tree_down(co->ctx, HTH_KIND_RULED_OUT, body, 4 + len);
    else
        hth_tree_to(co->ctx, node, HTH_KIND_RULED_OUT, body, 4 + len);
}
