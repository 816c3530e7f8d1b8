/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings that the engine was started with, compared with this rank's. An engine outlives
 * jobs: one that was started yesterday has yesterday's key, transport and addresses, and goes on
 * with them. A rank that asks for other settings is refused, with the option's name and both
 * values. An option that a rank leaves unset is not compared, and an option that only permits
 * something (any_root) is not required of the engine. The table of options marks the options that
 * are compared.
 *
 * The key is compared by a proof: a code that only its owner can make, of a number that we draw.
 */
#include "settings.h"

#include "core/base/auth.h"
#include "core/base/network.h"
#include "core/base/options.h"
#include "told.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The options that an engine which runs already must have. */
static const struct setting {
    const struct hth_option *option;
    size_t has; /* in the engine's answer: a number, or as much text */
} settings[] = {
#define OPTION(field, kind, hearthd, running, ...) ROW_##running(field)
#define ROW_NO(field)
#define ROW_CHECKED(field)
#define ROW_ASKED(field) \
    { &hth_options[HTH_AT_##field], offsetof(struct hth_local_attached, field) },
#include "core/base/options.def"
};

#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

/* How an operator ends the engine: part of a sentence. */
static const char *remedy(const struct hearth *h, char *out, size_t len)
{
    if (h->attached.pid == (uint32_t)getpid())
        snprintf(out, len, "close the job's other handles in this process first");
    else if (!h->attached.pid) /* `kill 0` would end the caller's own processes */
        snprintf(out, len, "end it there (what it keeps stays)");
    else
        snprintf(out, len, "end it with `kill %u` (what it keeps stays)", h->attached.pid);
    return out;
}

static int differs(const struct hearth *h, const char *name, const char *asked, const char *has,
        struct hearth_error *err)
{
    char how[96];

    return hth_fail(err, HEARTH_EINVAL, 0,
            "%s is '%.192s', but the engine that runs on this node (%s) was started with '%.192s': "
            "%s, or open with what it has",
            name, asked, h->engine, has[0] ? has : "none", remedy(h, how, sizeof(how)));
}

static int text_agrees(const struct hearth *h, const struct hth_option *option, const char *has,
        struct hearth_error *err)
{
    const char *asked = hth_option_text(option, &h->wants);
    int same = !asked || (option->kind == HTH_OPTION_ADDRESS ? hth_binds_equal(asked, has)
                                                             : !strcmp(asked, has));

    /* `auto` left the choice to the engine, so any transport of the engine agrees with it. */
    if (option == &hth_options[HTH_AT_transport] && asked && !strcmp(asked, HTH_TRANSPORT_AUTO))
        same = 1;

    return same ? HEARTH_OK : differs(h, option->name, asked, has, err);
}

/* has 0: it leaves that to the ranks. */
static int number_agrees(const struct hearth *h, const struct hth_option *option, uint32_t has,
        struct hearth_error *err)
{
    uint32_t asked = (uint32_t)hth_option_number(option, &h->wants);
    char a[16], b[16];

    if (!asked || !has || asked == has)
        return HEARTH_OK;
    snprintf(a, sizeof(a), "%u", asked);
    snprintf(b, sizeof(b), "%u", has);
    return differs(h, option->name, a, b, err);
}

static int check_key(
        const struct hearth *h, const unsigned char *challenge, struct hearth_error *err)
{
    unsigned char proof[2][HTH_MAC] = { { 0 } };
    struct hth_key key;
    char how[96];
    int rc;

    if (!h->opts.key_file)
        return HEARTH_OK;
    if ((rc = hth_key_open(h->opts.key_file, &key, err)))
        return rc;
    hth_local_proof(proof[0], key.bytes, challenge);
    hth_local_proof(proof[1], key.other ? key.other : key.bytes, challenge);
    hth_key_close(&key);
    if (h->attached.has_key && (hth_mac_equal(proof[0], h->attached.key_proof) ||
                                       hth_mac_equal(proof[1], h->attached.key_proof)))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, 0,
            "key_file '%.200s' holds a key, but the engine that runs on this node (%s) was "
            "started %s: %s, or open with what it has",
            h->opts.key_file, h->engine, h->attached.has_key ? "with another key" : "without a key",
            remedy(h, how, sizeof(how)));
}

int hth_settings_check(
        const struct hearth *h, const unsigned char *challenge, struct hearth_error *err)
{
    int rc = HEARTH_OK;

    for (size_t i = 0; !rc && i < SETTINGS; i++) {
        const struct hth_option *option = settings[i].option;
        const char *has = (const char *)&h->attached + settings[i].has;
        uint32_t number;

        memcpy(&number, has, sizeof(number));
        rc = hth_option_is_text(option) ? text_agrees(h, option, has, err)
                                        : number_agrees(h, option, number, err);
    }
    return rc ? rc : check_key(h, challenge, err);
}

/* The options that are in effect: the engine's where it has a say. Texts are borrowed. */
static void in_effect(const struct hearth *h, struct hearth_opts *out)
{
    const struct hth_local_attached *a = &h->attached;

    *out = h->opts;
    for (size_t i = 0; i < SETTINGS; i++) {
        const struct hth_option *option = settings[i].option;
        const char *has = (const char *)a + settings[i].has;
        uint32_t number;

        memcpy(&number, has, sizeof(number));
        if (hth_option_is_text(option))
            hth_option_set_text(option, out, has[0] ? has : NULL);
        else if (number)
            hth_option_set_number(option, out, number);
    }
    hth_opts_joined(&h->joined, out);
    out->integrity =
            a->flags & HTH_LOCAL_STRONG ? HEARTH_INTEGRITY_STRONG : HEARTH_INTEGRITY_CRC32C;
    out->network = a->flags & HTH_LOCAL_TRUSTED ? HEARTH_NETWORK_TRUSTED : HEARTH_NETWORK_HOSTILE;
    out->key_file = !a->has_key ? NULL : out->key_file ? out->key_file : "the engine's";
    out->log_level = h->lines.level;
}

/* Names with slashes between. */
static void domains_text(const struct hearth_opts *o, char *out, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < o->domain_count && n < len; i++)
        n += (size_t)snprintf(out + n, len - n, "%s%.40s", i ? "/" : "", o->domains[i]);
}

