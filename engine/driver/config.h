/* SPDX-License-Identifier: Apache-2.0 */
/* hearthd's command line. */
#ifndef HEARTH_ENGINE_CONFIG_H
#define HEARTH_ENGINE_CONFIG_H

#include "core/base/id.h"
#include "core/base/network.h"
#include "engine/state/node.h"
#include "hands.h"

#define HTH_PATH_MAX 3072 /* bytes of a root, with terminator */

/*
 * How threads of this process give up access to all files but those that an engine on tcp needs.
 * Offered by a process that belongs to the engine alone. A confined thread stays confined, and so
 * are the threads that it starts.
 */
struct hth_confining {
    char against[192];          /* why it is not done, a clause; empty: it is done */
    int done;                   /* 1: before the engine's first thread was started */
    char to[192];               /* "nothing but ...": what a confined thread can open */
    int (*confine)(void *self); /* the calling thread; any thread. 0 or an errno */
    /* The key file as it is now, for hth_key_open_by(); NULL: by its name. */
    int (*open_key)(void *self);
    void *self;
};

/* The settings of the command line, or their defaults. */
struct hth_config {
    char root[HTH_PATH_MAX];
    char job[HTH_NAME_MAX + 1];
    char node[HTH_NAME_MAX + 1]; /* default: host name */
    char transport[16];          /* default: auto; ofi where there is a provider */
    char provider[32];           /* empty: the transport's default */
    char bind[HTH_BINDS_TEXT];   /* as given, with commas between; default: 127.0.0.1 */
    uint32_t binds;              /* times that it was given */
    char device[32];
    char network[16];                  /* default: hostile */
    char integrity[16];                /* default: crc32c */
    char key_file[HTH_PATH_MAX];       /* empty: none */
    char module_dir[HTH_PATH_MAX];     /* empty: beside this program or module */
    char fabric_library[HTH_PATH_MAX]; /* empty: the loader's */
    char ucx_library[HTH_PATH_MAX];    /* the same */
    char engine_log[512];              /* of log.h; default: file,syslog */
    char log_format[16];
    char log_level[16];
    uint32_t port;
    uint32_t linger_s;
    /* 0: defaults; ranks may set them at joining */
    uint32_t heartbeat_ms, dead_ms, stall_ms, retry_ms;
    uint32_t threads;
    uint32_t lanes; /* of tcp; 0: one for each 8 processors */
    uint32_t any_root, foreground, detach;
    uint32_t foreign_last;  /* foreign containers are recovered only while no save was PROTECTED */
    uint32_t unconfined;    /* hearthd: no limits on the files that it opens */
    uint32_t help, version; /* asked for: nothing else was checked */
    uint32_t trial;         /* print the versions of this build, and end */
    /* Borrowed until the engine is closed; NULL: it is in a rank's process. No flag. */
    const struct hth_confining *confining;
    const struct hth_successor *successor; /* likewise */
    /* The lock and the socket of an engine before this one, which hands them over; borrowed until
     * the engine is open; 0: none. No flags. */
    int lock_fd, sock_fd;
};

/* argv[0] is the program. Errors: HEARTH_EINVAL, one sentence; `out` then has what was read. */
int hth_config_parse(
        struct hth_config *out, int argc, const char *const *argv, struct hearth_error *err);
/* Of the address that carries data. `c` outlives it. */
struct hth_network hth_config_network(const struct hth_config *c);
/* What --help prints. malloc'ed, NULL without memory; the caller frees. */
char *hth_config_help(void);

#endif
