/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to a client's request. Arguments are borrowed until return. */
#ifndef HEARTH_ENGINE_REPLY_H
#define HEARTH_ENGINE_REPLY_H

#include <hearth/error.h>
#include <stddef.h>
#include <stdint.h>

struct hth_node;

/* An answer whose head is filled in; with a descriptor, which goes along: fd >= 0. */
void reply_packet(struct hth_node *n, uint32_t client, const void *answer, size_t len);
void reply_packet_fd(struct hth_node *n, uint32_t client, const void *answer, size_t len, int fd);

void reply_ok(struct hth_node *n, uint32_t client, uint64_t request);
void reply_error(
        struct hth_node *n, uint32_t client, uint64_t request, const struct hearth_error *err);
void reply_refusal(
        struct hth_node *n, uint32_t client, uint64_t request, int code, const char *text);

#endif
