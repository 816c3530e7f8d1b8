/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine was started with, beside what this rank asks for. An engine outlives jobs: one
 * that was started yesterday has yesterday's key, transport and addresses, and goes on with them. A
 * rank that asks for others is refused, by the option's name with both values. What a rank
 * leaves unset it has no opinion on; what it permits (any_root) it does not demand.
 *
 * The key is compared by a proof: a code that only its owner can make, of a number that we draw.
 */
#include "settings.h"

#include "core/base/auth.h"
#include "core/base/network.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum kind { TEXT, ADDRESS, NUMBER };

#define ASKED(field) offsetof(struct hearth_opts, field)
#define HAS(field)   offsetof(struct hth_local_attached, field)

static const struct setting {
    const char *name;
    enum kind kind;
    size_t asked; /* in the options as the caller gave them */
    size_t has;   /* in the engine's answer; 0: it leaves that to the ranks */
} settings[] = {
    { "node", TEXT, ASKED(node), HAS(node) },
    { "transport", TEXT, ASKED(transport), HAS(transport) },
    { "provider", TEXT, ASKED(provider), HAS(provider) },
    { "bind", ADDRESS, ASKED(bind), HAS(bind) },
    { "device", TEXT, ASKED(device), HAS(device) },
    { "port", NUMBER, ASKED(port), HAS(port) },
    { "heartbeat_ms", NUMBER, ASKED(heartbeat_ms), HAS(heartbeat_ms) },
    { "dead_ms", NUMBER, ASKED(dead_ms), HAS(dead_ms) },
    { "stall_ms", NUMBER, ASKED(stall_ms), HAS(stall_ms) },
};

/* Who is to end it, and how. */
static const char *remedy(const struct hearth *h, char *out, size_t len)
{
    if (h->attached.pid == (uint32_t)getpid())
        snprintf(out, len, "close the job's other handles in this process first");
    else
        snprintf(out, len, "end it with `kill %u` (what it keeps stays)", h->attached.pid);
    return out;
}

static int differs(const struct hearth *h, const char *name, const char *asked, const char *has,
        struct hearth_error *err)
{
    char how[96];

    return hth_fail(err, HEARTH_EINVAL, 0,
            "%s is '%.64s', but the engine that runs on this node (pid %u) was started with '%.64s': "
            "%s, or open with what it has",
            name, asked, h->attached.pid, has[0] ? has : "none", remedy(h, how, sizeof(how)));
}

static int same_address(const char *a, const char *b)
{
    unsigned char x[16], y[16];

    if (inet_pton(AF_INET, a, x) == 1 && inet_pton(AF_INET, b, y) == 1)
        return !memcmp(x, y, 4);
    if (inet_pton(AF_INET6, a, x) == 1 && inet_pton(AF_INET6, b, y) == 1)
        return !memcmp(x, y, 16);
    return !strcmp(a, b);
}

static int check_text(const struct hearth *h, const struct setting *s, const char *asked,
        const char *has, struct hearth_error *err)
{
    if (!asked || (s->kind == ADDRESS ? same_address(asked, has) : !strcmp(asked, has)))
        return HEARTH_OK;
    return differs(h, s->name, asked, has, err);
}

static int check_number(const struct hearth *h, const struct setting *s, uint32_t asked,
        uint32_t has, struct hearth_error *err)
{
    char a[16], b[16];

    if (!asked || !has || asked == has)
        return HEARTH_OK;
    snprintf(a, sizeof(a), "%u", asked);
    snprintf(b, sizeof(b), "%u", has);
    return differs(h, s->name, a, b, err);
}

static int check_key(
        const struct hearth *h, const unsigned char *challenge, struct hearth_error *err)
{
    unsigned char proof[HTH_MAC];
    struct hth_key key;
    char how[96];
    int rc;

    if (!h->opts.key_file)
        return HEARTH_OK;
    if ((rc = hth_key_open(h->opts.key_file, &key, err)))
        return rc;
    hth_local_proof(proof, key.bytes, challenge);
    hth_key_close(&key);
    if (h->attached.has_key && hth_mac_equal(proof, h->attached.key_proof))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, 0,
            "key_file '%.200s' holds a key, but the engine that runs on this node (pid %u) was "
            "started %s: %s, or open with what it has",
            h->opts.key_file, h->attached.pid,
            h->attached.has_key ? "with another key" : "without a key",
            remedy(h, how, sizeof(how)));
}

