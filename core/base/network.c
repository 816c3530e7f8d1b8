/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Off loopback any machine may connect, and on loopback any user of this machine. Our own hello
 * asks for the job's key, but a transport library that listens on sockets handles its peer's
 * messages before our hello: it writes bytes where the peer says, or aborts on a message out of
 * turn. Network hardware that checks memory keys itself prevents that, and our own sockets
 * (transport tcp) with a key. The libraries' other listeners are allowed only where the site says
 * that its network is trusted, loopback included. libfabric's shm has no port, but maps any file of
 * /dev/shm that has the name of its peer, whichever user made it, and follows the offsets in it: it
 * is treated alike. Our own sockets without a key let others take part in the job, and do no more
 * than that: they may open on loopback.
 *
 * Such hardware does not encrypt: an attacker on the way could change a checkpoint and its CRC. So
 * it is used with a SHA-256 beside the CRC (integrity = strong). The attacker can still read.
 */
#include "network.h"
#include "fail.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define TRUSTED "set network = trusted (--network trusted, HEARTH_NETWORK=trusted)"
#define ELSE    "or, on a network of the job's own that no stranger reaches, " TRUSTED
#define ALONE   "or, on a machine that no other user's programs run on, " TRUSTED

/* Providers whose hardware refuses a memory key that was not granted; all others count as
 * sockets. */
static const struct {
    const char *transport, *provider;
} guarded[] = { { "ofi", "verbs" }, { "ofi", "efa" }, { "ofi", "efa-direct" }, { "ofi", "cxi" } };

int hth_bind_next(const char **at, char out[HTH_BIND_TEXT])
{
    size_t len = strcspn(*at, ",");

    if (!**at)
        return 0;
    snprintf(out, HTH_BIND_TEXT, "%.*s", (int)len, *at);
    *at += len + ((*at)[len] == ',');
    return 1;
}

/* An address as bytes; returns how many, 0: it is none. */
static size_t address_bytes(const char *text, unsigned char out[16])
{
    if (inet_pton(AF_INET, text, out) == 1)
        return 4;
    return inet_pton(AF_INET6, text, out) == 1 ? 16 : 0;
}

int hth_binds_equal(const char *a, const char *b)
{
    char one[HTH_BIND_TEXT], other[HTH_BIND_TEXT];
    unsigned char x[16], y[16];
    int more, more_too;

    while ((more = hth_bind_next(&a, one)) & (more_too = hth_bind_next(&b, other))) {
        size_t len = address_bytes(one, x);

        if (len ? address_bytes(other, y) != len || memcmp(x, y, len) != 0
                : strcmp(one, other) != 0)
            return 0;
    }
    return !more && !more_too;
}

static enum hth_reach one_reach(const char *text)
{
    struct in6_addr v6;
    struct in_addr v4;

    if (inet_pton(AF_INET, text, &v4) == 1)
        return v4.s_addr == INADDR_ANY         ? HTH_REACH_WILDCARD
               : ntohl(v4.s_addr) >> 24 == 127 ? HTH_REACH_LOOPBACK
                                               : HTH_REACH_OTHERS;
    if (inet_pton(AF_INET6, text, &v6) == 1)
        return IN6_IS_ADDR_UNSPECIFIED(&v6) ? HTH_REACH_WILDCARD
               : IN6_IS_ADDR_LOOPBACK(&v6)  ? HTH_REACH_LOOPBACK
                                            : HTH_REACH_OTHERS;
    return HTH_REACH_NONE;
}

enum hth_reach hth_address_reach(const char *list)
{
    unsigned char own[HTH_BINDS][16];
    char one[HTH_BIND_TEXT];
    enum hth_reach all = HTH_REACH_NONE;
    size_t len = 0, count = 0;

    if (!list[0] || list[strlen(list) - 1] == ',')
        return HTH_REACH_NONE;
    for (const char *at = list; hth_bind_next(&at, one); count++) {
        enum hth_reach reach = one_reach(one);

        if (count == HTH_BINDS || reach == HTH_REACH_NONE || (count && reach != all))
            return HTH_REACH_NONE;
        all = reach;
        if (count && address_bytes(one, own[count]) != len)
            return HTH_REACH_NONE;
        len = address_bytes(one, own[count]);
        for (size_t i = 0; i < count; i++)
            if (!memcmp(own[i], own[count], len))
                return HTH_REACH_NONE;
    }
    return count > 1 && all == HTH_REACH_WILDCARD ? HTH_REACH_NONE : all;
}

/* Fabrics without IP: every node of their partition reaches them, whatever `bind` is. */
static int is_beside_ip(const struct hth_network *n)
{
    static const char *const names[] = { "efa", "efa-direct", "cxi", "opx", "psm2", "psm3" };
    const char *provider = n->provider ? n->provider : "";
    size_t len = strcspn(provider, ";/");

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(n->transport, "ofi") && strlen(names[i]) == len &&
                !strncmp(provider, names[i], len))
            return 1;
    return 0;
}

static int is_near(const struct hth_network *n)
{
    if (is_beside_ip(n))
        return 0;
    return !n->bind || !n->bind[0] || hth_address_reach(n->bind) == HTH_REACH_LOOPBACK;
}

/* The lowest layer: of "verbs;ofi_rxm" it is verbs. */
static int is_guarded(const struct hth_network *n)
{
    const char *provider = n->provider ? n->provider : "";
    size_t len = strcspn(provider, ";");

    if (!strcmp(n->transport, "tcp")) /* our own sockets ask for the key before anything else */
        return n->has_key;
    for (size_t i = 0; i < sizeof(guarded) / sizeof(guarded[0]); i++)
        if (!strcmp(n->transport, guarded[i].transport) && strlen(guarded[i].provider) == len &&
                !strncmp(provider, guarded[i].provider, len))
            return 1;
    return 0;
}

