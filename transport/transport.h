/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one remote operation, pull, as each backend offers it, and small messages beside it.
 * One transport, one thread: every call but reg() and wake() comes from it, and none waits. reg()
 * may take seconds, since it may pin pages, so it comes from any thread beside that one.
 * tests/transport/conformance.c tests this contract.
 *
 * - A connection means the same on every fabric. Where the fabric has connections it is one of
 *   them; where it has one endpoint and a table of addresses, the backend makes it of messages.
 * - A destination range belongs to the transport from pull() until on_pull(); after on_pull()
 *   with any status the transport never writes it again. Where the fabric has no cancel, on_pull()
 *   of a dropped connection comes late, by about one stall time, once the fabric has let go.
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
    HTH_CAP_ONE_SIDED = 1, /* a pull needs no owner CPU */
    HTH_CAP_READ_ONLY = 2, /* a remote write to granted memory is refused */
    HTH_CAP_BOUNDS = 4,    /* a pull outside of the grant is refused; without it, one
                                  * outside of the region */
    HTH_CAP_PINS = 8,      /* registration pins pages */
    /* a grant is refused on another connection; without it, any process that has the grant's bytes
     * and can reach this node may use it */
    HTH_CAP_GRANT_PER_CONN = 16,
    HTH_CAP_REVOKES = 32, /* after revoke() no pull under that grant reads any more; without
                                  * it the peer's network card knows the region's key: only
                                  * drop() ends its reading */
    HTH_CAP_PROVES = 64,  /* a peer has proved the job key before on_accept() */
};

#define HTH_PROVIDER_DEFAULT "tcp" /* of both backends */

struct hth_transport_opts {
    /* numeric address to listen on, "127.0.0.1" or "::1"; mandatory, no wildcard. tcp: or a list of
     * them with commas between (core/base/network.h) */
    const char *bind;
    uint16_t port;        /* 0: any */
    const char *provider; /* backend's own: "tcp", "verbs"; NULL: HTH_PROVIDER_DEFAULT */
    const char *device;   /* interface name; NULL: the one that has `bind` */
    const char *const
            *also;       /* other providers that may be opened later in this process, in place of
                              * this one; ends with NULL. NULL: none */
    const char *library; /* full path of the backend's library; NULL: the loader's */
    /* 1: a listener may obey any peer, and what a key has proved is not encrypted; the same on all
     * nodes */
    int trusted;
    int strong; /* 1: payload is proved by a SHA-256, so that no node on the way can change it */
    const struct hth_key
            *key;        /* the job's, of a backend that proves and seals by itself (tcp); may be
                          * reloaded; borrowed until close. NULL: none */
    uint32_t connect_ms; /* 0: 5000 */
    uint32_t lanes; /* tcp: threads that copy, check and encrypt; 0: one for each 8 processors */
    struct hth_clock clock; /* called on any thread */
    struct hth_log log;
};

struct hth_transport_events {
    void *self;
    /* A peer has connected. Nothing is known of it yet; its first message names it. */
    void (*on_accept)(void *self, hth_conn conn);
    /* A dialled connection stands: messages may be sent. */
    void (*on_up)(void *self, hth_conn conn);
    /* HEARTH_EPEER, HEARTH_ETIMEOUT (connect), HEARTH_EPROTO, HEARTH_ECANCELED (this side's drop or
     * close), HEARTH_EBUSY (dialled: no more connections may stand here; the peer is not the
     * cause). */
    void (*on_down)(void *self, hth_conn conn, int code, const char *detail);
    void (*on_message)(
            void *self, hth_conn conn, const void *bytes, size_t len); /* valid during the call */
    void (*on_writable)(void *self, hth_conn conn); /* after send() returned HEARTH_EBUSY */
    void (*on_pull)(
            void *self, uint64_t cookie, int code); /* 0, EPEER, EDENIED, ECANCELED, EPROTO */
};

struct hth_transport_ops {
    const char *name; /* "tcp", "ofi", "ucx", "loop" */

    uint32_t (*caps)(struct hth_transport *t);

    /* The address others dial, out_addr[HTH_ADDR_MAX]. Listening since open. */
    int (*address)(struct hth_transport *t, unsigned char *out_addr, uint32_t *out_len,
            struct hearth_error *err);

    /* The members of the epoch, which may dial this node from now on. Copied. For a backend that
     * keeps places for them while strangers crowd its listener; NULL: the backend does not need
     * it. */
    void (*members)(struct hth_transport *t, const struct hth_member *member, uint32_t count);

    /* Errors: HEARTH_EINVAL (no such address blob), HEARTH_EBUSY (no more connections may stand
     * here), HEARTH_ENOMEM. on_up() or on_down() follows. */
    int (*connect)(struct hth_transport *t, const unsigned char *addr, uint32_t len,
            hth_conn *out_conn, struct hearth_error *err);

    /* Cuts the connection: its pulls complete with HEARTH_ECANCELED, then on_down() runs, in one of
     * the next calls of progress(). Messages of it are not delivered any more. */
    void (*drop)(struct hth_transport *t, hth_conn conn);

    /* Copied; kept in order; len <= HTH_MESSAGE_MAX. Errors: HEARTH_EBUSY (on_writable() follows),
     * HEARTH_EPEER (no such connection), HEARTH_EINVAL. */
    int (*send)(struct hth_transport *t, hth_conn conn, const void *bytes, size_t len);

