/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: the network that an engine would take by this environment. */
#include "checkup.h"

#include "core/base/open.h"
#include "core/base/options.h"
#include "transport/address.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MTU_LEAST  1500
#define CONNECT_MS 1000

void see_settings(struct checkup *c)
{
    const struct choice *o = &c->net.choice;

    if (c->env_err.code) {
        found(c, STATE_BROKEN, "%s", c->env_err.text);
        remedy(c, "hearth ls --env     (all variables, and what they take)");
    }
    if (o->refused[0]) {
        found(c, STATE_BROKEN, "an engine does not open: %s", o->refused);
        remedy(c, "hearth doctor net     (docs/operate/networks.md, when it does not open)");
        return;
    }
    for (unsigned i = 0; i < o->betters; i++)
        if (!o->better[i].offer->against[0]) {
            found(c, STATE_RISK, "a faster fabric of this node is not taken: %s (%s)",
                    o->better[i].offer->provider, o->better[i].offer->fabric);
            remedy(c, "%s", o->better[i].text);
            return;
        }
    found(c, STATE_OK, "transport %s, provider %s, address %s", o->transport, o->provider, o->bind);
}

/* ---- interfaces ------------------------------------------------------------------------------ */

/* Another interface that is up, is not loopback, has an address and this speed at least. */
static const struct hth_interface *see_other(
        const struct checkup *c, const struct hth_interface *than, int64_t least_mbit)
{
    const struct hth_interface *best = NULL;

    for (unsigned i = 0; i < c->net.machine.interfaces; i++) {
        const struct hth_interface *one = &c->net.machine.interface[i];

        if (one != than && !one->is_loopback && one->addresses[0] &&
                strcmp(one->state, "down") != 0 && one->speed_mbit >= least_mbit &&
                (!best || one->speed_mbit > best->speed_mbit))
            best = one;
    }
    return best;
}

static void see_loopback(struct checkup *c)
{
    const struct hth_interface *other = see_other(c, NULL, -1);

    if (other)
        found(c, STATE_OK,
                "%s (%s): ranks of this node alone; for others set HEARTH_BIND, as %.*s of %s",
                c->net.choice.bind, c->net.choice.bind_by, (int)strcspn(other->addresses, ","),
                other->addresses, other->name);
    else
        found(c, STATE_OK, "%s (%s): ranks of this node alone", c->net.choice.bind,
                c->net.choice.bind_by);
}

static void see_interface_of(struct checkup *c, const char *address)
{
    const struct hth_interface *i = hth_machine_interface_of(&c->net.machine, address);
    const struct hth_interface *faster =
            i && i->speed_mbit > 0 ? see_other(c, i, i->speed_mbit * 2) : NULL;
    char speed[32] = "of a speed that is not known";

    if (!i) {
        found(c, STATE_BROKEN, "no interface of this node has %s, the address of HEARTH_BIND",
                address);
        remedy(c, "ip -br addr     (then: export HEARTH_BIND=ADDRESS)");
        return;
    }
    if (i->speed_mbit > 0)
        snprintf(speed, sizeof(speed), "%lld Mbit/s", (long long)i->speed_mbit);
    if (!strcmp(i->state, "down")) {
        found(c, STATE_BROKEN, "%s, which has %s, is down", i->name, address);
        remedy(c, "ip link set %s up     (if it stays down: its cable, or its switch)", i->name);
    } else if (faster) {
        found(c, STATE_RISK, "%s has %s; %s has %lld Mbit/s", i->name, speed, faster->name,
                (long long)faster->speed_mbit);
        remedy(c, "export HEARTH_BIND=%.*s     (on all nodes: of the interface like it)",
                (int)strcspn(faster->addresses, ","), faster->addresses);
    } else if (i->mtu >= 0 && i->mtu < MTU_LEAST) {
        found(c, STATE_RISK, "%s has an MTU of %lld bytes, less than Ethernet's %d", i->name,
                (long long)i->mtu, MTU_LEAST);
        remedy(c, "ip link set %s mtu %d     (unless it is a tunnel, whose packets grow)", i->name,
                MTU_LEAST);
    } else {
        found(c, STATE_OK, "%s of %s: %s, MTU %lld", address, i->name, speed, (long long)i->mtu);
    }
}

void see_interface(struct checkup *c)
{
    char one[HTH_BIND_TEXT];

    if (hth_address_reach(c->net.choice.bind) == HTH_REACH_LOOPBACK) {
        see_loopback(c);
        return;
    }
    for (const char *at = c->net.choice.bind; hth_bind_next(&at, one);)
        see_interface_of(c, one);
}

