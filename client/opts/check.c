/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's options, checked and copied. For each wrong value there is one sentence with the
 * option, its value and the values that it may have; single values are checked by the table of
 * options.
 */
#include "check.h"

#include "client/base/limits.h"
#include "client/base/machine.h"
#include "core/base/auth.h"
#include "core/base/full.h"
#include "core/base/options.h"
#include "core/base/opts.h"
#include "core/base/root.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

_Static_assert(HTH_OBJECTS_MAX <= 64, "HTH_BYTES_MAX counts on it");

/* 0 is the default everywhere. */
static int check_number(
        const struct hth_option *option, struct hearth_opts *o, struct hearth_error *err)
{
    uint64_t v = hth_option_number(option, o);

    if (v == 0 && option->engines)
        return HEARTH_OK;
    if (v == 0 && option->none)
        v = option->none;
    else if (v == 0 && option == &hth_options[HTH_AT_min_copies])
        v = o->copies;
    if (v < option->least || v > hth_option_most(option))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%s is %" PRIu64 ": it may be %" PRIu64 " to %" PRIu64 "%s", option->name, v,
                option->least, hth_option_most(option),
                option->none ? ", or 0 for the default" : "");
    hth_option_set_number(option, o, v);
    return HEARTH_OK;
}

static int check_text(
        const struct hth_option *option, const struct hearth_opts *o, struct hearth_error *err)
{
    const char *text = hth_option_text(option, o);
    char words[HTH_OPTION_WORDS];

    if (!text || !option->words || hth_option_word(option, text))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, 0, "%s is '%.64s': use %s", option->name, text,
            hth_option_words(option, words));
}

static int check_word(
        const struct hth_option *option, const struct hearth_opts *o, struct hearth_error *err)
{
    uint32_t v = (uint32_t)hth_option_number(option, o);
    char words[HTH_OPTION_WORDS];

    if (hth_option_word_of(option, v))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, 0, "%s is %u: it is one of enum hearth_%s (%s)",
            option->name, v, option->name, hth_option_words(option, words));
}

static int check_each(struct hearth_opts *o, struct hearth_error *err)
{
    int rc = HEARTH_OK;

    for (size_t i = 0; !rc && i < HTH_OPTIONS; i++) {
        const struct hth_option *option = &hth_options[i];

        if (option->kind == HTH_OPTION_U32 || option->kind == HTH_OPTION_U64 ||
                option->kind == HTH_OPTION_SWITCH)
            rc = check_number(option, o, err);
        else if (option->kind == HTH_OPTION_WORD)
            rc = check_word(option, o, err);
        else if (hth_option_is_text(option))
            rc = check_text(option, o, err);
    }
    return rc;
}

/* The sizes are added up, with other bytes around them: no sum may overflow. */
static int check_sizes(const struct hearth_opts *o, struct hearth_error *err)
{
    for (size_t i = 0; i < o->object_count; i++)
        if (o->object_bytes[i] > HTH_BYTES_MAX)
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "object_bytes[%zu] is %" PRIu64 ": more than any store has", i,
                    o->object_bytes[i]);
    return HEARTH_OK;
}

/* Checks the options that a launcher sets for each rank. */
static int check_place(const struct hearth_opts *o, struct hearth_error *err)
{
    if (o->rank >= o->world)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank is %u of a world of %u: ranks count from 0 to world - 1", o->rank, o->world);
    if (o->world > 1 && !o->bootstrap && !o->helper && !o->off)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "bootstrap is NULL, but %u ranks must find each other: give one of "
                "<hearth/bootstrap.h>",
                o->world);
    return HEARTH_OK;
}

static int check_numbers_together(const struct hearth_opts *o, struct hearth_error *err)
{
    if (o->min_copies > o->copies)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "min_copies is %u, more than the %u copies that are made", o->min_copies,
                o->copies);
    if (o->dead_ms < 2 * o->heartbeat_ms)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "dead_ms is %u: give it at least two heartbeats (heartbeat_ms is %u)", o->dead_ms,
                o->heartbeat_ms);
    if (o->object_count > HTH_OBJECTS_MAX || (o->object_count && !o->object_bytes))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "object_bytes[] has object_count = %zu entries: give at most %u sizes, or NULL and "
                "0",
                o->object_count, HTH_OBJECTS_MAX);
    return check_sizes(o, err);
}

static int check_root_name(const struct hearth_opts *o, struct hearth_error *err)
{
    if (!o->root || o->root[0] != '/' || strlen(o->root) > 3000)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "root is '%.200s': give the absolute path of a tmpfs, the same on every node",
                o->root ? o->root : "");
    return HEARTH_OK;
}

static int check_names(const struct hearth_opts *o, struct hearth_error *err)
{
    int rc;

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
    if (o->machine && (!o->machine[0] || strlen(o->machine) > 255))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "machine is '%.64s': name what the node runs on with 1 to 255 bytes, or leave it "
                "unset",
                o->machine);
    for (size_t i = 0; i < o->domain_count; i++)
        if (!o->domains[i] || !o->domains[i][0] || strlen(o->domains[i]) > 255)
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "domains[%zu] is not set: each failure domain has a name of 1 to 255 bytes", i);
    return HEARTH_OK;
}

