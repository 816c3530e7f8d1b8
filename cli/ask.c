/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a running engine without an attach, which it answers to each process of its user:
 * its status, and wishes for the saves that it keeps. */
#include "cli.h"

#include "core/base/file.h"
#include "core/base/open.h"
#include "core/local/local.h"
#include "core/local/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_MS    2000
#define ELSE_MS    3000 /* longer than the engine waits for another one */
#define AT_ONCE    16u
#define WISH_MS    30000 /* longer than the engine waits for its coordinator */
#define UPGRADE_MS 60000 /* longer than a trial, and the wait for a recovery */
#define STATUS_MAX (1 << 20)

/* A socket, or a negative errno. */
static int status_dial(int job)
{
    int records = hth_open_below(job, HTH_RECORDS_DIR, O_PATH | O_DIRECTORY, 0), fd = -1, why;

    if (records < 0)
        return -errno;
    why = hth_packet_dial(records, &fd);
    close(records);
    return why ? -why : fd;
}

/* The answer's descriptor; -1: none, and *err is the engine's own sentence where that is why. */
static int status_take(int sock, int wait_ms, struct hearth_error *err)
{
    _Alignas(8) unsigned char packet[HTH_LOCAL_MAX];
    const struct hth_local_error *e = (const void *)packet;
    struct pollfd p = { .fd = sock, .events = POLLIN };
    size_t len;
    int fd = -1;

    hth_fail(err, HEARTH_EENGINE, 0, "the engine does not answer");
    if (poll(&p, 1, wait_ms) <= 0 || hth_packet_receive(sock, packet, &len, &fd) != HTH_PACKET_GOT)
        return -1;
    if (fd < 0 && e->head.type == HTH_LOCAL_ERROR && len >= sizeof(*e))
        hth_fail(err, e->code, 0, "%.*s", (int)sizeof(e->text) - 1, e->text);
    return fd;
}

static char *status_text(int fd)
{
    void *text;
    size_t len;

    if (hth_file_read(fd, STATUS_MAX, &text, &len))
        return NULL;
    if (!len) {
        free(text);
        return NULL;
    }
    return text;
}

static char *engine_take(int sock, int wait_ms, struct hearth_error *err)
{
    struct hearth_error cause;
    int fd = status_take(sock, wait_ms, &cause);
    char *text = fd < 0 ? NULL : status_text(fd);

    if (!text && err)
        *err = cause;
    if (fd >= 0)
        close(fd);
    close(sock);
    return text;
}

static char *engine_bytes(
        int job, const void *request, size_t len, int wait_ms, struct hearth_error *err)
{
    int sock = status_dial(job);

    if (sock < 0) {
        hth_fail(err, HEARTH_ENOENT, 0, "no engine runs on this job");
        return NULL;
    }
    /* an engine that does not read gives no answer either */
    (void)hth_packet_put(sock, request, len, -1);
    return engine_take(sock, wait_ms, err);
}

char *engine_status(int job)
{
    struct hth_local_head m = { .length = sizeof(m), .type = HTH_LOCAL_STATUS, .request = 1 };

    return engine_bytes(job, &m, sizeof(m), WAIT_MS, NULL);
}

char *engine_history(int job, uint32_t what, uint32_t skip, struct hearth_error *err)
{
    struct hth_local_history m = {
        .head = { sizeof(m), HTH_LOCAL_HISTORY, 1, 0 }, .what = what, .skip = skip
    };

    return engine_bytes(job, &m, sizeof(m), WAIT_MS, err);
}

char *engine_events(int job, uint32_t skip, struct hearth_error *err)
{
    struct hth_local_history m = { .head = { sizeof(m), HTH_LOCAL_EVENTS, 1, 0 }, .skip = skip };

    return engine_bytes(job, &m, sizeof(m), WAIT_MS, err);
}

int engine_metrics_ask(int job)
{
    struct hth_local_head m = { .length = sizeof(m), .type = HTH_LOCAL_METRICS, .request = 1 };
    int sock = status_dial(job), why = sock < 0 ? 0 : hth_packet_put(sock, &m, sizeof(m), -1);

    if (why)
        close(sock);
    return why ? -why : sock;
}

char *engine_metrics_take(int sock, int wait_ms)
{
    return engine_take(sock, wait_ms, NULL);
}

char *engine_places(int job, uint32_t skip, struct hearth_error *err)
{
    struct hth_local_history m = { .head = { sizeof(m), HTH_LOCAL_PLACES, 1, 0 }, .skip = skip };

    return engine_bytes(job, &m, sizeof(m), WAIT_MS, err);
}

char *engine_log_level(int job, uint32_t level, struct hearth_error *err)
{
    struct hth_local_log_level m = { .head = { sizeof(m), HTH_LOCAL_LOG_LEVEL, 1, 0 },
        .level = level };

    return engine_bytes(job, &m, sizeof(m), WAIT_MS, err);
}

char *engine_nodes(int job, uint32_t skip, struct hearth_error *err)
{
    struct hth_local_nodes m = { .head = { sizeof(m), HTH_LOCAL_NODES, 1, 0 }, .skip = skip };

    return engine_bytes(job, &m, sizeof(m), WAIT_MS, err);
}