/* ---- a listener that is reached -------------------------------------------------------------- */

/* Connects to a listener of its own at that address. 0, or an errno. */
static int see_connect(int listener, int fd, const union hth_addr *a)
{
    union hth_addr at = *a;
    socklen_t len = sizeof(at);
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    int why = 0;
    socklen_t why_len = sizeof(why);

    if (bind(listener, &a->sa, hth_addr_len(a)) || listen(listener, 1) ||
            getsockname(listener, &at.sa, &len))
        return errno;
    if (!connect(fd, &at.sa, len))
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    if (poll(&p, 1, CONNECT_MS) <= 0)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &why_len) ? errno : why;
}

static int see_reach(const char *address, struct hearth_error *err)
{
    union hth_addr a;
    int listener, fd, rc;

    if (hth_addr_local(address, 0, &a, err))
        return err->native ? err->native : EADDRNOTAVAIL;
    listener = socket(a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fd = socket(a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    rc = listener < 0 || fd < 0 ? errno : see_connect(listener, fd, &a);
    if (listener >= 0)
        close(listener);
    if (fd >= 0)
        close(fd);
    return rc;
}

void see_listening(struct checkup *c)
{
    struct hearth_error err = { 0 };
    char one[HTH_BIND_TEXT];
    int why;

    for (const char *at = c->net.choice.bind; hth_bind_next(&at, one);) {
        why = see_reach(one, &err);
        if (!why) {
            found(c, STATE_OK, "this node reaches a port of %s", one);
            continue;
        }
        found(c, STATE_BROKEN, "this node does not reach a port of its own at %s: %s", one,
                strerrordesc_np(why));
        if (hth_address_reach(one) == HTH_REACH_LOOPBACK)
            remedy(c, "ip link set lo up     (and let the firewall pass it: nft list ruleset)");
        else
            remedy(c, "nft list ruleset; ip -br addr     (a rule, or an address that is not here)");
    }
}

/* ---- ports, congestion control --------------------------------------------------------------- */

static int see_kernel_line(const char *path, char *out, size_t len)
{
    char whole[400];
    FILE *f;

    snprintf(whole, sizeof(whole), "%s%s", doctor_root(), path);
    f = hth_open_kernel_text(whole);
    out[0] = '\0';
    if (f && !fgets(out, (int)len, f))
        out[0] = '\0';
    if (f)
        fclose(f);
    out[strcspn(out, "\n")] = '\0';
    return out[0] != '\0';
}

/* "8080,9000-9010" */
static int see_is_reserved(unsigned port)
{
    char line[4096], *rest = line, *end;
    unsigned long from, to;

    if (!see_kernel_line("/proc/sys/net/ipv4/ip_local_reserved_ports", line, sizeof(line)))
        return 0;
    for (char *one; (one = strsep(&rest, ","));) {
        from = to = strtoul(one, &end, 10);
        if (end != one && *end == '-')
            to = strtoul(end + 1, NULL, 10);
        if (end != one && port >= from && port <= to)
            return 1;
    }
    return 0;
}

void see_port(struct checkup *c)
{
    unsigned port = (unsigned)hth_option_number(&hth_options[HTH_AT_port], &c->net.opts);
    unsigned long from, to;
    char line[64], *end;

    if (!port) {
        found(c, STATE_OK, "an engine takes any that is free");
        return;
    }
    if (!see_kernel_line("/proc/sys/net/ipv4/ip_local_port_range", line, sizeof(line)))
        line[0] = '\0';
    from = strtoul(line, &end, 10); /* no line: from 0 to 0 */
    to = strtoul(end, NULL, 10);
    if (port >= from && port <= to && !see_is_reserved(port)) {
        found(c, STATE_RISK,
                "HEARTH_ENGINE_PORT=%u lies in the range of ports that the kernel gives to any "
                "connection (%lu to %lu): after a restart it may be taken",
                port, from, to);
        remedy(c, "sysctl -w net.ipv4.ip_local_reserved_ports=%u     (or a port below %lu)", port,
                from);
        return;
    }
    found(c, STATE_OK, "the kernel gives %u to no other connection", port);
}

void see_tcp(struct checkup *c)
{
    const char *control = c->net.machine.congestion;

    if (!control[0])
        found(c, STATE_UNKNOWN, "its congestion control cannot be read");
    else
        found(c, STATE_OK, "congestion control %s%s", control,
                strcmp(control, "bbr") == 0
                        ? ": over loopback half as fast as cubic or reno; compare like with like"
                        : "");
}