struct hth_network hth_network_of(const struct hearth_opts *o)
{
    return (struct hth_network){ .bind = o->bind,
        .transport = hth_network_transport(o->transport, o->provider),
        .provider = o->provider,
        .has_key = o->key_file != NULL,
        .trusted = o->network == HEARTH_NETWORK_TRUSTED,
        .strong = o->integrity == HEARTH_INTEGRITY_STRONG };
}

static int check_network(const struct hearth_opts *o, struct hearth_error *err)
{
    struct hth_network network = hth_network_of(o);
    struct hth_key key;
    int rc;

    if (o->bind && hth_address_reach(o->bind) == HTH_REACH_NONE)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "bind is '%.192s': give a numeric address of this node, as 10.0.0.1 or fd00::1, or "
                "up to %d different ones with commas between, of one kind and all on or all off "
                "loopback",
                o->bind, HTH_BINDS);
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
    int root, rc = HEARTH_OK;

    if (hth_root_open(o->root, O_PATH, &root, err)) {
        if (err)
            err->code = HEARTH_EINVAL;
        return HEARTH_EINVAL;
    }
    if (faccessat(root, ".", W_OK | X_OK, 0) != 0)
        rc = hth_fail(err, HEARTH_EINVAL, errno,
                "root '%.200s' cannot be written by user %u: %s; %s", o->root, (unsigned)geteuid(),
                strerrordesc_np(errno),
                errno == EROFS ? "mount it without ro (readOnly: false)"
                               : "chown it to that user, or name a directory of that user's");
    else if (!o->any_root && fstatfs(root, &fs) == 0 && fs.f_type != TMPFS_MAGIC)
        rc = hth_fail(err, HEARTH_EINVAL, 0,
                "root '%.200s' is not on a tmpfs, and checkpoints belong in memory: mount one "
                "there, or set any_root = 1 for a test",
                o->root);
    close(root);
    return rc;
}

/* Own copies, so that the caller's strings may go. */
static int copy_texts(struct hearth_opts *o)
{
    uint64_t *bytes = o->object_count ? calloc(o->object_count, sizeof(*bytes)) : NULL;
    char **domains = o->domain_count ? calloc(o->domain_count, sizeof(*domains)) : NULL;
    int rc = (o->object_count && !bytes) || (o->domain_count && !domains) ? HEARTH_ENOMEM : 0;

    for (size_t i = 0; i < HTH_OPTIONS; i++) {
        const struct hth_option *option = &hth_options[i];
        const char *text = hth_option_is_text(option) ? hth_option_text(option, o) : NULL;
        char *own = text ? strdup(text) : NULL;

        if (text)
            hth_option_set_text(option, o, own);
        if (text && !own)
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

    for (size_t i = 0; i < HTH_OPTIONS; i++)
        if (hth_option_is_text(&hth_options[i]))
            free((char *)(uintptr_t)hth_option_text(&hth_options[i], o));
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

/* The host name stands for a node id that is not set. */
static int check_host(const struct hearth_opts *o, struct hearth_error *err)
{
    char host[256] = "";
    int rc;

    if (o->node)
        return HEARTH_OK;
    gethostname(host, sizeof(host) - 1);
    rc = hth_node_check(host, err);
    return rc ? hth_while(err, rc, "the host name is no node id, so set node") : HEARTH_OK;
}

int hth_opts_check(struct hearth_opts *o, int no_root, struct hearth_error *err)
{
    int rc;

    if ((rc = check_each(o, err)) || (rc = check_numbers_together(o, err)) ||
            (rc = o->off ? HEARTH_OK : hth_proc_check(err)) ||
            (rc = o->off ? HEARTH_OK : check_network(o, err)) || (rc = check_place(o, err)) ||
            (rc = no_root ? HEARTH_OK : check_root_name(o, err)) || (rc = check_names(o, err)) ||
            (rc = check_bootstrap(o->bootstrap, err)) ||
            (rc = o->off || no_root ? HEARTH_OK : check_root(o, err)))
        return rc;
    return check_host(o, err);
}

int hth_opts_take(struct hearth *h, const struct hearth_opts *opts, struct hearth_error *err)
{
    struct hearth_opts o, given;
    char boot[HTH_BOOT_ID];
    int rc;

    if (!opts)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "opts is NULL: root, job, rank and world are needed");
    if ((rc = hth_opts_copy(&o, sizeof(o), opts, err)))
        return rc;
    given = o;
    if ((rc = hth_opts_check(&o, 0, err)))
        return rc;
    if (!o.machine && !hth_boot_id(boot))
        o.machine = boot;
    h->opts = o;
    rc = copy_texts(&h->opts);
    h->wants = h->opts;
    for (size_t i = 0; i < HTH_OPTIONS; i++) /* unset is no opinion */
        if (hth_options[i].running == HTH_OPTION_ASKED && hth_option_is_number(&hth_options[i]))
            hth_option_set_number(
                    &hth_options[i], &h->wants, hth_option_number(&hth_options[i], &given));
    return rc ? hth_fail(err, rc, 0, "no memory for the options") : HEARTH_OK;
}
