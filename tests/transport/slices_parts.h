/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slice: some owners of memory, one who pulls from all of them, and one thing that happens to one of them
 * at a random moment. Three roles in processes of their own, and what they share.
 */
#ifndef SLICES_PARTS_H
#define SLICES_PARTS_H

#include "transport/transport.h"
#include <sys/types.h>

#define SLICES_OWNERS  3u
#define SLICES_OBJECT  (UINT64_C(4) << 20) /* what an owner has */
#define SLICES_END_MS  10000u              /* a pull whose connection is cut ends by then */
#define SLICES_HALT_MS 3000u /* others' pulls never stop for so long; the machine may be busy */

struct slices_fabric {
    const char *name, *provider, *profile; /* NULL: no strict one */
};

enum slices_kind {
    SLICES_KILL,   /* an owner dies */
    SLICES_STOP,   /* it stands still, and goes on later */
    SLICES_CUT,    /* it takes and answers nothing, and then it does again */
    SLICES_MOVE,   /* it dies, and is back at once with another address */
    SLICES_RIVAL,  /* another who pulls from the same owners dies */
    SLICES_REDIAL, /* the puller drops one in the middle of its pulls, and dials it again */
    SLICES_KINDS
};

/* By pipe, from an owner or from the director: where to find owner number `owner`. */
struct slices_offer {
    uint32_t owner, addr_len;
    unsigned char addr[HTH_ADDR_MAX];
};

/* In a message of an owner to whoever connected. */
struct slices_grant {
    uint32_t desc_len;
    unsigned char desc[HTH_DESC_MAX];
};

struct slices_task { /* of a puller */
    const struct slices_fabric *fabric;
    uint64_t seed;
    uint32_t victim; /* its pulls may stop; SLICES_OWNERS: nobody's */
    int redials;     /* it drops the victim by itself */
    int closes;      /* it ends in the middle of its pulls */
    int in, out;     /* offers, then 'e'; struct slices_result */
};

struct slices_result {
    uint64_t pulls, failed, dropped;
    uint64_t halt_ms; /* the longest that a healthy owner's pulls stood still */
    uint64_t end_ms;  /* the longest from a cut to the end of its pulls */
};

/* What a process of a slice is, for its sentence. */
extern char slices_what[96];
_Noreturn __attribute__((format(printf, 1, 2))) void slices_fail(const char *format, ...);
#define SLICES_MUST(cond)                                                \
    do {                                                                 \
        if (!(cond))                                                     \
            slices_fail("%s:%d: not so: %s", __FILE__, __LINE__, #cond); \
    } while (0)

uint64_t slices_now_ms(void);
uint64_t slices_random(uint64_t *state, uint64_t sides); /* 0 to sides - 1 */
struct hth_transport *slices_open(
        const struct slices_fabric *fabric, const struct hth_transport_events *events);
void slices_rest(struct hth_transport *t, uint64_t ms); /* until there is work, at most so long */
unsigned char *slices_map(uint64_t len);
/* Byte `at` of what owner number `owner` has; each 8 are one number. */
void slices_fill(unsigned char *out, uint64_t len, uint32_t owner);
int slices_is_filled(const unsigned char *bytes, uint64_t len, uint32_t owner, uint64_t off);

_Noreturn void slices_owner(const struct slices_fabric *fabric, uint32_t owner, int out);
_Noreturn void slices_puller(const struct slices_task *task);

#endif
