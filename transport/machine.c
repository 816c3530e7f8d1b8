/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include "core/base/open.h"
#include <arpa/inet.h>
#include <glob.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CAP_IPC_LOCK_BIT 14

/* The first line of a file, "" where there is none. */
static __attribute__((format(printf, 4, 5))) void machine_line(
        const struct hth_machine *m, char *out, size_t len, const char *fmt, ...)
{
    char rest[512], path[PATH_MAX];
    va_list ap;
    FILE *f;

    va_start(ap, fmt);
    vsnprintf(rest, sizeof(rest), fmt, ap);
    va_end(ap);
    snprintf(path, sizeof(path), "%s%s", m->root, rest);
    out[0] = '\0';
    f = hth_open_kernel_text(path);
    if (!f)
        return;
    if (!fgets(out, (int)len, f))
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    fclose(f);
}

static int64_t machine_number(const char *line)
{
    char *end;
    long long v = strtoll(line, &end, 10);

    return end == line || v < 0 ? -1 : v;
}

static void machine_glob(const struct hth_machine *m, const char *pattern, glob_t *out)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s%s", m->root, pattern);
    if (glob(path, 0, NULL, out))
        out->gl_pathc = 0;
}

static const char *machine_last(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

int hth_machine_files(const struct hth_machine *m, const char *pattern)
{
    glob_t found;
    int is;

    machine_glob(m, pattern, &found);
    is = found.gl_pathc ? -1 : 0;
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (eaccess(found.gl_pathv[i], R_OK | W_OK) == 0)
            is = 1;
    globfree(&found);
    return is;
}

static char no_addresses[1];

/* ---- interfaces ------------------------------------------------------------------------------ */

static struct hth_interface *interface_find(struct hth_machine *m, const char *name)
{
    for (unsigned i = 0; i < m->interfaces; i++)
        if (strcmp(m->interface[i].name, name) == 0)
            return &m->interface[i];
    return NULL;
}

const struct hth_interface *hth_machine_interface(const struct hth_machine *m, const char *name)
{
    for (unsigned i = 0; i < m->interfaces; i++)
        if (strcmp(m->interface[i].name, name) == 0)
            return &m->interface[i];
    return NULL;
}

/* The number that a text stands for: 4 bytes or 16, and how many; 0: it is no address. */
static size_t address_parse(const char *text, size_t len, unsigned char out[16])
{
    char one[INET6_ADDRSTRLEN];

    if (len >= sizeof(one))
        return 0;
    memcpy(one, text, len);
    one[len] = '\0';
    if (inet_pton(AF_INET, one, out) == 1)
        return 4;
    return inet_pton(AF_INET6, one, out) == 1 ? 16 : 0;
}

const struct hth_interface *hth_machine_interface_of(
        const struct hth_machine *m, const char *address)
{
    unsigned char want[16], have[16];
    size_t len = address_parse(address, strcspn(address, ","), want);

    for (unsigned i = 0; len && i < m->interfaces; i++) {
        const char *at = m->interface[i].addresses;

        for (; *at; at += strcspn(at, ","), at += strspn(at, ", "))
            if (address_parse(at, strcspn(at, ","), have) == len && !memcmp(have, want, len))
                return &m->interface[i];
    }
    return NULL;
}

/* Of an adapter itself, or, as a bond or a VLAN, above one. */
static int interface_is_rdma(const struct hth_machine *m, const char *name)
{
    static const char *const places[] = { "/sys/class/net/%s/device/infiniband/*",
        "/sys/class/net/%s/lower_*/device/infiniband/*" };
    char pattern[128], parent[HTH_MACHINE_WORD];
    glob_t found;
    int is = 0;

    for (size_t i = 0; i < 2 && !is; i++) {
        snprintf(pattern, sizeof(pattern), i ? places[1] : places[0], name);
        machine_glob(m, pattern, &found);
        is = found.gl_pathc > 0;
        globfree(&found);
    }
    machine_glob(m, "/sys/class/infiniband/*/parent", &found); /* an adapter made of software */
    for (size_t i = 0; i < found.gl_pathc && !is; i++) {
        machine_line(m, parent, sizeof(parent), "%s", found.gl_pathv[i] + strlen(m->root));
        is = strcmp(parent, name) == 0;
    }
    globfree(&found);
    return is;
}

/* Adds a zeroed element at the end of an array; NULL: there is no memory. */
static void *machine_more(void *array, unsigned *count, size_t bytes)
{
    unsigned char *at;

    memcpy(&at, array, sizeof(at)); /* a pointer to whichever struct */
    at = realloc(at, (*count + 1) * bytes);
    if (!at)
        return NULL;
    memcpy(array, &at, sizeof(at));
    at += *count * bytes;
    ++*count;
    return memset(at, 0, bytes);
}

static void interface_look(const struct hth_machine *m, const char *name, struct hth_interface *out)
{
    char line[64];

    snprintf(out->name, sizeof(out->name), "%s", name);
    machine_line(m, out->state, sizeof(out->state), "/sys/class/net/%s/operstate", name);
    machine_line(m, line, sizeof(line), "/sys/class/net/%s/speed", name);
    out->speed_mbit = machine_number(line);
    machine_line(m, line, sizeof(line), "/sys/class/net/%s/mtu", name);
    out->mtu = machine_number(line);
    machine_line(m, line, sizeof(line), "/sys/class/net/%s/device/numa_node", name);
    out->numa = machine_number(line);
    machine_line(m, line, sizeof(line), "/sys/class/net/%s/type", name);
    out->is_loopback = machine_number(line) == 772; /* ARPHRD_LOOPBACK */
    out->is_rdma = interface_is_rdma(m, name);
}

static void interfaces_look(struct hth_machine *m)
{
    glob_t found;

    machine_glob(m, "/sys/class/net/*/mtu", &found); /* beside them lie files of bonding */
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *path = found.gl_pathv[i];
        struct hth_interface *one;

        *strrchr(path, '/') = '\0';
        if (strlen(machine_last(path)) >= HTH_MACHINE_WORD)
            continue;
        one = machine_more(&m->interface, &m->interfaces, sizeof(*one));
        if (!one)
            break;
        one->addresses = no_addresses;
        interface_look(m, machine_last(path), one);
    }
    globfree(&found);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void address_add(struct hth_machine *m, const char *interface, const char *address)
{
    struct hth_interface *at = interface_find(m, interface);
    char *more;

    if (!at || asprintf(&more, "%s%s%s", at->addresses, at->addresses[0] ? ", " : "", address) < 0)
        return;
    if (at->addresses != no_addresses)
        free(at->addresses);
    at->addresses = more;
}

static void addresses_of_file(struct hth_machine *m)
{
    char path[PATH_MAX], line[128], name[32], address[64];
    FILE *f;

    snprintf(path, sizeof(path), "%s/addresses", m->root);
    f = hth_open_kernel_text(path);
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "%31s %63s", name, address) == 2)
            address_add(m, name, address);
    if (f)
        fclose(f);
}