static int is_library(const struct hth_network *n)
{
    return strcmp(n->transport, "tcp") != 0 && strcmp(n->transport, HTH_TRANSPORT_AUTO) != 0;
}

/* The place of the listener, as a part of a sentence. */
static const char *bind_of(const struct hth_network *n)
{
    if (is_beside_ip(n))
        return "the fabric";
    return n->bind && n->bind[0] ? n->bind : "loopback";
}

static const char *library_of(const struct hth_network *n, char *out, size_t len)
{
    const char *provider = n->provider && n->provider[0] ? n->provider : "tcp";

    if (strcmp(n->transport, "tcp") == 0)
        return "transport tcp without a job key";
    snprintf(out, len, "%s's provider %.40s",
            strcmp(n->transport, "ucx") != 0 ? "libfabric" : "UCX", provider);
    return out;
}

/* Why other machines reach the listener: the beginning of a sentence. */
static const char *far_of(const struct hth_network *n, char *out, size_t len)
{
    if (is_beside_ip(n))
        snprintf(out, len,
                "libfabric's provider %.40s goes by no IP address, so that it is on no loopback",
                n->provider);
    else if (hth_address_reach(n->bind) == HTH_REACH_NONE)
        snprintf(out, len, "'%.80s' is no address, and no list of them all on or all off loopback",
                n->bind);
    else
        snprintf(out, len, "%.*s is no loopback address", (int)strcspn(n->bind, ","), n->bind);
    return out;
}

const char *hth_network_transport(const char *transport, const char *provider)
{
    if (transport && transport[0] && strcmp(transport, HTH_TRANSPORT_AUTO) != 0)
        return transport;
    return provider && provider[0] ? "ofi" : HTH_TRANSPORT_AUTO;
}

static int is_sealed(const struct hth_network *n)
{
    return strcmp(n->transport, "tcp") == 0 && n->has_key && !n->trusted;
}

/* How a listener that checks no key treats a stranger: the end of a sentence. */
static const char *obeys(const struct hth_network *n)
{
    if (strcmp(n->transport, "ofi") == 0 && n->provider && strcmp(n->provider, "shm") == 0)
        return "takes the file that has its peer's name in /dev/shm for its peer, whoever made it";
    return "obeys whoever reaches its port, before any key is asked for";
}

static int unguarded_refuse(const struct hth_network *n, struct hearth_error *err)
{
    char library[80], far[160];

    if (is_near(n))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%.64s is reached by every user of this machine, and %s %s: use transport tcp, " ALONE,
                bind_of(n), library_of(n, library, sizeof(library)), obeys(n));
    return hth_fail(err, HEARTH_EINVAL, 0,
            "%s, and %s %s: use transport tcp with a key, or a fabric whose "
            "hardware checks keys (transport ofi, provider verbs), " ELSE,
            far_of(n, far, sizeof(far)), library_of(n, library, sizeof(library)), obeys(n));
}

int hth_listener_check(const struct hth_network *n, struct hearth_error *err)
{
    char library[80], far[160];

    if (n->trusted)
        return HEARTH_OK;
    if (!is_guarded(n))
        return is_near(n) && !is_library(n) ? HEARTH_OK : unguarded_refuse(n, err);
    if (is_near(n) || n->strong || is_sealed(n))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, 0,
            "%s, and %s does not encrypt: an attacker on the way could change "
            "checkpoints and their CRC32C; set integrity = strong (--integrity strong, "
            "HEARTH_INTEGRITY=strong), use transport tcp with a key, " ELSE,
            far_of(n, far, sizeof(far)), library_of(n, library, sizeof(library)));
}

int hth_network_check(const struct hth_network *n, struct hearth_error *err)
{
    char far[160];

    if (!n->trusted && !n->has_key && !is_near(n))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%s, and there is no job key: without one Hearth listens "
                "on loopback only; give the key's file (key_file, --key-file, HEARTH_KEY_FILE), " ELSE,
                far_of(n, far, sizeof(far)));
    return strcmp(n->transport, HTH_TRANSPORT_AUTO) == 0 ? HEARTH_OK : hth_listener_check(n, err);
}

static int says_unguarded(const struct hth_network *n, char out[HTH_LEFT_OUT_TEXT])
{
    char library[80];

    if (is_guarded(n) || (is_near(n) && !is_library(n)))
        return 0;
    snprintf(out, HTH_LEFT_OUT_TEXT, "%s listens on %.64s and %s",
            library_of(n, library, sizeof(library)), bind_of(n), obeys(n));
    return 1;
}

unsigned hth_network_left_out(
        const struct hth_network *n, char out[HTH_LEFT_OUT][HTH_LEFT_OUT_TEXT])
{
    unsigned count = 0;

    if (!n->has_key && !is_near(n))
        snprintf(out[count++], HTH_LEFT_OUT_TEXT,
                "there is no job key: whoever reaches %.64s may take part in the job, read its "
                "checkpoints and damage them",
                bind_of(n));
    count += (unsigned)says_unguarded(n, out[count]);
    if (is_near(n) || is_sealed(n))
        return count;
    snprintf(out[count++], HTH_LEFT_OUT_TEXT,
            n->strong ? "checkpoints travel unencrypted: an attacker on the way of %.64s can read "
                        "them; a "
                        "change is found (integrity strong)"
                      : "checkpoints travel unencrypted, and a CRC finds accidents, not intent: an "
                        "attacker on the way of %.64s can read and change them",
            bind_of(n));
    return count;
}
