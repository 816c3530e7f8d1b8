/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that a running engine on tcp still opens, and so may open:
 *
 *     its root          all of Hearth's work there; no links, fifos and devices are made, nothing is run
 *     /proc, /sys       read: room in memory and cgroups, its own descriptors, cards
 *     /dev/null         in the place of a descriptor that it lacks
 *     of --log /PATH    written: files of its folder, since the one it names may be renamed
 *
 * The engine checks the key file every 2 s, and by then it may be another file: another process
 * opens it (key_reader.c). libfabric and UCX open devices, libraries and files of others as they
 * like: an engine with them is not confined.
 */
#include "confine.h"
#include "key_reader.h"
#include "ruleset.h"

#include "core/base/auth.h"
#include "core/base/libcrypto.h"
#include "core/store/store_tmpfs.h"
#include "engine/driver/log.h"
#include "transport/transport.h"

#include <errno.h>
#include <execinfo.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_ALL   (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define READ_WRITE (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE)

/* Of this process, for as long as it lives. */
struct confine {
    struct hth_confining offer;
    struct key_reader reader;
    int set;
};

/* One account of free memory for all engines of the machine. */
static int confine_allow_account(int set)
{
    char path[HTH_ACCOUNT_PATH];

    return hth_store_tmpfs_account(path) ? ruleset_allow(set, path, READ_WRITE) : 0;
}

static int confine_allow_logs(int set, const char *to)
{
    char word[HTH_LOGS_PATH + 8], *end;

    while (hth_logs_next(&to, word)) {
        if (!hth_logs_path(word))
            continue;
        end = strrchr(word, '/');
        end[end == word] = '\0';
        if (ruleset_allow(set, word, LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG))
            return -1;
    }
    return 0;
}

static int confine_rules(int set, uint64_t known, const struct hth_config *c)
{
    uint64_t never = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                     LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                     LANDLOCK_ACCESS_FS_MAKE_SYM | RULESET_IOCTL;

    if (ruleset_allow(set, c->root, known & ~never) || confine_allow_account(set) ||
            confine_allow_logs(set, c->engine_log) || ruleset_allow(set, "/proc", READ_ALL) ||
            ruleset_allow(set, "/sys", READ_ALL))
        return -1;
    return ruleset_allow(set, "/dev/null", READ_WRITE | (known & RULESET_TRUNCATE));
}

/* Libraries that are loaded when they are first needed. 0: one that must be there is not. */
static int confine_load(const struct hth_config *c)
{
    void *calls[1];

    backtrace(calls, 1);
    hth_libcrypto();
    hth_auth_init(NULL); /* it opens /dev/urandom where getrandom() is denied */
    return strcmp(c->transport, "tcp") != 0 ||
           !hth_transport_preload(c->transport, c->module_dir[0] ? c->module_dir : NULL, NULL);
}

static int confine_thread(void *self)
{
    const struct confine *own = self;

    return ruleset_bind(own->set);
}

static int confine_open_key(void *self)
{
    struct confine *own = self;

    return key_reader_open(&own->reader);
}

/* By what, or why not: in offer->against. */
static void confine_prepare(
        struct confine *own, const struct hth_config *c, int version, int argc, char *const *argv)
{
    struct hth_confining *offer = &own->offer;
    int by_name = c->key_file[0] && hth_key_fd(c->key_file) < 0, e;

    own->set = ruleset_make(version, 0);
    if (own->set < 0 || confine_rules(own->set, ruleset_files(version), c)) {
        snprintf(offer->against, sizeof(offer->against), "Landlock: %s", strerrordesc_np(errno));
        return;
    }
    e = by_name ? key_reader_start(c->key_file, c->job, argc, argv, &own->reader) : 0;
    if (e) {
        snprintf(offer->against, sizeof(offer->against),
                "the process that opens the key file could not be started: %s", strerrordesc_np(e));
        return;
    }
    offer->confine = confine_thread;
    offer->open_key = by_name ? confine_open_key : NULL;
    snprintf(offer->to, sizeof(offer->to),
            "nothing but its root and the account of memory in /dev/shm, and read /proc and "
            "/sys%s%s (Landlock, version %d)",
            by_name ? "; hearthd-key opens the key file" : "",
            strchr(c->engine_log, '/') ? "; it writes its log's folder" : "", version);
}

/* Empty: nothing is known against it. */
static void confine_against(const struct hth_config *c, int version, char *out, size_t len)
{
    const char *unconfined = getenv("HEARTH_UNCONFINED");

    if (c->unconfined || (unconfined && *unconfined == '1'))
        snprintf(out, len, "--unconfined or HEARTH_UNCONFINED=1 is set");
    else if (strcmp(c->transport, "tcp") != 0 && strcmp(c->transport, HTH_TRANSPORT_AUTO) != 0)
        snprintf(out, len, "transport %s opens devices and libraries of others", c->transport);
    else if (version < 1)
        snprintf(out, len, "this kernel has no Landlock");
    else if (version < RULESET_RENAMES)
        snprintf(out, len, "this kernel's Landlock (version 1) lets no file change its directory");
}

void daemon_confine(struct hth_config *c, int argc, char *const *argv)
{
    static struct confine own;
    struct hth_confining *offer = &own.offer;
    int version = ruleset_version(), e;

    c->confining = offer;
    offer->self = &own;
    confine_against(c, version, offer->against, sizeof(offer->against));
    if (offer->against[0])
        return;
    if (!confine_load(c)) { /* the engine does not start, and says why */
        snprintf(offer->against, sizeof(offer->against), "hearth-tcp.so was not there in time");
        return;
    }
    confine_prepare(&own, c, version, argc, argv);
    if (offer->against[0] || strcmp(c->transport, "tcp") != 0)
        return;
    if ((e = ruleset_bind(own.set)))
        snprintf(offer->against, sizeof(offer->against), "Landlock: %s", strerrordesc_np(e));
    offer->done = !e;
}