static void addresses_look(struct hth_machine *m)
{
    struct ifaddrs *all = NULL;
    char text[INET6_ADDRSTRLEN];

    if (m->root[0]) {
        addresses_of_file(m);
        return;
    }
    if (getifaddrs(&all))
        return;
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        const void *sa = i->ifa_addr;

        if (!sa)
            continue;
        if (i->ifa_addr->sa_family == AF_INET &&
                inet_ntop(AF_INET, &((const struct sockaddr_in *)sa)->sin_addr, text, sizeof(text)))
            address_add(m, i->ifa_name, text);
        if (i->ifa_addr->sa_family == AF_INET6 &&
                !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)sa)->sin6_addr) &&
                inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)sa)->sin6_addr, text,
                        sizeof(text)))
            address_add(m, i->ifa_name, text);
    }
    freeifaddrs(all);
}

/* ---- adapters -------------------------------------------------------------------------------- */

/* An adapter with two ports has two interfaces; dev_port shows which interface belongs to which
 * port. */
static void port_find_interface(const struct hth_machine *m, struct hth_rdma_port *port)
{
    char pattern[128], line[64];
    glob_t found;

    snprintf(pattern, sizeof(pattern), "/sys/class/infiniband/%s/device/net/*", port->device);
    machine_glob(m, pattern, &found);
    for (size_t i = 0; i < found.gl_pathc && !port->interface[0]; i++) {
        const char *name = machine_last(found.gl_pathv[i]);

        machine_line(m, line, sizeof(line), "/sys/class/net/%s/dev_port", name);
        if (strlen(name) < HTH_MACHINE_WORD &&
                (found.gl_pathc == 1 || machine_number(line) == port->port - 1))
            memcpy(port->interface, name, strlen(name) + 1);
    }
    globfree(&found);
    if (!port->interface[0])
        machine_line(m, port->interface, sizeof(port->interface), "/sys/class/infiniband/%s/parent",
                port->device);
}

