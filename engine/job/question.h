/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions about this engine's state, whose answer is text: from any process of the engine's user,
 * also before ATTACH, and from the engines of other members (elsewhere.h). A question changes
 * nothing.
 */
#ifndef HEARTH_ENGINE_QUESTION_H
#define HEARTH_ENGINE_QUESTION_H

#include "core/local/local.h"

#define QUESTION_MAX ((size_t)256 << 10) /* bytes of an answer */

struct hth_node;

struct question {
    uint32_t type; /* enum hth_local_type */
    uint32_t what, skip;
};

int question_is(uint32_t type); /* 1: that request is a question */
/* The caller frees *out_text. Errors: HEARTH_EPROTO, HEARTH_ENOMEM, HEARTH_EUNSUPPORTED. */
int question_text(struct hth_node *n, const struct question *q, char **out_text, size_t *out_len,
        struct hearth_error *err);

/* Answers a client; question_reply() takes text over. */
void question_ask(struct hth_node *n, uint32_t client, const struct hth_local_head *m);
void question_answer(
        struct hth_node *n, uint32_t client, uint64_t request, const struct question *q);
void question_reply(struct hth_node *n, uint32_t client, uint64_t request, char *text, size_t len);

#endif
