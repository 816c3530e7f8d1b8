/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one remote operation, pull, as each backend offers it, and small messages beside it.
 * One transport, one thread: every call but wake() comes from it, and none waits.
 * tests/transport/conformance.c tests this contract.
 *
 * - A destination range belongs to the transport from pull() until on_pull(); after on_pull()
 *   with any status the transport never writes it again.
 * - Every accepted pull gives one on_pull(), every connection (accepted or dialled) one
 *   on_down(), after all its pulls; also after drop(), death of the peer and close().
 * - Callbacks run only inside progress() (close() runs the last ones) and may call everything
 *   but progress() and close().
 * - drop() is the only cancel.
 */
#ifndef HEARTH_TRANSPORT_TRANSPORT_H
#define HEARTH_TRANSPORT_TRANSPORT_H

#include "core/base/env.h"
#include "core/format/epoch.h"

#define HTH_MESSAGE_MAX 8192u /* bytes of a message, frame included */
#define HTH_DESC_MAX    64u   /* bytes of a grant's descriptor */

struct hth_transport;
struct hth_region; /* registered memory; the backend's */

/* slot | generation: a stale id is detected, never followed. 0 is none. */
typedef uint64_t hth_conn;

enum hth_transport_caps {
    HTH_CAP_ONE_SIDED = 1,       /* a pull needs no owner CPU */
    HTH_CAP_READ_ONLY = 2,       /* a remote write to granted memory is refused */
    HTH_CAP_BOUNDS = 4,          /* a pull outside of the grant is refused by the provider */
    HTH_CAP_PINS = 8,            /* registration pins pages */
    HTH_CAP_GRANT_PER_CONN = 16, /* a grant is useless on another connection */
};

#define HTH_PROVIDER_DEFAULT "tcp" /* of both backends */

struct hth_transport_opts {
    const char
            *bind; /* numeric address to listen on, "127.0.0.1" or "::1"; mandatory, no wildcard */
    uint16_t port; /* 0: any */
    const char *provider; /* backend's own: "tcp", "posix"; NULL: HTH_PROVIDER_DEFAULT */
    const char *device;   /* interface name; NULL: the one that has `bind` */
    const char *library;  /* full path of the backend's library; NULL: the loader's */
    int trusted;          /* 1: a listener that obeys anybody is fine off loopback, too */
    uint32_t connect_ms;  /* 0: 5000 */
    struct hth_clock clock;
    struct hth_log log;
};

struct hth_transport_events {
    void *self;
    /* A peer has connected. Nothing is known of it yet; its first message says who it is. */
    void (*on_accept)(void *self, hth_conn conn);
    /* A dialled connection stands: messages may be sent. */
    void (*on_up)(void *self, hth_conn conn);
    /* HEARTH_EPEER, HEARTH_ETIMEOUT (connect), HEARTH_EPROTO, HEARTH_ECANCELED (our own drop or close). */
    void (*on_down)(void *self, hth_conn conn, int code, const char *detail);
    void (*on_message)(
            void *self, hth_conn conn, const void *bytes, size_t len); /* valid during the call */
    void (*on_writable)(void *self, hth_conn conn); /* after send() said HEARTH_EBUSY */
    void (*on_pull)(
            void *self, uint64_t cookie, int code); /* 0, EPEER, EDENIED, ECANCELED, EPROTO */
};

struct hth_transport_ops {
    const char *name; /* "ofi", "ucx", "loop" */

    uint32_t (*caps)(struct hth_transport *t);

    /* The address others dial, out_addr[HTH_ADDR_MAX]. Listening since open. */
    int (*address)(struct hth_transport *t, unsigned char *out_addr, uint32_t *out_len,
            struct hearth_error *err);

    /* Errors: HEARTH_EINVAL (no such address blob), HEARTH_ENOMEM. on_up() or on_down() follows. */
    int (*connect)(struct hth_transport *t, const unsigned char *addr, uint32_t len,
            hth_conn *out_conn, struct hearth_error *err);

    /* Cut it: its pulls complete with HEARTH_ECANCELED, then on_down(), in one of the next calls of
     * progress(). Messages of it are delivered no more. */
    void (*drop)(struct hth_transport *t, hth_conn conn);

    /* Copied; kept in order; len <= HTH_MESSAGE_MAX. Errors: HEARTH_EBUSY (on_writable() follows),
     * HEARTH_EPEER (no such connection), HEARTH_EINVAL. */
    int (*send)(struct hth_transport *t, hth_conn conn, const void *bytes, size_t len);

    /* Memory that may be pulled from (read-only for peers) or pulled into. */
    int (*reg)(struct hth_transport *t, void *base, uint64_t len, struct hth_region **out,
            struct hearth_error *err);
    /* HEARTH_EBUSY while pulls go into it. Grants on it are revoked. */
    int (*dereg)(struct hth_transport *t, struct hth_region *region);

    /* Let the peer of `conn` pull [off, off + len) of the region. out_desc[HTH_DESC_MAX] goes to
     * the peer in a message; the same bytes revoke. */
    int (*grant)(struct hth_transport *t, struct hth_region *region, uint64_t off, uint64_t len,
            hth_conn conn, unsigned char *out_desc, uint32_t *out_len, struct hearth_error *err);
    void (*revoke)(struct hth_transport *t, const unsigned char *desc, uint32_t len);

    /* Bring bytes [roff, roff + len) of the grant (counted from the grant's start) to
     * [doff, doff + len) of our region. 0: accepted, on_pull(cookie) follows, never inside this
     * call. HEARTH_EBUSY: too many at once, try after an on_pull(). HEARTH_EPEER, HEARTH_EINVAL. */
    int (*pull)(struct hth_transport *t, hth_conn conn, const unsigned char *desc,
            uint32_t desc_len, uint64_t roff, struct hth_region *region, uint64_t doff,
            uint64_t len, uint64_t cookie);

    /* Move what can be moved and run callbacks. Returns how much was done; 0: nothing. */
    int (*progress)(struct hth_transport *t);

    /* Before sleeping: 1 and a readable-when-there-is-work descriptor (-1: none) with the latest
     * time to call progress() again; 0: there is work now, do not sleep. */
    int (*arm)(struct hth_transport *t, int *out_fd, uint64_t *out_due_ms);

    /* Any thread: makes the descriptor readable. */
    void (*wake)(struct hth_transport *t);

    /* Downs every connection, then frees. Regions and grants are gone. */
    void (*close)(struct hth_transport *t);
};

struct hth_transport {
    const struct hth_transport_ops *ops;
};

/* What a backend module (hearth-ofi.so, hearth-ucx.so) exports as `hth_transport_backend`. */
struct hth_transport_backend {
    uint32_t abi; /* HTH_TRANSPORT_ABI */
    const char *name;
    /* events: copied. Errors: HEARTH_EINVAL names the unknown interface, provider, address, or
     * the listener that is not safe there;
     * HEARTH_EEXIST the port in use. */
    int (*open)(const struct hth_transport_opts *opts, const struct hth_transport_events *events,
            struct hth_transport **out, struct hearth_error *err);
};
#define HTH_TRANSPORT_ABI 1u

/* dlopen(RTLD_NOW | RTLD_LOCAL) of hearth-<name>.so beside this library or program, in
 * HEARTH_MODULE_DIR of the build, or in `dir` when that is not NULL; then its open().
 * Errors: HEARTH_ENOENT "unknown transport ...: known are ofi, ucx". */
int hth_transport_open(const char *name, const char *dir, const struct hth_transport_opts *opts,
        const struct hth_transport_events *events, struct hth_transport **out,
        struct hearth_error *err);

#endif
