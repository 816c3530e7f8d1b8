/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bootstrap over TCP: a place where the ranks of a job meet (meeting/meeting.h). A rank with an
 * engine gives its row to that engine, with what is here. A rank without one meets by itself: an
 * all-gather that the caller begins, or a rank whose engine cannot start, so that the others get
 * the reason.
 */
#ifndef HEARTH_CLIENT_TCP_H
#define HEARTH_CLIENT_TCP_H

#include "meeting/meeting.h"
#include <hearth/bootstrap.h>

struct hth_tcp {
    struct hearth_bootstrap base;
    struct hth_meeting_keys keys;
    char host[HTH_MEETING_HOST];
    uint16_t port;
    uint32_t rank, world, deadline_ms;
    uint64_t tree_from;                     /* 0 but in tests: see meeting/meeting.h */
    unsigned char token[HTH_MEETING_TOKEN]; /* of this process */
    struct hth_meeting *meeting;            /* for ranks without an engine; NULL: none yet */
    struct gather *gather;                  /* tcp.c, while it lasts */
};

/* NULL: a bootstrap of another kind, or the caller's own. */
struct hth_tcp *hth_tcp_of(const struct hearth_bootstrap *bootstrap);

/* Gives the bootstrap the keys with which ranks prove, from here on, that they may take part. A
 * bootstrap of the caller's own is left alone. */
void hth_bootstrap_tell(
        const struct hearth_bootstrap *bootstrap, const struct hth_meeting_keys *keys);
/* For tests, whose jobs have no table that is so large. */
void hth_bootstrap_tree_from(const struct hearth_bootstrap *bootstrap, uint64_t bytes);

/* The addresses of the place. If it has none, the resolver is asked again until `until` (of
 * hth_mono_ms()): a pod's record may appear after the pod. The resolver's own timeouts come on top.
 * Errors: HEARTH_EINVAL. */
int hth_tcp_resolve(const struct hth_tcp *t, uint64_t until, struct hth_meeting_place *out,
        struct hearth_error *err);

/* This rank comes by itself, and waits until `until` (of hth_mono_ms()). */
int hth_tcp_meet(struct hth_tcp *t, uint64_t until, const void *mine, size_t len, void *all,
        struct hearth_error *err);
/* Its port is free again, for an engine. */
void hth_tcp_rest(struct hth_tcp *t);

#endif
