/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loan: one rank's part of one save, from BEGIN on. It belongs to the rank's connection, and is
 * found for no other.
 *
 *   BEGIN ──► lent ──SEAL (per object)──► sealing ──COMMIT──► followed by EVENTs until its save is
 *     │ no room: refused, or waits        decided, its connection ends, or the epoch ends
 *     ├─ lent ahead: the slot comes first, BEGIN makes a save of it
 *     ├─ REGAIN: as it was under an engine before this one
 *     ├─ SET_STEP gives a staged loan its save
 *     └─ GIVE, TAKE: it goes on in another process of the rank
 *
 * A slot comes back from a rank only by SEAL, ABORT or the end of its connection: never because an
 * epoch or a save is over, since the rank may be writing into it. After the end of a connection the
 * store lends the slot again when the kernel says that no process but the engine has it open.
 */
#ifndef HEARTH_ENGINE_LOAN_H
#define HEARTH_ENGINE_LOAN_H

#include "core/format/handed.h"
#include "core/format/ranks.h"
#include "core/format/table.h"
#include "core/local/local.h"

#define LOAN_OBJECTS 64u

struct client;
struct hth_node;
struct hth_slot;

/* Peers may have pulled any chunk, by the engine before this one. */
#define LENT_EARLY_ALL UINT32_MAX

/* One object of a loan: its slot is in a rank's hands until SEAL. */
struct lent {
    struct hth_slot *slot; /* NULL: handed over */
    uint64_t asked;        /* bytes, by BEGIN */
    uint32_t early;        /* chunks, from the first on, that peers may have pulled */
    int regained; /* it was handed over to an engine before this one: SEAL changes nothing */
    struct hth_handed sealed; /* as SEAL had it */
    char name[HTH_NAME_MAX + 1];
};

struct loan {
    struct loan *next;
    uint64_t token;
    uint64_t request; /* the BEGIN that made it; 0: another message did */
    uint32_t client;
    uint32_t rank;
    int has_id; /* its step is known */
    int dead;   /* its epoch is over: further objects for it are refused */
    int committed;
    int ahead; /* lend_ahead.c: lent before it was asked for, and not begun yet */
    int given; /* pass.c: waits for the process of the rank that knows the secret */
    uint64_t secret[2];
    struct hth_local_written written; /* by the giver */
    uint32_t commons;                 /* raw objects handed over */
    struct hth_save_id save;
    struct hth_ranks *ranks; /* that take part; NULL: all */
    struct lent *object;     /* [objects]; moves when one more is lent */
    uint32_t objects;
    size_t object_room;
    uint64_t bytes;   /* handed over */
    uint64_t look_ms; /* progress.c: when to look again, and what was reported last */
    uint64_t copied;
    uint32_t said;
};

/* A new one, in the list; its owner fills in the rest. NULL: no memory. */
struct loan *loan_make(struct hth_node *n, const struct client *c);
/* The save is of these ranks alone; NULL: of all. Errors: HEARTH_ENOMEM. */
int loan_name(struct loan *l, const struct hth_ranks *ranks, struct hearth_error *err);
/* The set that follows a message's fixed part; NULL: none, so all ranks. The packet is whole
 * (request.c). */
const struct hth_ranks *loan_ranks(
        const struct hth_local_head *m, size_t fixed, struct hth_ranks *out);
/* The place of its next object, all zeros, which counts once `objects` does. NULL: no memory. */
struct lent *loan_next(struct loan *l);
/* Gives its slots back and frees it. */
void loan_free(struct hth_node *n, struct loan *l);
/* Peers may have pulled chunks of this object, which is given up: they free them. */
void loan_not_written(struct hth_node *n, const struct loan *l, uint32_t index);
/* Gives back the slots that were lent and not handed over: the rank does not write into them any
 * more. */
void loan_give_back(struct hth_node *n, struct loan *l);
/* All ranks of this node, except that of `but`, unmap this slot at the engine's next message. */
void loan_let_go(struct hth_node *n, const struct loan *but, uint64_t slot);
/* The same if the rank's connection has ended. Its process may live and still write into the slots,
 * so they are abandoned. */
void loan_abandon(struct hth_node *n, struct loan *l);
void loan_close(struct hth_node *n); /* frees all */

/* The connection's loan; NULL: none, or given to another process. */
struct loan *loan_find(struct hth_node *n, const struct client *c, uint64_t token);
/* The connection's loan that waits for another process to take it. */
struct loan *loan_given(struct hth_node *n, const struct client *c, uint64_t token);
/* A loan that may still grow: begun, and not handed over by COMMIT. */
struct loan *loan_open(struct hth_node *n, const struct client *c, uint64_t token);
/* The rank writes it, and has not named its step. */
static inline int loan_is_staged(const struct loan *l, uint32_t rank)
{
    return l->rank == rank && !l->has_id && !l->dead && !l->ahead;
}
/* A loan that was lent ahead and is not begun: only BEGIN makes a save of it. */
struct loan *loan_ahead(struct hth_node *n, const struct client *c, uint64_t token);
/* The error for a token that loan_find() and loan_open() do not know: HEARTH_ESTATE. */
int loan_unknown(struct hearth_error *err);

/* The slot of that number, if it is lent to a rank; NULL. */
struct hth_slot *loan_slot(const struct hth_node *n, uint64_t slot);

/* SAVE_ID and EVENT to the rank. */
void loan_answer_id(
        struct hth_node *n, const struct client *c, const struct loan *l, uint64_t request);
/* notifies the ranks; loans stay */
void loan_fail_all(struct hth_node *n, const struct hearth_error *why);
void loan_event(struct hth_node *n, const struct loan *l, enum hearth_level level, int degraded,
        int code, const char *text);

#endif
