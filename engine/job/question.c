/* SPDX-License-Identifier: Apache-2.0 */
/* The table of questions, and how the text of an answer is made and handed over. */
#include "question.h"

#include "engine/state/answer.h"
#include "engine/state/reply.h"
#include "members.h"
#include "recent.h"
#include "status.h"
#include "where.h"
#include "why.h"

#include <stdio.h>
#include <stdlib.h>

/* Each writes one answer, in a bounded number of bytes. */
static const struct {
    uint32_t type;
    int (*put)(
            struct hth_node *n, FILE *to, uint32_t what, uint32_t skip, struct hearth_error *err);
} questions[] = {
    { HTH_LOCAL_STATUS, status_put },
    { HTH_LOCAL_HISTORY, why_put },
    { HTH_LOCAL_NODES, members_put },
    { HTH_LOCAL_PLACES, where_put },
    { HTH_LOCAL_EVENTS, recent_put },
};
#define QUESTIONS (sizeof(questions) / sizeof(questions[0]))

static size_t question_find(uint32_t type)
{
    size_t i = 0;

    while (i < QUESTIONS && questions[i].type != type)
        i++;
    return i;
}

int question_is(uint32_t type)
{
    return question_find(type) < QUESTIONS;
}

int question_text(struct hth_node *n, const struct question *q, char **out_text, size_t *out_len,
        struct hearth_error *err)
{
    size_t len = 0, i = question_find(q->type);
    char *text = NULL;
    FILE *to;
    int rc;

    if (i == QUESTIONS)
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
                "this version of Hearth does not answer questions of type %" PRIu32, q->type);
    to = open_memstream(&text, &len);
    if (!to)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an answer");
    rc = questions[i].put(n, to, q->what, q->skip, err);
    if (fclose(to) && !rc)
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an answer");
    if (!rc && (!len || len > QUESTION_MAX))
        rc = hth_fail(
                err, HEARTH_EIO, 0, "the answer has %zu bytes, not 1 to %zu", len, QUESTION_MAX);
    if (rc) {
        free(text);
        return rc;
    }
    *out_text = text;
    *out_len = len;
    return HEARTH_OK;
}

static void question_let_go(struct hth_node *n, void *text)
{
    (void)n;
    free(text);
}

void question_reply(struct hth_node *n, uint32_t client, uint64_t request, char *text, size_t len)
{
    answer_bytes_to(n, client, request,
            &(struct answer_bytes){
                    .at = text, .len = len, .let_go = question_let_go, .what = text });
}

void question_answer(
        struct hth_node *n, uint32_t client, uint64_t request, const struct question *q)
{
    struct hearth_error err;
    char *text = NULL;
    size_t len = 0;

    if (question_text(n, q, &text, &len, &err))
        reply_error(n, client, request, &err);
    else
        question_reply(n, client, request, text, len);
}

void question_ask(struct hth_node *n, uint32_t client, const struct hth_local_head *m)
{
    struct question q = { .type = m->type };
    const struct hth_local_history *page = (const void *)m;

    if (m->length >= sizeof(*page)) {
        q.what = page->what;
        q.skip = page->skip;
    }
    question_answer(n, client, m->request, &q);
}
