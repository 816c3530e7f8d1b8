/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's options, checked and copied. Each wrong value is one sentence that names the
 * option, says what it is and what it may be; numbers are checked from one table.
 */
#include "check.h"

#include "client/base/limits.h"
#include "core/base/auth.h"
#include "core/base/opts.h"
#include <errno.h>
#include <linux/magic.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define AT(field) offsetof(struct hearth_opts, field)

/* 0 is the default everywhere. */
static const struct number {
    const char *name;
    size_t at;
    uint32_t least, most, none; /* none: what 0 means */
} numbers[] = {
    { "world", AT(world), 1, 1u << 20, 0 },
    { "copies", AT(copies), 1, 8, 1 },
    { "min_copies", AT(min_copies), 1, 8, 0 },
    { "keep", AT(keep), 1, 15, 1 },
    { "allow_degraded", AT(allow_degraded), 0, 1, 0 },
    { "helper", AT(helper), 0, 1, 0 },
    { "port", AT(port), 0, 65535, 0 },
    { "any_root", AT(any_root), 0, 1, 0 },
    { "open_ms", AT(open_ms), 1, HTH_DEADLINE_MAX, 60000 },
    { "recover_ms", AT(recover_ms), 1, HTH_DEADLINE_MAX, 300000 },
    { "save_ms", AT(save_ms), 1, HTH_DEADLINE_MAX, 600000 },
    { "heartbeat_ms", AT(heartbeat_ms), 10, 600000, 1000 },
    { "dead_ms", AT(dead_ms), 20, 3600000, 5000 },
    { "stall_ms", AT(stall_ms), 10, 3600000, 5000 },
    { "linger_s", AT(linger_s), 0, 30u * 86400, 0 },
    { "copy_threads", AT(copy_threads), 1, 64, 2 },
    { "inflight_mib", AT(inflight_mib), 4, 65536, 64 },
    { "off", AT(off), 0, 1, 0 },
    { "reserved", AT(reserved), 0, 0, 0 },
};

static const struct {
    const char *name;
    size_t at;
} texts[] = { { "root", AT(root) }, { "job", AT(job) }, { "node", AT(node) },
    { "engine", AT(engine) }, { "transport", AT(transport) }, { "provider", AT(provider) },
    { "bind", AT(bind) }, { "device", AT(device) }, { "key_file", AT(key_file) } };

#define TEXTS (sizeof(texts) / sizeof(texts[0]))

static int check_numbers(struct hearth_opts *o, struct hearth_error *err)
{
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const struct number *n = &numbers[i];
        uint32_t v;

        memcpy(&v, (char *)o + n->at, sizeof(v));
        if (v == 0 && n->none)
            v = n->none;
        else if (v == 0 && !strcmp(n->name, "min_copies"))
            v = o->copies;
        if (v < n->least || v > n->most)
            return hth_fail(err, HEARTH_EINVAL, 0, "%s is %u: it may be %u to %u%s", n->name, v,
                    n->least, n->most, n->none ? ", or 0 for the default" : "");
        memcpy((char *)o + n->at, &v, sizeof(v));
    }
    return HEARTH_OK;
}

/* They are added up, with what stands around them. */
static int check_sizes(const struct hearth_opts *o, struct hearth_error *err)
{
    const uint64_t most = (uint64_t)INT64_MAX / 2 / HTH_OBJECTS_MAX;

    for (size_t i = 0; i < o->object_count; i++)
        if (o->object_bytes[i] > most)
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "object_bytes[%zu] is %" PRIu64 ": more than any store has", i,
                    o->object_bytes[i]);
    if (o->lease_bytes > most || o->spare_bytes > most)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "lease_bytes is %" PRIu64 " and spare_bytes %" PRIu64 ": more than any store has",
                o->lease_bytes, o->spare_bytes);
    return HEARTH_OK;
}

