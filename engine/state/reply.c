/* SPDX-License-Identifier: Apache-2.0 */
/* How a request is answered. Only this file calls env.reply(). */
#include "reply.h"

#include "node_state.h"

#include <string.h>

void reply_packet_fd(struct hth_node *n, uint32_t client, const void *answer, size_t len, int fd)
{
    n->env.reply(n->env.reply_self, client, answer, len, fd);
}

void reply_packet(struct hth_node *n, uint32_t client, const void *answer, size_t len)
{
    reply_packet_fd(n, client, answer, len, -1);
}

void reply_error(
        struct hth_node *n, uint32_t client, uint64_t request, const struct hearth_error *err)
{
    struct hth_local_error answer = {
        .head = { sizeof(answer), HTH_LOCAL_ERROR, request, 0 },
        .code = err->code,
        .native = err->native,
    };

    memcpy(answer.text, err->text, sizeof(answer.text));
    reply_packet(n, client, &answer, sizeof(answer));
}

void reply_ok(struct hth_node *n, uint32_t client, uint64_t request)
{
    struct hth_local_head answer = { sizeof(answer), HTH_LOCAL_OK, request, 0 };

    reply_packet(n, client, &answer, sizeof(answer));
}

void reply_refusal(
        struct hth_node *n, uint32_t client, uint64_t request, int code, const char *text)
{
    struct hearth_error err;

    hth_fail(&err, code, 0, "%s", text);
    reply_error(n, client, request, &err);
}
