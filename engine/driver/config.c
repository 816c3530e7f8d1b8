/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearthd's command line: the flags of the table of options are read, checked and explained by it.
 * An engine also runs inside other people's programs, where getopt's process-wide state belongs to
 * them.
 */
#include "config.h"

#include "log.h"

#include "core/base/options.h"
#include "core/base/sha256.h"
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 4 /* that are started by default */

/* Each flag with its place in struct hth_config. */
static const struct flag {
    struct hth_option option;
    size_t at, space;
} flags[] = {
#define PLACED(field, kind_, ...)                                            \
    { .option = { .name = #field, .kind = HTH_OPTION_##kind_, __VA_ARGS__ }, \
        .at = offsetof(struct hth_config, field),                            \
        .space = sizeof(((struct hth_config *)0)->field) },
#define ROW_NO(...)
#define ROW_FLAG(...)  PLACED(__VA_ARGS__)
#define ROW_GIVEN(...) PLACED(__VA_ARGS__)
#define OPTION(field, kind, hearthd, running, joining, ranks, ...) \
    ROW_##hearthd(field, kind, __VA_ARGS__)
#define FLAG(field, kind, ...) PLACED(field, kind, __VA_ARGS__)
#include "core/base/options.def"
};

#define FLAGS      (sizeof(flags) / sizeof(flags[0]))

#define HELP_AT    25 /* columns */
#define HELP_WIDTH 100

static void config_put_words(FILE *f, int column, const char *text)
{
    while (*text) {
        int len = (int)strcspn(text, " ");

        if (column + 1 + len > HELP_WIDTH) {
            fprintf(f, "\n%*s", HELP_AT - 1, "");
            column = HELP_AT - 1;
        }
        fprintf(f, " %.*s", len, text);
        column += 1 + len;
        text += len;
        text += strspn(text, " ");
    }
    fputc('\n', f);
}

static void config_put_flag(FILE *f, const struct hth_option *o)
{
    char standard[HTH_OPTION_WORDS], words[HTH_OPTION_WORDS], text[600];
    int has = o->kind != HTH_OPTION_SWITCH && hth_option_default(o, standard)[0];
    int column = fprintf(f, "  %s%s%s", o->flag, o->value ? " " : "", o->value ? o->value : "");

    column += fprintf(f, "%*s", column < HELP_AT - 1 ? HELP_AT - 1 - column : 0, "");
    snprintf(text, sizeof(text), "%s%s%s%s%s%s%s%s%s", o->help, o->words ? "; " : "",
            hth_option_words(o, words), o->needed ? "; needed" : "", has ? " (default: " : "",
            has ? standard : "", has ? ")" : "", o->more ? ". " : "", o->more ? o->more : "");
    config_put_words(f, column, text);
}

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
          "It stays in the foreground without --detach, writes its log to DIR/ID/.hearth/log, and ends with\n"
          "SIGTERM, when the job is dropped, or after the linger time; what it keeps stays.\n"
          "Ranks start it themselves unless told otherwise.\n\n",
            f);
    for (size_t i = 0; i < FLAGS; i++)
        config_put_flag(f, &flags[i].option);
    fputs("\nexit status: 0 ended, 1 could not start or go on, 2 refused for a reason that does\n"
          "not pass (command line, root, key, address, library, a damaged store),\n"
          "3 another engine has this job on this node, 4 ended for another fabric: start it again\n",
            f);
    fclose(f);
    return out;
}

static const struct flag *config_find(const char *arg)
{
    size_t len = strcspn(arg, "=");

    for (size_t i = 0; i < FLAGS; i++)
        if (strlen(flags[i].option.flag) == len && !strncmp(flags[i].option.flag, arg, len))
            return &flags[i];
    return NULL;
}

static int config_set_number(
        struct hth_config *c, const struct flag *flag, const char *text, struct hearth_error *err)
{
    const struct hth_option *o = &flag->option;
    char *at = (char *)c + flag->at, *end = NULL;
    unsigned long long v;
    uint32_t small;

    errno = 0;
    v = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || v > o->most ||
            (v < o->least && (v || !o->none)))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%s is '%.64s': give a number from %" PRIu64 " to %" PRIu64 "%s", o->flag, text,
                o->least, o->most, o->least && o->none ? ", or 0 for the default" : "");
    small = (uint32_t)v;
    memcpy(at, &small, sizeof(small));
    return HEARTH_OK;
}

static int config_set_text(
        struct hth_config *c, const struct flag *flag, const char *text, struct hearth_error *err)
{
    const struct hth_option *o = &flag->option;
    char *at = (char *)c + flag->at, words[HTH_OPTION_WORDS];