static int check_numbers_together(const struct hearth_opts *o, struct hearth_error *err)
{
    if (o->rank >= o->world)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank is %u of a world of %u: ranks count from 0 to world - 1", o->rank, o->world);
    if (o->world > 1 && !o->bootstrap && !o->helper && !o->off)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "bootstrap is NULL, but %u ranks must find each other: give one of "
                "<hearth/bootstrap.h>",
                o->world);
    if (o->min_copies > o->copies)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "min_copies is %u, more than the %u copies that are made", o->min_copies,
                o->copies);
    if (o->dead_ms < 2 * o->heartbeat_ms)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "dead_ms is %u: give it at least two heartbeats (heartbeat_ms is %u)", o->dead_ms,
                o->heartbeat_ms);
    if (o->start != HEARTH_START_AUTO && o->start != HEARTH_START_NEVER &&
            o->start != HEARTH_START_IN_PROCESS)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "start is %u: it is one of enum hearth_start (auto, never, in_process)", o->start);
    if (o->network != HEARTH_NETWORK_HOSTILE && o->network != HEARTH_NETWORK_TRUSTED)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "network is %u: it is one of enum hearth_network (hostile, trusted)", o->network);
    if (o->log_level > HEARTH_LOG_TRACE)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "log_level is %u: it is one of enum hearth_log_level, 10 to 50", o->log_level);
    if (o->object_count > HTH_OBJECTS_MAX || (o->object_count && !o->object_bytes))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "object_bytes[] has object_count = %zu entries: give at most %u sizes, or NULL and "
                "0",
                o->object_count, HTH_OBJECTS_MAX);
    return check_sizes(o, err);
}

static int check_names(const struct hearth_opts *o, struct hearth_error *err)
{
    int rc;

    if (!o->root || o->root[0] != '/' || strlen(o->root) > 3000)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "root is '%.200s': give the absolute path of a tmpfs, the same on every node",
                o->root ? o->root : "");
    if (!o->job)
        return hth_fail(err, HEARTH_EINVAL, 0, "job is not set: name the job");
    if ((rc = hth_job_check(o->job, err)))
        return rc;
    if (o->node && (rc = hth_node_check(o->node, err)))
        return rc;
    if (o->domain_count > HTH_DOMAINS_MAX || (o->domain_count && !o->domains))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "domains[] has domain_count = %zu names: give at most %d, narrowest first",
                o->domain_count, HTH_DOMAINS_MAX);
    for (size_t i = 0; i < o->domain_count; i++)
        if (!o->domains[i] || !o->domains[i][0] || strlen(o->domains[i]) > 255)
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "domains[%zu] is not set: each failure domain has a name of 1 to 255 bytes", i);
    return HEARTH_OK;
}

struct hth_network hth_network_of(const struct hearth_opts *o)
{
    return (struct hth_network){ .bind = o->bind,
        .transport = o->transport ? o->transport : "ofi",
        .provider = o->provider,
        .has_key = o->key_file != NULL,
        .trusted = o->network == HEARTH_NETWORK_TRUSTED };
}

static int check_network(const struct hearth_opts *o, struct hearth_error *err)
{
    struct hth_network network = hth_network_of(o);
    struct hth_key key;
    int rc;

    if (o->transport && strcmp(o->transport, "ofi") != 0 && strcmp(o->transport, "ucx") != 0)
        return hth_fail(err, HEARTH_EINVAL, 0, "transport is '%.64s': use \"ofi\" or \"ucx\"",
                o->transport);
    if (o->bind && hth_address_reach(o->bind) == HTH_REACH_NONE)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "bind is '%.64s': give a numeric address of this node, as 10.0.0.1 or fd00::1",
                o->bind);
    if (o->bind && hth_address_reach(o->bind) == HTH_REACH_WILDCARD)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "bind is '%.64s', which is every address: give the one that the job's nodes share",
                o->bind);
    if (o->device && !if_nametoindex(o->device))
        return hth_fail(err, HEARTH_EINVAL, errno,
                "device '%.64s' is no network interface of this node: see `ip link`", o->device);
    rc = hth_network_check(&network, err);
    if (rc || !o->key_file)
        return rc;
    if ((rc = hth_key_open(o->key_file, &key, err)))
        return rc;
    hth_key_close(&key); /* the engine's business; here it was only looked at */
    return HEARTH_OK;
}

