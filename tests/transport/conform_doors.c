/* SPDX-License-Identifier: Apache-2.0 */
/* Where a backend can be reached: on the address it was given and on no other, whatever else its
 * library opens; and off loopback not at all where the library obeys whoever comes. */
#include "conform.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

static uint64_t now_ms(void *self)
{
    (void)self;
    return 1;
}

static void on_conn(void *self, hth_conn conn)
{
    (void)self, (void)conn;
}

static void on_down(void *self, hth_conn conn, int code, const char *detail)
{
    (void)self, (void)conn, (void)code, (void)detail;
}

static void on_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    (void)self, (void)conn, (void)bytes, (void)len;
}

static void on_pull(void *self, uint64_t cookie, int code)
{
    (void)self, (void)cookie, (void)code;
}

static int try_open(const struct conform_backend *b, const char *bind, int trusted,
        struct hth_transport **out, struct hearth_error *err)
{
    struct hth_transport_events events = { NULL, on_conn, on_conn, on_down, on_message, on_conn,
        on_pull };
    struct hth_transport_opts o = {
        .bind = bind,
        .provider = b->provider,
        .library = b->library ? getenv(b->library) : NULL,
        .trusted = trusted,
        .key = conform_key(b),
        .clock = { now_ms, now_ms, NULL },
    };
    int rc = hth_transport_open(b->module, getenv("HEARTH_TEST_LIB"), &o, &events, out, err);

    if (rc == HEARTH_ENOENT)
        conform_skip(err->text);
    return rc;
}

/* 1: strangers may come by this descriptor. */
static int is_door(int fd)
{
    socklen_t len = sizeof(int);
    int type = 0, listens = 0;

    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) ||
            getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len))
        return 0;
    return listens || type == SOCK_DGRAM || type == SOCK_RAW;
}

/* How many doors this process has to the network; all of them must be at `address`. */
static int doors(const char *address)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    int count = 0;

    while ((entry = readdir(dir))) {
        union {
            struct sockaddr sa;
            struct sockaddr_in in;
            struct sockaddr_in6 in6;
        } a = { 0 };
        socklen_t len = sizeof(a);
        char text[INET6_ADDRSTRLEN] = "";
        int fd = atoi(entry->d_name);

        if (!is_door(fd) || getsockname(fd, &a.sa, &len))
            continue;
        if (a.sa.sa_family == AF_INET)
            inet_ntop(AF_INET, &a.in.sin_addr, text, sizeof(text));
        else if (a.sa.sa_family == AF_INET6)
            inet_ntop(AF_INET6, &a.in6.sin6_addr, text, sizeof(text));
        else
            continue;
        if (strcmp(text, address) != 0)
            fprintf(stderr, "it can be reached at %s, and was given %s\n", text, address);
        CHECK(strcmp(text, address) == 0);
        count++;
    }
    closedir(dir);
    return count;
}

/* "": this machine has none that others may reach. */
static void find_address(char out[INET_ADDRSTRLEN])
{
    struct ifaddrs *all = NULL;

    out[0] = '\0';
    CHECK(getifaddrs(&all) == 0);
    for (struct ifaddrs *i = all; i && !out[0]; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
                !(i->ifa_flags & IFF_LOOPBACK))
            inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, out,
                    INET_ADDRSTRLEN);
    freeifaddrs(all);
}

static void must_refuse(const struct conform_backend *b, const char *address, int before)
{
    struct hth_transport *t = NULL;
    struct hearth_error err = { 0 };

    CHECK(try_open(b, address, 0, &t, &err) == HEARTH_EINVAL);
    CHECK(strstr(err.text, "network = trusted") != NULL);
    CHECK(doors("127.0.0.1") == before);
}

void conform_doors(const struct conform_backend *b)
{
    struct hth_transport *t = NULL;
    struct hearth_error err = { 0 };
    char address[INET_ADDRSTRLEN];
    int before;

    if (!b->module)
        return; /* no other process reaches into this one */
    if (strcmp(b->provider, "shm") == 0)
        conform_skip("shared memory has no door to the network");
    if (b->profile)
        conform_skip("the strict provider is reached by files alone");
    before = doors("127.0.0.1");
    if (strcmp(b->module, "tcp") != 0)
        must_refuse(b, "127.0.0.1", before);
    CHECK(try_open(b, "127.0.0.1", strcmp(b->module, "tcp") != 0, &t, &err) == 0);
    CHECK(doors("127.0.0.1") > before);
    t->ops->close(t);
    find_address(address);
    if (!address[0]) {
        printf("this machine has no address but loopback: no other was tried\n");
        return;
    }
    if (b->keyed) { /* strangers come no further than its own hello */
        CHECK(try_open(b, address, 0, &t, &err) == 0);
        CHECK(doors(address) > before);
        t->ops->close(t);
    } else {
        must_refuse(b, address, before);
    }
    CHECK(try_open(b, address, 1, &t, &err) == 0);
    CHECK(doors(address) > before);
    t->ops->close(t);
}
