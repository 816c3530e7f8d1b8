/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearthd's command line: one table for reading, checking and --help. An engine also runs inside
 * other people's programs, where getopt's process-wide state belongs to them.
 */
#include "config.h"

#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 4 /* that are started unasked */

enum kind { TEXT, NUMBER, FLAG, BIND };

#define AT(field)    offsetof(struct hth_config, field)
#define SPACE(field) sizeof(((struct hth_config *)0)->field)

static const struct option {
    const char *name, *value;
    enum kind kind;
    size_t at;
    uint64_t least, most; /* NUMBER; TEXT: most bytes with the terminator */
    const char *help;
} options[] = {
    { "root", "DIR", TEXT, AT(root), 0, SPACE(root), "the tmpfs that is Hearth's; needed" },
    { "job", "ID", TEXT, AT(job), 0, SPACE(job), "the training job; needed" },
    { "node", "ID", TEXT, AT(node), 0, SPACE(node), "this node (default: the host name)" },
    { "transport", "NAME", TEXT, AT(transport), 0, SPACE(transport), "ofi (default) or ucx" },
    { "provider", "NAME", TEXT, AT(provider), 0, SPACE(provider),
            "the transport's own, such as tcp (default: its choice)" },
    { "bind", "ADDRESS", BIND, AT(bind), 0, SPACE(bind),
            "numeric address to listen on (default: 127.0.0.1); may be given several\n"
            "times: the first one carries the data, the others are only checked" },
    { "device", "INTERFACE", TEXT, AT(device), 0, SPACE(device),
            "network interface (default: the one that has the address)" },
    { "port", "N", NUMBER, AT(port), 0, 65535, "to listen on (default: any)" },
    { "key-file", "FILE", TEXT, AT(key_file), 0, SPACE(key_file),
            "the job's key, 32 bytes or 64 hex digits, mode 0600" },
    { "network", "KIND", TEXT, AT(network), 0, SPACE(network),
            "hostile (default), or trusted: no stranger reaches it, so a key and\n"
            "hardware that checks keys are not asked for off loopback" },
    { "any-root", NULL, FLAG, AT(any_root), 0, 0, "the root need not be a tmpfs (tests)" },
    { "linger", "SECONDS", NUMBER, AT(linger_s), 0, 30 * 86400,
            "end when no rank was there for so long (default: 86400)" },
    { "heartbeat-ms", "N", NUMBER, AT(heartbeat_ms), 0, 600000, "between pings (default: 1000)" },
    { "dead-ms", "N", NUMBER, AT(dead_ms), 0, 3600000, "a silent peer is down (default: 5000)" },
    { "stall-ms", "N", NUMBER, AT(stall_ms), 0, 3600000, "a pull is given up (default: 5000)" },
    { "retry-ms", "N", NUMBER, AT(retry_ms), 0, 600000, "facts are repeated (default: 500)" },
    { "threads", "N", NUMBER, AT(threads), 1, 256,
            "that checksum and copy (default: one per core, at most 4)" },
    { "module-dir", "DIR", TEXT, AT(module_dir), 0, SPACE(module_dir),
            "where hearth-ofi.so and hearth-ucx.so are (default: where they were built or installed)" },
    { "log-level", "LEVEL", TEXT, AT(log_level), 0, SPACE(log_level),
            "error, warn, info, debug (default) or trace" },
    { "foreground", NULL, FLAG, AT(foreground), 0, 0, "log to standard error, too" },
    { "help", NULL, FLAG, AT(help), 0, 0, "this text" },
    { "version", NULL, FLAG, AT(version), 0, 0, "the version" },
};

#define OPTIONS (sizeof(options) / sizeof(options[0]))