static void port_find_driver(const struct hth_machine *m, struct hth_rdma_port *port)
{
    char path[PATH_MAX], to[PATH_MAX];
    ssize_t n;

    snprintf(path, sizeof(path), "%s/sys/class/infiniband/%s/device/driver", m->root, port->device);
    n = readlink(path, to, sizeof(to) - 1);
    to[n < 0 ? 0 : n] = '\0';
    snprintf(port->driver, sizeof(port->driver), "%.31s", machine_last(to));
}

/* path: .../infiniband/DEVICE/ports/N, cut up. */
static void port_look(const struct hth_machine *m, char *path, struct hth_rdma_port *out)
{
    const char *number = machine_last(path);
    char line[64], *colon;

    out->port = machine_number(number);
    *strstr(path, "/ports/") = '\0';
    snprintf(out->device, sizeof(out->device), "%.31s", machine_last(path));
    machine_line(
            m, line, sizeof(line), "/sys/class/infiniband/%s/ports/%s/state", out->device, number);
    colon = strchr(line, ':'); /* "4: ACTIVE" */
    snprintf(out->state, sizeof(out->state), "%.31s", colon ? colon + 2 : line);
    machine_line(m, out->rate, sizeof(out->rate), "/sys/class/infiniband/%s/ports/%s/rate",
            out->device, number);
    machine_line(m, out->layer, sizeof(out->layer), "/sys/class/infiniband/%s/ports/%s/link_layer",
            out->device, number);
    machine_line(m, line, sizeof(line), "/sys/class/infiniband/%s/device/numa_node", out->device);
    out->numa = machine_number(line);
    port_find_interface(m, out);
    port_find_driver(m, out);
}

static void ports_look(struct hth_machine *m)
{
    glob_t found;

    machine_glob(m, "/sys/class/infiniband/*/ports/*", &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct hth_rdma_port *one = machine_more(&m->port, &m->ports, sizeof(*one));

        if (one)
            port_look(m, found.gl_pathv[i], one);
    }
    globfree(&found);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* The line of a file that begins with `title`: what is behind that; "" where there is none. */
static void machine_behind(
        const struct hth_machine *m, const char *file, const char *title, char *out, size_t len)
{
    char path[PATH_MAX], line[256];
    FILE *f;

    out[0] = '\0';
    snprintf(path, sizeof(path), "%s%s", m->root, file);
    f = hth_open_kernel_text(path);
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, title, strlen(title)) == 0)
            snprintf(out, len, "%s", line + strlen(title));
    if (f)
        fclose(f);
}

static void memlock_look(struct hth_machine *m)
{
    char text[256], *end;
    uint64_t bytes;

    machine_behind(m, "/proc/self/limits", "Max locked memory", text, sizeof(text));
    bytes = strtoull(text, &end, 10);
    m->memlock_bytes = end == text ? UINT64_MAX : bytes; /* "unlimited" */
    machine_behind(m, "/proc/self/status", "CapEff:", text, sizeof(text));
    m->locks_any = (strtoull(text, NULL, 16) >> CAP_IPC_LOCK_BIT & 1) != 0;
    /* In a user namespace of its own a capability has no effect for the driver. */
    machine_line(m, text, sizeof(text), "/proc/self/uid_map");
    if (!strstr(text, "4294967295"))
        m->locks_any = 0;
}

void hth_machine_look(const char *root, struct hth_machine *out)
{
    memset(out, 0, sizeof(*out));
    snprintf(out->root, sizeof(out->root), "%s", root);
    interfaces_look(out);
    addresses_look(out);
    ports_look(out);
    memlock_look(out);
    machine_line(out, out->congestion, sizeof(out->congestion),
            "/proc/sys/net/ipv4/tcp_congestion_control");
}

void hth_machine_fini(struct hth_machine *m)
{
    for (unsigned i = 0; i < m->interfaces; i++)
        if (m->interface[i].addresses != no_addresses)
            free(m->interface[i].addresses);
    free(m->interface);
    free(m->port);
    m->interface = NULL;
    m->port = NULL;
    m->interfaces = m->ports = 0;
}