    /* Memory that may be pulled from (peers never write it) and pulled into, for as long as it is
     * registered; memory mapped for reading alone may be pulled from. Any thread, several at once,
     * beside progress(); never beside close(). As long as pinning takes: seconds for a large one.
     * Errors: HEARTH_ENOMEM, HEARTH_EINVAL, HEARTH_EIO; with the errno where there is one. */
    int (*reg)(struct hth_transport *t, void *base, uint64_t len, struct hth_region **out,
            struct hearth_error *err);
    /* Grants of it end. HEARTH_EBUSY while pulls go into it or while this process sends from it. If
     * the fabric cannot report whether it still sends, HEARTH_EBUSY until the peers have answered
     * that they no longer read it. After HEARTH_EBUSY only its grants have ended: try again. It may
     * be granted again meanwhile. */
    int (*dereg)(struct hth_transport *t, struct hth_region *region);

    /* Lets the peer of `conn` pull [off, off + len) of the region. Registers nothing, so it is
     * cheap; there may be any number of grants of one region. out_desc[HTH_DESC_MAX] goes to the
     * peer in a message on `conn`, after the call; the same bytes revoke. A grant ends with its
     * connection. */
    int (*grant)(struct hth_transport *t, struct hth_region *region, uint64_t off, uint64_t len,
            hth_conn conn, unsigned char *out_desc, uint32_t *out_len, struct hearth_error *err);
    /* Ends this grant alone; other grants, and pulls under them, continue. A pull that runs under
     * it ends with HEARTH_EDENIED if this process serves it (HTH_CAP_REVOKES). Otherwise the bytes
     * must stay unchanged until the peer has reported that it does not read them any more, or its
     * connection is down. */
    void (*revoke)(struct hth_transport *t, const unsigned char *desc, uint32_t len);

    /* Copies bytes [roff, roff + len) of the grant (counted from the grant's start) to [doff, doff
     * + len) of this node's region. 0: accepted, on_pull(cookie) follows, never inside this call.
     * HEARTH_EBUSY: too many at once, try after an on_pull(). HEARTH_EPEER, HEARTH_EINVAL. */
    int (*pull)(struct hth_transport *t, hth_conn conn, const unsigned char *desc,
            uint32_t desc_len, uint64_t roff, struct hth_region *region, uint64_t doff,
            uint64_t len, uint64_t cookie);

    /* Inside on_pull(cookie, 0). 1: *out is the CRC32C of the bytes that the pull has copied,
     * computed from the destination as they came, while the processor's cache had them; 0: it was
     * not computed. NULL: it never is. */
    int (*pulled_crc)(struct hth_transport *t, uint32_t *out);

    /* When bytes for a pull of this node last came on this connection, in ms of the transport's
     * clock, also for pulls that have not ended; 0: never. NULL: the backend notices only the end
     * of a pull. */
    uint64_t (*pulled_ms)(struct hth_transport *t, hth_conn conn);

    /* Sends and receives what can be moved, and runs callbacks. Returns how much was done; 0:
     * nothing. */
    int (*progress)(struct hth_transport *t);

    /* Before sleeping: 1 and a readable-when-there-is-work descriptor (-1: none) with the latest
     * time to call progress() again; 0: there is work now, do not sleep. Where the fabric has
     * nothing to wait on, the descriptor is that of wake() and the time is near: 1 ms at most while
     * something is in flight or was lately, then less often, idle for 1 % of a core at most. */
    int (*arm)(struct hth_transport *t, int *out_fd, uint64_t *out_due_ms);

    /* Any thread: makes the descriptor readable. */
    void (*wake)(struct hth_transport *t);

    /* Ends every connection, then frees. Regions and grants are gone. No reg() may be under way. */
    void (*close)(struct hth_transport *t);
};

struct hth_transport {
    const struct hth_transport_ops *ops;
    uint32_t conns_max; /* connections that may stand, of both directions; 0: as memory goes */
    uint32_t dead_ms;   /* a session sets it: silent for so long a peer is lost; 0: not known */
};

/* The symbol `hth_transport_backend` that a backend module (hearth-tcp.so, hearth-ofi.so,
 * hearth-ucx.so) exports. */
struct hth_transport_backend {
    uint32_t abi; /* HTH_TRANSPORT_ABI */
    const char *name;
    /* events: copied. Errors: HEARTH_EINVAL names the unknown interface, provider or address, or
     * the listener that is not safe there; HEARTH_EEXIST the port in use. */
    int (*open)(const struct hth_transport_opts *opts, const struct hth_transport_events *events,
            struct hth_transport **out, struct hearth_error *err);
};
/* 2: reg() comes from any thread, once; 3: conns_max; 4: also; 5: key; 6: members(); 7:
 * pulled_crc(); 8: pulled_ms(); 9: struct hth_machine; 10: lanes; 11: dead_ms */
#define HTH_TRANSPORT_ABI 11u

/* Loads a backend's module now, so that hth_transport_open() reads no file later. Errors:
 * HEARTH_ENOENT. */
int hth_transport_preload(const char *name, const char *dir, struct hearth_error *err);

/* dlopen(RTLD_NOW | RTLD_LOCAL) of hearth-<name>.so beside this library or program, in
 * HEARTH_MODULE_DIR of the build, or in `dir` when that is not NULL; then its open().
 * Errors: HEARTH_ENOENT "unknown transport ...: known are tcp, ofi, ucx". */
int hth_transport_open(const char *name, const char *dir, const struct hth_transport_opts *opts,
        const struct hth_transport_events *events, struct hth_transport **out,
        struct hearth_error *err);

#endif