/* "name value"; nothing of a switch that is off, of a text that is unset without a default, and of
 * what only a program can say. */
static void option_text(
        const struct hth_option *option, const struct hearth_opts *o, char *out, size_t len)
{
    char value[HTH_OPTION_WORDS + 20] = "", words[HTH_OPTION_WORDS];
    int number = hth_option_is_number(option);
    uint64_t v = number ? hth_option_number(option, o) : 0;
    const char *text = hth_option_is_text(option) ? hth_option_text(option, o) : NULL;

    out[0] = '\0';
    if (option->kind == HTH_OPTION_SWITCH && v)
        snprintf(out, len, "%s", option->name);
    if (option->kind == HTH_OPTION_SWITCH || option->kind == HTH_OPTION_COUNT ||
            option->kind == HTH_OPTION_POINTER || (number && !option->variable))
        return;
    if (option->kind == HTH_OPTION_LIST)
        domains_text(o, value, sizeof(value));
    else if (option->kind == HTH_OPTION_WORD)
        text = hth_option_word_of(option, (uint32_t)v);
    else if (number)
        snprintf(value, sizeof(value), "%" PRIu64, v);
    if (!text)
        text = value[0] ? value : hth_option_default(option, words);
    if (text[0])
        snprintf(out, len, "%s %.120s", option->name, text);
}

static void say_left_out(struct hearth *h)
{
    const struct hth_local_attached *a = &h->attached;
    struct hth_network network = { .bind = a->bind,
        .transport = a->transport,
        .provider = a->provider,
        .has_key = a->has_key != 0,
        .trusted = (a->flags & HTH_LOCAL_TRUSTED) != 0,
        .strong = (a->flags & HTH_LOCAL_STRONG) != 0 };
    char text[HTH_LEFT_OUT][HTH_LEFT_OUT_TEXT];
    unsigned count = hth_network_left_out(&network, text);

    for (unsigned i = 0; i < count; i++)
        hth_line_add(&h->lines, HEARTH_LOG_WARN, "network", "job %s rank %u: %s", h->opts.job,
                h->opts.rank, text[i]);
}

void hth_settings_say(struct hearth *h)
{
    const struct hth_local_attached *a = &h->attached;
    char line[HTH_LINE_TEXT] = "", one[HTH_OPTION_WORDS + 80];
    struct hearth_opts o;
    uint64_t bytes = 0;
    size_t n = 0;

    in_effect(h, &o);
    for (size_t i = 0; i < HTH_OPTIONS && n < sizeof(line); i++) {
        option_text(&hth_options[i], &o, one, sizeof(one));
        if (one[0])
            n += (size_t)snprintf(line + n, sizeof(line) - n, ", %s", one);
    }
    for (size_t i = 0; i < o.object_count; i++)
        bytes += o.object_bytes[i];
    hth_line_add(&h->lines, HEARTH_LOG_INFO, "open",
            "job %s rank %u/%u epoch %" PRIu64 " engine %s log %.120s, %zu objects of %" PRIu64
            " bytes%s",
            o.job, o.rank, o.world, h->epoch, h->engine, a->log, o.object_count, bytes, line);
    say_left_out(h);
    if (!o.machine)
        hth_line_add(&h->lines, HEARTH_LOG_WARN, "machine",
                "job %s rank %u: /proc/sys/kernel/random/boot_id does not show which machine this "
                "node is on, so two nodes of one machine may keep each other's only copies: set "
                "machine (HEARTH_MACHINE)",
                o.job, o.rank);
}