static int check_root(const struct hearth_opts *o, struct hearth_error *err)
{
    struct statfs fs;
    struct stat st;

    if (stat(o->root, &st) != 0)
        return hth_fail(err, HEARTH_EINVAL, errno,
                "root '%.200s': %s: mount a tmpfs there, for example `mount -t tmpfs -o "
                "size=512g,huge=within_size,mode=0700 hearth %.200s`",
                o->root, strerror(errno), o->root);
    if (!S_ISDIR(st.st_mode))
        return hth_fail(err, HEARTH_EINVAL, 0, "root '%.200s' is not a directory", o->root);
    if (access(o->root, W_OK | X_OK) != 0)
        return hth_fail(err, HEARTH_EINVAL, errno, "root '%.200s' cannot be written by user %u: %s",
                o->root, (unsigned)geteuid(), strerror(errno));
    if (!o->any_root && statfs(o->root, &fs) == 0 && fs.f_type != TMPFS_MAGIC)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "root '%.200s' is not on a tmpfs, and checkpoints belong in memory: mount one "
                "there, or set any_root = 1 for a test",
                o->root);
    return HEARTH_OK;
}

/* Own copies, so that the caller's strings may go. */
static int copy_texts(struct hearth_opts *o)
{
    uint64_t *bytes = o->object_count ? calloc(o->object_count, sizeof(*bytes)) : NULL;
    char **domains = o->domain_count ? calloc(o->domain_count, sizeof(*domains)) : NULL;
    int rc = (o->object_count && !bytes) || (o->domain_count && !domains) ? HEARTH_ENOMEM : 0;

    for (size_t i = 0; i < TEXTS; i++) {
        const char **at = (const char **)(void *)((char *)o + texts[i].at);

        if (*at && !(*at = strdup(*at)))
            rc = HEARTH_ENOMEM;
    }
    if (bytes)
        memcpy(bytes, o->object_bytes, o->object_count * sizeof(*bytes));
    o->object_bytes = bytes;
    for (size_t i = 0; domains && i < o->domain_count; i++)
        if (!(domains[i] = strdup(o->domains[i])))
            rc = HEARTH_ENOMEM;
    o->domains = (const char *const *)domains;
    return rc;
}

void hth_opts_drop(struct hearth *h)
{
    struct hearth_opts *o = &h->opts;

    for (size_t i = 0; i < TEXTS; i++)
        free(*(char **)(void *)((char *)o + texts[i].at));
    for (size_t i = 0; o->domains && i < o->domain_count; i++)
        free((char *)(uintptr_t)o->domains[i]);
    free((void *)(uintptr_t)o->domains);
    free((void *)(uintptr_t)o->object_bytes);
    memset(o, 0, sizeof(*o));
}

/* A bootstrap of any age that can be called, or none. */
static int check_bootstrap(const struct hearth_bootstrap *bootstrap, struct hearth_error *err)
{
    struct hearth_bootstrap b;
    int rc;

    if (!bootstrap)
        return HEARTH_OK;
    if ((rc = hth_opts_copy(&b, sizeof(b), bootstrap, err)))
        return hth_while(err, rc, "bootstrap");
    if (b.struct_size < HTH_BOOTSTRAP_LEAST || !b.allgather)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the bootstrap has no allgather, or its struct_size is %zu: begin it with "
                "HEARTH_BOOTSTRAP_INIT",
                b.struct_size);
    return HEARTH_OK;
}

int hth_opts_take(struct hearth *h, const struct hearth_opts *opts, struct hearth_error *err)
{
    struct hearth_opts o;
    char host[256] = "";
    uint32_t times[3]; /* unset is no opinion */
    int rc;

    if (!opts)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "opts is NULL: root, job, rank and world are needed");
    if ((rc = hth_opts_copy(&o, sizeof(o), opts, err)))
        return rc;
    times[0] = o.heartbeat_ms, times[1] = o.dead_ms, times[2] = o.stall_ms;
    if ((rc = check_numbers(&o, err)) || (rc = check_numbers_together(&o, err)) ||
            (rc = check_names(&o, err)) || (rc = check_bootstrap(o.bootstrap, err)))
        return rc;
    if (!o.off && ((rc = check_network(&o, err)) || (rc = check_root(&o, err))))
        return rc;
    gethostname(host, sizeof(host) - 1);
    if (!o.node && (rc = hth_node_check(host, err)))
        return hth_while(err, rc, "the host name is no node id, so set node");
    if (!o.log_level)
        o.log_level = HEARTH_LOG_INFO;
    h->opts = o;
    rc = copy_texts(&h->opts);
    h->wants = h->opts;
    h->wants.heartbeat_ms = times[0];
    h->wants.dead_ms = times[1];
    h->wants.stall_ms = times[2];
    return rc ? hth_fail(err, rc, 0, "no memory for the options") : HEARTH_OK;
}
