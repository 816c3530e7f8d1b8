/* SPDX-License-Identifier: Apache-2.0 */
/* Option structs: struct_size first (<hearth/init.h>), 0 is the default, they only grow. A library
 * that is older than its caller refuses options it does not know. */
#ifndef HEARTH_OPTS_H
#define HEARTH_OPTS_H

#include <hearth/bootstrap.h>
#include <hearth/init.h>
#include <hearth/log.h>
#include <stddef.h>
#include <stdint.h>

HEARTH_BEGIN

struct hearth_save_id;

enum hearth_start {
    HEARTH_START_AUTO = 0,        /* use the node's engine, start one where none runs */
    HEARTH_START_NEVER = 10,      /* it must be running */
    HEARTH_START_IN_PROCESS = 20, /* a thread of this process; one process per node */
};

enum hearth_pin {
    /* Slots that GPU memory is saved into, and objects that are loaded into it, are registered with
     * its driver. */
    HEARTH_PIN_AUTO = 0,
    HEARTH_PIN_NO = 10, /* never: copies go through two pinned buffers of 16 MiB for each GPU */
};

enum hearth_network {
    HEARTH_NETWORK_HOSTILE = 0, /* off loopback a key is needed; a library's TCP does not listen */
    HEARTH_NETWORK_TRUSTED =
            10, /* no stranger reaches it: both may be left out, and open logs it */
};

/* The checksums of each 4 MiB of a checkpoint, at rest and on its way. A CRC32C finds accidents. A
 * program that can change bytes on their way can make the CRC fit: a SHA-256 beside the CRC finds
 * that too, where the fabric does not encrypt. SHA-256 takes a processor 0.5 to 3 s for each GB, at
 * sealing and at each look. */
enum hearth_integrity {
    HEARTH_INTEGRITY_CRC32C = 0,
    HEARTH_INTEGRITY_STRONG = 10, /* and SHA-256; the engine needs OpenSSL's libcrypto 3 */
};

/* The node's engine is started with node, transport, provider, bind, device, key_file and port. An
 * engine that runs already has its own values: unset means those; another value is HEARTH_EINVAL at
 * open, and so is another `network` or `integrity`. */
struct hearth_opts {
    size_t struct_size;
    const char *root; /* a tmpfs of Hearth's own, the same path on every node */
    const char *job;  /* [A-Za-z0-9._-]{1,64} */
    uint32_t rank, world;
    const char *node;                         /* its id; NULL: host name */
    const struct hearth_bootstrap *bootstrap; /* borrowed until hearth_close(); NULL: world 1 */

    uint32_t copies;            /* replicas beside the owner's; 0: 1 */
    uint32_t min_copies;        /* what PROTECTED needs; 0: copies */
    uint32_t keep;              /* PROTECTED saves retained; 0: 1 */
    uint32_t allow_degraded;    /* 1: fewer nodes than copies need are fine, and called DEGRADED */
    const char *const *domains; /* [domain_count] names of rack, power feed, ...; narrowest first */
    size_t domain_count;        /* at most 4 */

    const uint64_t *object_bytes; /* [object_count] payload bytes of one save of this rank */
    size_t object_count;          /* 0: the first save makes the memory, slowly; the log has it */

    uint32_t start;        /* enum hearth_start */
    uint32_t helper;       /* 1: a second process of this rank; may save and read, not recover */
    const char *engine;    /* path of hearthd; NULL: beside this library, then PATH */
    const char *transport; /* "auto", "tcp", "ofi" or "ucx"; NULL: "auto", with a provider "ofi" */
    const char *provider;  /* NULL: the transport's default (tcp), or what auto takes */
    const char *bind;      /* numeric address for peers, or up to 4 with commas; NULL: 127.0.0.1 */
    const char *device;    /* interface; NULL: the one that has `bind` */
    const char *key_file;  /* 32 bytes, mode 0600; NULL: loopback addresses only, ranks' too */
    uint32_t port;         /* 0: any */
    uint32_t network;      /* enum hearth_network, the same on all ranks */
    uint32_t any_root;     /* 1: root may be a directory of any file system (tests, demos) */

    uint32_t open_ms;      /* deadlines, 0: defaults.  60000 */
    uint32_t recover_ms;   /* 300000 */
    uint32_t save_ms;      /* 600000: a save not PROTECTED by then is cancelled */
    uint32_t heartbeat_ms; /* 1000 */
    uint32_t dead_ms;      /* 5000 */
    uint32_t stall_ms;     /* 5000; since the last byte */
    uint32_t linger_s;     /* engine without ranks; what it has, 86400 at first */
    uint32_t copy_threads; /* of this rank's copies, 0: 2 */
    uint32_t inflight_mib; /* bytes being pulled by a node; 0: 64 */
    uint32_t off;          /* kill switch: every call a cheap success at HEARTH_OFF */
    uint64_t
            lease_bytes; /* room for slots that readers keep, reserved beside the saves'; 0: none */
    uint64_t spare_bytes; /* for repair without a replacement node, reserved likewise; 0: none */

