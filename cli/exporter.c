/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exporter: what `hearth metrics` prints, over HTTP. One thread: the library's sockets and the
 * signals that end it are waited for together. A request asks all engines anew, for 2 s at most;
 * others wait meanwhile, and no more than CONNECTIONS are accepted.
 */
#include "metrics.h"

#ifndef HEARTH_MICROHTTPD

enum status run_exporter(const struct args *a)
{
    (void)a;
    return complain(&(struct hearth_error){ HEARTH_EIO, 0,
            "this hearth was built without libmicrohttpd, so it serves nothing: use hearth metrics "
            "with the textfile collector, or build it where libmicrohttpd-dev is installed" });
}

#else

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN      "127.0.0.1:9742"
#define CONNECTIONS 16u
#define IDLE_S      3u /* a connection that sends nothing is closed: a scrape waits for 10 s */
#define LOOK_MS     1000

/* ---- Requests -------------------------------------------------------------------------------- */

static enum MHD_Result exporter_answer(
        struct MHD_Connection *to, unsigned code, const char *type, const char *text)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
            strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result rc;

    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    rc = MHD_queue_response(to, code, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result exporter_metrics(struct MHD_Connection *to, const char *root)
{
    const char *accepts = MHD_lookup_connection_value(to, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    int openmetrics = accepts && strstr(accepts, "application/openmetrics-text");
    struct hearth_error err = { 0 };
    char *text = metrics_text(root, NULL, 0, openmetrics, &err);
    enum MHD_Result rc;

    if (!text) {
        note("%s", err.text);
        return exporter_answer(to, MHD_HTTP_INTERNAL_SERVER_ERROR, "text/plain", err.text);
    }
    rc = exporter_answer(to, MHD_HTTP_OK,
            openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                        : "text/plain; version=0.0.4; charset=utf-8",
            text);
    free(text);
    return rc;
}

static enum MHD_Result exporter_serve(void *root, struct MHD_Connection *to, const char *url,
        const char *method, const char *version, const char *sent, size_t *sent_len, void **seen)
{
    static int once;

    (void)version, (void)sent;
    if (!*seen) { /* the header alone is here: an answer now would end the connection */
        *seen = &once;
        return MHD_YES;
    }
    *sent_len = 0; /* a body is read and ignored */
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return exporter_answer(to, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", "GET or HEAD\n");
    if (!strcmp(url, "/metrics"))
        return exporter_metrics(to, root);
    if (!strcmp(url, "/healthz"))
        return exporter_answer(to, MHD_HTTP_OK, "text/plain", "ok\n");
    return exporter_answer(to, MHD_HTTP_NOT_FOUND, "text/plain", "/metrics or /healthz\n");
}

/* ---- Where it listens ------------------------------------------------------------------------ */

struct place_at {
    int fd;
    char unix_path[108]; /* to be removed at the end; "": none */
};

static int exporter_failed(const char *at, struct hearth_error *err)
{
    return hth_fail(
            err, HEARTH_EIO, errno, "cannot listen on %.200s: %s", at, strerrordesc_np(errno));
}

/* 1: a socket lies there, and no process listens on it. connect() refuses a file, too. */
static int exporter_is_left(int fd, const struct sockaddr_un *a)
{
    struct stat st;

    return !lstat(a->sun_path, &st) && S_ISSOCK(st.st_mode) &&
           connect(fd, (const void *)a, sizeof(*a)) && errno == ECONNREFUSED;
}

/* A socket that a dead exporter has left is replaced; one that answers is another exporter's. */
static int exporter_listen_unix(const char *at, struct place_at *out, struct hearth_error *err)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    mode_t before;
    int rc;

    if (!at[0] || strlen(at) >= sizeof(a.sun_path)) /* "": any process could connect */
        return hth_fail(err, HEARTH_EINVAL, 0, "the path of a socket has 1 to 107 bytes");
    memcpy(a.sun_path, at, strlen(at));
    out->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (out->fd >= 0 && exporter_is_left(out->fd, &a))
        unlink(at);
    before = umask(0117);
    rc = out->fd < 0 || bind(out->fd, (const void *)&a, sizeof(a)) ||
         listen(out->fd, (int)CONNECTIONS);
    umask(before);
    if (rc)
        return exporter_failed(at, err);
    memcpy(out->unix_path, a.sun_path, sizeof(out->unix_path));
    printf("listening on unix:%s\n", at);
    return HEARTH_OK;
}

static void exporter_say_port(int fd)
{
    struct sockaddr_storage a = { 0 };
    socklen_t len = sizeof(a);
    char host[64], port[16];

    getsockname(fd, (void *)&a, &len);
    getnameinfo((const void *)&a, len, host, sizeof(host), port, sizeof(port),
            NI_NUMERICHOST | NI_NUMERICSERV);
    printf(a.ss_family == AF_INET6 ? "listening on [%s]:%s\n" : "listening on %s:%s\n", host, port);
}

/* at: HOST:PORT, with brackets around an IPv6 address. */
static int exporter_listen_tcp(const char *at, struct place_at *out, struct hearth_error *err)
{
    struct addrinfo want = { .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE };
    const char *colon = strrchr(at, ':');
    size_t len = colon ? (size_t)(colon - at) : 0, bracket = at[0] == '[';
    struct addrinfo *found = NULL;
    char host[64] = "", *end;
    unsigned long port;
    int on = 1, rc;

    if (len < 1 + 2 * bracket || len >= sizeof(host) || (bracket && colon[-1] != ']'))
        return hth_fail(err, HEARTH_EINVAL, 0, "'%.64s' is neither HOST:PORT nor unix:PATH", at);
    memcpy(host, at + bracket, len - 2 * bracket);
    port = strtoul(colon + 1, &end, 10); /* the C library takes it modulo 65536 */
    if (!colon[1] || *end || port > 65535 || getaddrinfo(host, colon + 1, &want, &found))
        return hth_fail(err, HEARTH_EINVAL, 0, "'%.64s' is neither HOST:PORT nor unix:PATH", at);
    out->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    rc = out->fd < 0 || setsockopt(out->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
         bind(out->fd, found->ai_addr, found->ai_addrlen) || listen(out->fd, (int)CONNECTIONS);
    freeaddrinfo(found);
    if (rc)
        return exporter_failed(at, err);
    exporter_say_port(out->fd);
    return HEARTH_OK;
}

static int exporter_listen(const char *at, struct place_at *out, struct hearth_error *err)
{
    int rc = strncmp(at, "unix:", 5) ? exporter_listen_tcp(at, out, err)
                                     : exporter_listen_unix(at + 5, out, err);

    fflush(stdout); /* a script waits for the line */
    return rc;
}

/* ---- The loop -------------------------------------------------------------------------------- */

static int exporter_signals(void)
{
    sigset_t ends;

    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &ends, SFD_CLOEXEC);
}

static int exporter_run(struct MHD_Daemon *d, int signals, struct hearth_error *err)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(d, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd p[] = { { .fd = info ? info->epoll_fd : -1, .events = POLLIN },
        { .fd = signals, .events = POLLIN } };
    MHD_UNSIGNED_LONG_LONG ms;

    /* After CONNECTIONS were open, the library looks for those that wait to be accepted at its next
     * run only, and no descriptor reports them: so it runs once a second at least. */
    while (p[0].fd >= 0 && signals >= 0) {
        int timed = MHD_get_timeout(d, &ms) == MHD_YES && ms < LOOK_MS;

        if (poll(p, 2, timed ? (int)ms : LOOK_MS) < 0 && errno != EINTR)
            break;
        if (p[1].revents)
            return HEARTH_OK;
        MHD_run(d);
    }
    return hth_fail(err, HEARTH_EIO, errno, "the exporter cannot wait for requests");
}

static int exporter_open_and_run(const char *root, struct place_at *at, struct hearth_error *err)
{
    int signals = exporter_signals(), rc;
    struct MHD_Daemon *d = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, exporter_serve,
            (void *)(uintptr_t)root, MHD_OPTION_LISTEN_SOCKET, at->fd, MHD_OPTION_CONNECTION_LIMIT,
            CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
            (size_t)32768, MHD_OPTION_END);

    rc = d ? exporter_run(d, signals, err)
           : hth_fail(err, HEARTH_EIO, errno, "libmicrohttpd does not start");
    if (d) {
        at->fd = -1; /* is the library's */
        MHD_stop_daemon(d);
    }
    if (signals >= 0)
        close(signals);
    return rc;
}

enum status run_exporter(const struct args *a)
{
    struct place_at at = { .fd = -1 };
    struct hearth_error err = { 0 };
    int rc;

    if (!a->root)
        return complain_usage("exporter: which root? give --root or HEARTH_ROOT");
    rc = exporter_listen(a->listen ? a->listen : LISTEN, &at, &err);
    rc = rc ? rc : exporter_open_and_run(a->root, &at, &err);
    if (at.fd >= 0)
        close(at.fd);
    if (at.unix_path[0])
        unlink(at.unix_path);
    return rc ? complain(&err) : STATUS_OK;
}

#endif
