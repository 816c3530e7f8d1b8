/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call that can fail returns 0 or one negative code, and takes a
 * `struct hearth_error *err` last. `err` may be NULL. It is written only on
 * failure, so one object can serve a chain of calls.
 */
#ifndef HEARTH_ERROR_H
#define HEARTH_ERROR_H

#include <hearth/export.h>

HEARTH_BEGIN

/* Grouped by the largest thing the failure has damaged. The hundreds digit is
 * the group, so a caller that does not know a code can still act on its group.
 * Values are ABI and travel on the wire: append, never renumber. */
#define HEARTH_CODES(X)                                                  \
    /* 1xx: this call only; change the call or try again */              \
    X(HEARTH_EINVAL, -101, "invalid argument")                           \
    X(HEARTH_ENOENT, -102, "no such thing")                              \
    X(HEARTH_EEXIST, -103, "exists already")                             \
    X(HEARTH_ENOMEM, -104, "out of memory")                              \
    X(HEARTH_ENOSPC, -105, "no room in the store")                       \
    X(HEARTH_EUNSUPPORTED, -106, "not supported by this version")        \
    X(HEARTH_ECANCELED, -107, "given up because of a close or a cancel") \
    X(HEARTH_ESTATE, -108, "not possible in this state")                 \
    X(HEARTH_EBUSY, -109, "all room is taken by undecided saves")        \
    X(HEARTH_EFORK, -110, "not possible in a forked child")              \
    X(HEARTH_EIO, -111, "the system refused")                            \
    X(HEARTH_ELOCKED, -112, "another process holds the lock")            \
    /* 2xx: one peer is gone or behind; other copies remain */           \
    X(HEARTH_EPEER, -201, "peer unreachable")                            \
    X(HEARTH_ETIMEOUT, -202, "not in time")                              \
    X(HEARTH_EAUTH, -203, "peer does not prove the job key")             \
    X(HEARTH_EPROTO, -204, "peer speaks another version or nonsense")    \
    X(HEARTH_EENGINE, -205, "this node's engine is gone")                \
    X(HEARTH_EDENIED, -206, "peer refused")                              \
    /* 3xx: the checkpoint itself is damaged or lost */                  \
    X(HEARTH_ECORRUPT, -301, "checksum or format is wrong")              \
    X(HEARTH_ELOST, -302, "no holder gave a complete copy")              \
    X(HEARTH_EFAILED, -303, "the save failed")                           \
    X(HEARTH_EUNKNOWN, -304, "the outcome of the save is unknown")

enum hearth_code {
    HEARTH_OK = 0,
#define HEARTH_X(name, value, text) name = value,
    HEARTH_CODES(HEARTH_X)
#undef HEARTH_X
};

#define HEARTH_ERROR_TEXT 512 /* bytes, terminator included */

struct hearth_error {
    int code;                     /* enum hearth_code */
    int native;                   /* errno, ucs_status_t or fi_errno; 0: none */
    char text[HEARTH_ERROR_TEXT]; /* a sentence for a user, no newline */
};

/* A code in plain words. Never NULL; static storage; any thread. */
HEARTH_API const char *hearth_strerror(int code);

HEARTH_END

#endif