    if (o->words && !hth_option_word(o, text))
        return hth_fail(err, HEARTH_EINVAL, 0, "%s is '%.64s': use %s", o->flag, text,
                hth_option_words(o, words));
    if (!text[0] || strlen(text) >= flag->space)
        return hth_fail(err, HEARTH_EINVAL, 0, "%s is '%.64s': give 1 to %zu bytes for %s", o->flag,
                text, flag->space - 1, o->value);
    if (o->kind == HTH_OPTION_ADDRESS && c->binds++) { /* one more, behind those before */
        if (strlen(at) + strlen(text) + 1 >= flag->space)
            return hth_fail(err, HEARTH_EINVAL, 0, "--bind is given %u times: %d addresses may be",
                    c->binds, HTH_BINDS);
        at += strlen(at);
        *at++ = ',';
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
        .trusted = !strcmp(c->network, "trusted"),
        .strong = !strcmp(c->integrity, "strong") };
}

static int config_check_network(const struct hth_config *c, struct hearth_error *err)
{
    enum hth_reach reach = hth_address_reach(c->bind);
    struct hth_network network = hth_config_network(c);
    int rc;

    if (reach == HTH_REACH_NONE || reach == HTH_REACH_WILDCARD)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "--bind is '%.192s': give %s numeric address of this node, such as 10.0.0.1 or "
                "fd00::1, or up to %d different ones with commas between, of one kind and all on "
                "or all off loopback",
                c->bind, reach == HTH_REACH_NONE ? "a" : "one", HTH_BINDS);
    if ((rc = hth_network_check(&network, err)))
        return rc;
    if (c->device[0] && !if_nametoindex(c->device))
        return hth_fail(err, HEARTH_EINVAL, errno,
                "--device is '%s', which is no network interface of this node: see `ip link`",
                c->device);
    return HEARTH_OK;
}

static int config_check_rest(const struct hth_config *c, struct hearth_error *err)
{
    uint32_t heartbeat = c->heartbeat_ms ? c->heartbeat_ms : hth_option_none(HTH_AT_heartbeat_ms);
    uint32_t dead = c->dead_ms ? c->dead_ms : hth_option_none(HTH_AT_dead_ms);

    if (dead < 2 * heartbeat)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "--dead-ms is %u: give it at least two heartbeats (--heartbeat-ms is %u)", dead,
                heartbeat);
    if (c->detach && strstr(c->engine_log, "stderr"))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "--log has stderr, which an engine in the background (--detach) does not have: use "
                "file, syslog or a path");
    return hth_logs_check(c->engine_log, err);
}

static int config_check(struct hth_config *c, struct hearth_error *err)
{
    const char *transport = hth_network_transport(c->transport, c->provider);
    int rc;

    if (transport != c->transport)
        snprintf(c->transport, sizeof(c->transport), "%s", transport);

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
    if ((rc = config_check_network(c, err)))
        return rc;
    rc = hth_config_network(c).strong ? hth_sha256_ready(err) : HEARTH_OK;
    return rc ? rc : config_check_rest(c, err);
}

static int config_take(struct hth_config *c, const struct flag *flag, const char *value, int joined,
        struct hearth_error *err)
{
    const struct hth_option *o = &flag->option;
    uint32_t one = 1;

    if (o->kind == HTH_OPTION_SWITCH && joined)
        return hth_fail(err, HEARTH_EINVAL, 0, "%s takes no value", o->flag);
    if (o->kind != HTH_OPTION_SWITCH && !value)
        return hth_fail(err, HEARTH_EINVAL, 0, "%s needs a value: %s", o->flag, o->value);
    if (o->kind == HTH_OPTION_U32)
        return config_set_number(c, flag, value, err);
    if (o->kind != HTH_OPTION_SWITCH)
        return config_set_text(c, flag, value, err);
    memcpy((char *)c + flag->at, &one, sizeof(one));
    return HEARTH_OK;
}

/* More workers than cores would only take time from the engine's own thread. */
static uint32_t config_threads(void)
{
    cpu_set_t cores;
    int n = sched_getaffinity(0, sizeof(cores), &cores) ? THREADS_MAX : CPU_COUNT(&cores);

    return n < THREADS_MAX ? (uint32_t)n : THREADS_MAX;
}

static void config_defaults(struct hth_config *out)
{
    *out = (struct hth_config){ .threads = config_threads() };
    for (size_t i = 0; i < FLAGS; i++) {
        const struct hth_option *o = &flags[i].option;
        const char *text =
                o->kind == HTH_OPTION_WORD ? hth_option_word_of(o, (uint32_t)o->none) : o->text;

        if (text)
            snprintf((char *)out + flags[i].at, flags[i].space, "%s", text);
    }
}

int hth_config_parse(
        struct hth_config *out, int argc, const char *const *argv, struct hearth_error *err)
{
    int rc;

    config_defaults(out);
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        const struct flag *flag = config_find(arg);
        const char *value = strchr(arg, '=');
        int joined = value != NULL;

        if (!flag)
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "'%.100s' is no option of hearthd: see hearthd --help", arg);
        if (joined)
            value++;
        else if (flag->option.kind != HTH_OPTION_SWITCH && i + 1 < argc)
            value = argv[++i];
        if ((rc = config_take(out, flag, value, joined, err)))
            return rc;
    }
    return out->help || out->version ? HEARTH_OK : config_check(out, err);
}