    hearth_log_fn *log; /* NULL: lines wait for hearth_log_poll() (the last 256) */
    void *log_arg;
    uint32_t log_level; /* enum hearth_log_level; 0: HEARTH_LOG_INFO */

    uint32_t allow_slower; /* 1: a worse fabric than that of the job's first epoch is fine */

    /* path of the libfabric.so.1 that a started engine loads; NULL: the loader's */
    const char *fabric_library;
    /* path of the libucp.so.0 that it loads, likewise */
    const char *ucx_library;

    /* a step that so many jobs have recovered, one after the other, each of which ended before a
     * save of its own was decided, is marked bad, as by hearth_keep_mark_bad(); 0: none is. The
     * same on all ranks */
    uint32_t bad_after;
    uint32_t integrity; /* enum hearth_integrity, the same on all ranks */

    /* the machine of the node, 1 to 255 bytes: nodes of one machine are one failure domain. NULL:
     * the boot id of its kernel */
    const char *machine;

    /* 1 to 8 threads of the engine that copy, check and encrypt what the transport tcp carries; 0:
     * one for each 8 processors */
    uint32_t lanes;

    uint32_t pin; /* enum hearth_pin */
    /* MiB a second that are copied from each GPU, in parts of 16 MiB; 0: no limit */
    uint32_t copy_mib_s;

    /* where the log of a started engine goes: `file` (`.hearth/log`), a path, `stderr`, `syslog`
     * (warnings and errors), with commas between. NULL: "file,syslog" */
    const char *engine_log;
    uint32_t log_format; /* enum hearth_log_format, of that log */
};
HEARTH_SIZED(hearth_opts);
#define HEARTH_OPTS_INIT HEARTH_INIT(hearth_opts)

/* The same options from HEARTH_* variables for programs and adapters: fills what is 0 or NULL.
 * `hearth ls --env` prints the table. Variables of options that are not in an older caller's struct
 * are left alone. Strings live until exit. Errors: HEARTH_EINVAL with the variable's name. */
HEARTH_API int hearth_opts_from_env(struct hearth_opts *opts, struct hearth_error *err);

struct hearth_begin_opts {
    size_t struct_size;
    const char *
            name; /* of the object; NULL: __<rank>__<n>_src<rank>.distcp as ml-flashpoint names it */
    uint32_t wait_ms;    /* for room; 0: HEARTH_EBUSY at once, or after 5 s and 5 ms for each MiB,
                            at most 20 s, where the engine makes it */
    uint32_t cancel_old; /* 1: request that the undecided save be cancelled */

    /* [rank_count] rising, the caller among them: these take part in the save, each begins with the
     * same set, and no other rank calls anything. NULL: all ranks. Copied. Read only with the first
     * begin of the save. At most 128 runs of ranks at equal distances: any 256 ranks, and every
     * regular set */
    const uint32_t *ranks;
    size_t rank_count;

    /* CUstream or hipStream_t: pieces in GPU memory are copied after the work that is in this
     * stream when hearth_save_add() is called. NULL: the default stream of each GPU. Borrowed until
     * commit, seal, give or abort. Read only with the first begin of the save */
    void *stream;
};
HEARTH_SIZED(hearth_begin_opts);
#define HEARTH_BEGIN_OPTS_INIT HEARTH_INIT(hearth_begin_opts)

struct hearth_recover_opts {
    size_t struct_size;
    const char *const
            *common; /* [common_count] names of objects every node needs, in foreign containers */
    size_t common_count;
    uint32_t deadline_ms; /* 0: opts.recover_ms */
    uint32_t accept_loss; /* 1: where all is beyond redundancy start from nothing (no checkpoint)
                             instead of HEARTH_ELOST; what is left of the lost saves stays until a
                             newer one is PROTECTED. The same on all ranks */
    const struct hearth_save_id
            *save; /* go on from this one and no other (epoch 0: from the newest attempt
                                          at its step); what is newer is given up. NULL: the newest that
                                          can be had. The same on all ranks */
};
HEARTH_SIZED(hearth_recover_opts);
#define HEARTH_RECOVER_OPTS_INIT HEARTH_INIT(hearth_recover_opts)

/* The next waiting log line: 1 and the line, 0 none. text[len] is cut to fit. */
struct hearth;
HEARTH_API int hearth_log_poll(struct hearth *h, uint32_t *out_level, char *text, size_t len);

HEARTH_END

#endif