char *hth_config_help(void)
{
    size_t len = 8192;
    char *out = malloc(len);
    FILE *f = out ? fmemopen(out, len, "w") : NULL;

    if (!f) {
        free(out);
        return NULL;
    }
    fputs("hearthd: keeps the checkpoints of one job on this node, in memory.\n\n"
          "usage: hearthd --root DIR --job ID [options]\n\n"
          "It stays in the foreground, writes its log to DIR/ID/.hearth/log, and ends with\n"
          "SIGTERM, when the job is dropped, or after the linger time; what it keeps stays.\n"
          "Ranks start it themselves unless told otherwise.\n\n",
            f);
    for (size_t i = 0; i < OPTIONS; i++) {
        const struct option *o = &options[i];
        const char *rest = strchr(o->help, '\n');
        char head[40];

        snprintf(head, sizeof(head), "--%s %s", o->name, o->value ? o->value : "");
        fprintf(f, "  %-22s %.*s\n", head, (int)strcspn(o->help, "\n"), o->help);
        if (rest)
            fprintf(f, "  %-22s %s\n", "", rest + 1);
    }
    fputs("\nexit status: 0 ended, 1 could not start or go on, 2 wrong command line,\n"
          "3 another engine has this job on this node\n",
            f);
    fclose(f);
    return out;
}

static const struct option *config_find(const char *arg)
{
    size_t len = strcspn(arg, "=");

    for (size_t i = 0; i < OPTIONS; i++)
        if (strlen(options[i].name) == len && !strncmp(options[i].name, arg, len))
            return &options[i];
    return NULL;
}

static int config_set_number(
        struct hth_config *c, const struct option *o, const char *text, struct hearth_error *err)
{
    char *at = (char *)c + o->at, *end = NULL;
    unsigned long long v;
    uint32_t small;

    errno = 0;
    v = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || v < o->least || v > o->most)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "--%s is '%.64s': give a number from %" PRIu64 " to %" PRIu64, o->name, text,
                o->least, o->most);
    small = (uint32_t)v;
    memcpy(at, &small, sizeof(small));
    return HEARTH_OK;
}

static int config_set_text(
        struct hth_config *c, const struct option *o, const char *text, struct hearth_error *err)
{
    char *at = (char *)c + o->at;

    if (!text[0] || strlen(text) >= o->most)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "--%s is '%.64s': give 1 to %" PRIu64 " bytes for %s", o->name, text, o->most - 1,
                o->value);
    if (o->kind == BIND && c->binds++) {
        if (c->binds > sizeof(c->more_binds) / sizeof(c->more_binds[0]))
            return hth_fail(
                    err, HEARTH_EINVAL, 0, "--bind is given %u times: 4 are enough", c->binds);
        at = c->more_binds[c->binds - 2];
    }
    memcpy(at, text, strlen(text) + 1);
    return HEARTH_OK;
}

struct hth_network hth_config_network(const struct hth_config *c)
{
    return (struct hth_network){ .bind = c->bind,
        .transport = c->transport,
        .provider = c->provider,
        .has_key = c->key_file[0] != '\0',
        .trusted = !strcmp(c->network, "trusted") };
}

static int config_check_bind(const struct hth_config *c, const char *bind, struct hearth_error *err)
{
    enum hth_reach reach = hth_address_reach(bind);
    struct hth_network network = hth_config_network(c);

    if (reach == HTH_REACH_NONE || reach == HTH_REACH_WILDCARD)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "--bind is '%s': give %s numeric address of this node, such as 10.0.0.1 or fd00::1",
                bind, reach == HTH_REACH_NONE ? "a" : "one");
    network.bind = bind;
    return hth_network_check(&network, err);
}

static int config_check_network(const struct hth_config *c, struct hearth_error *err)
{
    int rc;

    if (strcmp(c->transport, "ofi") != 0 && strcmp(c->transport, "ucx") != 0)
        return hth_fail(err, HEARTH_EINVAL, 0, "--transport is '%s': use ofi or ucx", c->transport);
    if (strcmp(c->network, "hostile") != 0 && strcmp(c->network, "trusted") != 0)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "--network is '%s': use hostile or trusted", c->network);
    for (uint32_t i = 0; i < c->binds || i == 0; i++)
        if ((rc = config_check_bind(c, i ? c->more_binds[i - 1] : c->bind, err)))
            return rc;
    if (c->device[0] && !if_nametoindex(c->device))
        return hth_fail(err, HEARTH_EINVAL, errno,
                "--device is '%s', which is no network interface of this node: see `ip link`",
                c->device);
    return HEARTH_OK;
}