/* ---- Other members --------------------------------------------------------------------------- */

char *engine_elsewhere(int job, uint32_t member, const char *node, uint32_t type, uint32_t what,
        uint32_t skip, struct hearth_error *err)
{
    struct hth_local_elsewhere m = { .head = { sizeof(m), HTH_LOCAL_ELSEWHERE, 1, 0 },
        .node = member,
        .type = type,
        .what = what,
        .skip = skip };

    snprintf(m.name, sizeof(m.name), "%.64s", node);
    return engine_bytes(job, &m, sizeof(m), ELSE_MS, err);
}

static int everywhere_say(int sock, const struct everywhere *e, uint32_t member)
{
    struct hth_local_elsewhere m = { .head = { sizeof(m), HTH_LOCAL_ELSEWHERE, UINT64_C(1) + member,
                                             0 },
        .node = member,
        .type = e->type,
        .what = e->what,
        .skip = e->skip };

    return hth_packet_put(sock, &m, sizeof(m), -1);
}

/* One answer, with the number of its member; 0: none came. */
static int everywhere_hear(int sock, const struct everywhere *e)
{
    _Alignas(8) unsigned char packet[HTH_LOCAL_MAX];
    const struct hth_local_error *m = (const void *)packet;
    struct pollfd p = { .fd = sock, .events = POLLIN };
    struct hearth_error err;
    char *text = NULL;
    size_t len;
    int fd = -1;

    if (poll(&p, 1, ELSE_MS) <= 0 ||
            hth_packet_receive(sock, packet, &len, &fd) != HTH_PACKET_GOT || len < sizeof(m->head))
        return 0;
    hth_fail(&err, HEARTH_EPROTO, 0, "the engine's answer cannot be read");
    if (fd >= 0) {
        text = status_text(fd);
        close(fd);
    } else if (m->head.type == HTH_LOCAL_ERROR && len >= sizeof(*m)) {
        hth_fail(&err, m->code, 0, "%.*s", (int)sizeof(m->text) - 1, m->text);
    }
    if (m->head.request && m->head.request <= e->members)
        e->heard(e->self, (uint32_t)(m->head.request - 1), text, text ? NULL : &err);
    free(text);
    return 1;
}

int engine_everywhere(int job, const struct everywhere *e, struct hearth_error *err)
{
    uint32_t said = 0, heard = 0;
    int sock = status_dial(job), rc = HEARTH_OK;

    if (sock < 0)
        return hth_fail(err, HEARTH_ENOENT, 0, "no engine runs on this job");
    while (!rc && heard < e->members) {
        while (!rc && said < e->members && said - heard < AT_ONCE)
            rc = everywhere_say(sock, e, said++);
        rc = rc || !everywhere_hear(sock, e);
        heard++;
    }
    close(sock);
    return rc ? hth_fail(err, HEARTH_EENGINE, 0, "the engine does not answer") : HEARTH_OK;
}

/* ---- Wishes ---------------------------------------------------------------------------------- */

/* OK, or the engine's own sentence. */
static int wish_answer(int sock, int wait_ms, struct hearth_error *err)
{
    _Alignas(8) unsigned char packet[HTH_LOCAL_MAX];
    const struct hth_local_error *e = (const void *)packet;
    struct pollfd p = { .fd = sock, .events = POLLIN };
    size_t len = 0;
    int fd = -1;

    if (poll(&p, 1, wait_ms) <= 0 || hth_packet_receive(sock, packet, &len, &fd) != HTH_PACKET_GOT)
        return hth_fail(err, HEARTH_EENGINE, 0, "the engine does not answer");
    if (fd >= 0)
        close(fd);
    if (e->head.type == HTH_LOCAL_ERROR && len >= sizeof(*e))
        return hth_fail(err, e->code, 0, "%.*s", (int)sizeof(e->text) - 1, e->text);
    return e->head.type == HTH_LOCAL_OK
                   ? HEARTH_OK
                   : hth_fail(err, HEARTH_EPROTO, 0, "the engine answers something else");
}

static int wish_ask(int job, const void *request, size_t len, int wait_ms, struct hearth_error *err)
{
    int sock = status_dial(job), rc;

    if (sock < 0)
        return hth_fail(err, HEARTH_ENOENT, 0, "no engine runs on this job");
    rc = hth_packet_put(sock, request, len, -1)
                 ? hth_fail(err, HEARTH_EENGINE, 0, "the engine does not listen")
                 : wish_answer(sock, wait_ms, err);
    close(sock);
    return rc;
}

int engine_wish(int job, uint32_t wish, uint64_t step, struct hearth_error *err)
{
    struct hth_local_wish m = {
        .head = { sizeof(m), HTH_LOCAL_WISH, 1, 0 }, .save = { .step = step }, .wish = wish
    };

    return wish_ask(job, &m, sizeof(m), WISH_MS, err);
}

int engine_upgrade(int job, struct hearth_error *err)
{
    struct hth_local_head m = { .length = sizeof(m), .type = HTH_LOCAL_UPGRADE, .request = 1 };

    return wish_ask(job, &m, sizeof(m), UPGRADE_MS, err);
}