int hth_settings_check(
        const struct hearth *h, const unsigned char *challenge, struct hearth_error *err)
{
    const char *asked = (const char *)&h->wants, *has = (const char *)&h->attached;
    int rc = HEARTH_OK;

    for (size_t i = 0; !rc && i < sizeof(settings) / sizeof(settings[0]); i++) {
        const struct setting *s = &settings[i];
        const char *text;
        uint32_t want, is;

        if (s->kind == NUMBER) {
            memcpy(&want, asked + s->asked, sizeof(want));
            memcpy(&is, has + s->has, sizeof(is));
            rc = check_number(h, s, want, is, err);
        } else {
            memcpy(&text, asked + s->asked, sizeof(text));
            rc = check_text(h, s, text, has + s->has, err);
        }
    }
    return rc ? rc : check_key(h, challenge, err);
}

/* How this rank came to its engine. */
static void start_text(const struct hearth_opts *o, char *out, size_t len)
{
    const char *start = o->start == HEARTH_START_NEVER        ? "never"
                        : o->start == HEARTH_START_IN_PROCESS ? "in_process"
                                                              : "auto";
    size_t n = (size_t)snprintf(out, len, "start %s%s engine %.80s domains", start,
            o->helper ? " helper" : "", o->engine ? o->engine : "found");

    for (size_t i = 0; i < o->domain_count && n < len; i++)
        n += (size_t)snprintf(out + n, len - n, "%c%.40s", i ? '/' : ' ', o->domains[i]);
    if (!o->domain_count && n < len)
        snprintf(out + n, len - n, " none");
}

static void say_left_out(struct hearth *h)
{
    const struct hth_local_attached *a = &h->attached;
    struct hth_network network = { .bind = a->bind,
        .transport = a->transport,
        .provider = a->provider,
        .has_key = a->has_key != 0,
        .trusted = a->trusted != 0 };
    char text[HTH_LEFT_OUT][HTH_LEFT_OUT_TEXT];
    unsigned count = hth_network_left_out(&network, text);

    for (unsigned i = 0; i < count; i++)
        hth_line_add(&h->lines, HEARTH_LOG_WARN, "network", "job %s rank %u: %s", h->opts.job,
                h->opts.rank, text[i]);
}

void hth_settings_say(struct hearth *h)
{
    const struct hth_local_attached *a = &h->attached;
    const struct hearth_opts *own = &h->opts;
    const struct hth_local_opts *o = &h->joined;
    uint64_t bytes = 0;
    char start[320];

    for (size_t i = 0; i < own->object_count; i++)
        bytes += own->object_bytes[i];
    start_text(own, start, sizeof(start));
    hth_line_add(&h->lines, HEARTH_LOG_INFO, "open",
            "job %s rank %u/%u node %s epoch %" PRIu64
            "; copies %u min %u keep %u%s; root %s%s; transport %s/%s bind %s device %s port %u "
            "auth %s network %s; heartbeat %u dead %u stall %u open %u recover %u save %u ms "
            "linger %u s; copy_threads %u inflight %u MiB lease %" PRIu64 " spare %" PRIu64
            "; objects %zu of %" PRIu64 " bytes; %s; log_level %u; engine pid %u log %.120s",
            own->job, own->rank, own->world, a->node, h->epoch, o->copies, o->min_copies, o->keep,
            o->allow_degraded ? " allow_degraded" : "", own->root,
            own->any_root ? " (any_root)" : "", a->transport, a->provider, a->bind,
            a->device[0] ? a->device : "by address", a->port, a->has_key ? "key" : "none",
            a->trusted ? "trusted" : "hostile", o->heartbeat_ms, o->dead_ms, o->stall_ms,
            own->open_ms, o->recover_ms, o->save_ms, o->linger_s, own->copy_threads,
            o->inflight_mib, o->lease_bytes, o->spare_bytes, own->object_count, bytes, start,
            h->lines.level, a->pid, a->log);
    say_left_out(h);
}