static int config_check_rest(const struct hth_config *c, struct hearth_error *err)
{
    static const char *const levels[] = { "error", "warn", "info", "debug", "trace" };
    uint32_t heartbeat = c->heartbeat_ms ? c->heartbeat_ms : 1000;
    uint32_t dead = c->dead_ms ? c->dead_ms : 5000;
    size_t i = 0;

    if (dead < 2 * heartbeat)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "--dead-ms is %u: give it at least two heartbeats (--heartbeat-ms is %u)", dead,
                heartbeat);
    while (i < 5 && strcmp(c->log_level, levels[i]) != 0)
        i++;
    if (i == 5)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "--log-level is '%s': use error, warn, info, debug or trace", c->log_level);
    return HEARTH_OK;
}

static int config_check(struct hth_config *c, struct hearth_error *err)
{
    int rc;

    if (c->root[0] != '/')
        return hth_fail(err, HEARTH_EINVAL, 0,
                "--root is '%.200s': give the absolute path of a tmpfs for Hearth", c->root);
    if (!c->job[0])
        return hth_fail(err, HEARTH_EINVAL, 0, "--job is not given: name the training job");
    if ((rc = hth_job_check(c->job, err)))
        return rc;
    if (!c->node[0] && gethostname(c->node, sizeof(c->node)))
        return hth_fail(err, HEARTH_EINVAL, errno,
                "the host name cannot be had or is longer than %d bytes: give --node",
                HTH_NAME_MAX);
    c->node[HTH_NAME_MAX] = '\0';
    if ((rc = hth_node_check(c->node, err)))
        return rc;
    rc = config_check_network(c, err);
    return rc ? rc : config_check_rest(c, err);
}

static int config_take(struct hth_config *c, const struct option *o, const char *value, int joined,
        struct hearth_error *err)
{
    uint32_t one = 1;

    if (o->kind == FLAG && joined)
        return hth_fail(err, HEARTH_EINVAL, 0, "--%s takes no value", o->name);
    if (o->kind != FLAG && !value)
        return hth_fail(err, HEARTH_EINVAL, 0, "--%s needs a value: %s", o->name, o->value);
    if (o->kind == FLAG)
        memcpy((char *)c + o->at, &one, sizeof(one));
    else if (o->kind == NUMBER)
        return config_set_number(c, o, value, err);
    else
        return config_set_text(c, o, value, err);
    return HEARTH_OK;
}

/* More than there are cores only stand in the way of the engine's own thread. */
static uint32_t config_threads(void)
{
    cpu_set_t cores;
    int n = sched_getaffinity(0, sizeof(cores), &cores) ? THREADS_MAX : CPU_COUNT(&cores);

    return n < THREADS_MAX ? (uint32_t)n : THREADS_MAX;
}

int hth_config_parse(
        struct hth_config *out, int argc, const char *const *argv, struct hearth_error *err)
{
    int rc;

    *out = (struct hth_config){ .transport = "ofi",
        .bind = "127.0.0.1",
        .network = "hostile",
        .log_level = "debug",
        .threads = config_threads() };
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        const struct option *o = !strncmp(arg, "--", 2) ? config_find(arg + 2) : NULL;
        const char *value = strchr(arg, '=');
        int joined = value != NULL;

        if (!o)
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "'%.100s' is no option of hearthd: see hearthd --help", arg);
        value = joined ? value + 1 : o->kind != FLAG && i + 1 < argc ? argv[++i] : NULL;
        if ((rc = config_take(out, o, value, joined, err)))
            return rc;
    }
    return out->help || out->version ? HEARTH_OK : config_check(out, err);
}
