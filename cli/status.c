/* SPDX-License-Identifier: Apache-2.0 */
/* One question to a running engine, which answers anybody of its user without an attach. */
#include "cli.h"

#include "core/base/file.h"
#include "core/local/local.h"
#include "core/local/packet.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define WAIT_MS    2000
#define STATUS_MAX (1 << 20)

static int status_dial(const char *job_dir)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    char records[4096];
    int dir, fd;

    snprintf(records, sizeof(records), "%.4000s/" HTH_RECORDS_DIR, job_dir);
    dir = open(records, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -1;
    if (snprintf(a.sun_path, sizeof(a.sun_path), "%s/sock", records) >= (int)sizeof(a.sun_path))
        snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/sock", dir);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof(a))) {
        close(fd);
        fd = -1;
    }
    close(dir);
    return fd;
}

/* The answer's descriptor; -1: none. */
static int status_ask(int sock)
{
    struct hth_local_head head = { .length = sizeof(head), .type = HTH_LOCAL_STATUS, .request = 1 };
    unsigned char packet[HTH_LOCAL_MAX];
    struct pollfd p = { .fd = sock, .events = POLLIN };
    size_t len;
    int fd = -1;

    if (hth_packet_put(sock, &head, sizeof(head), -1) || poll(&p, 1, WAIT_MS) <= 0)
        return -1;
    return hth_packet_receive(sock, packet, &len, &fd) == HTH_PACKET_GOT ? fd : -1;
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

char *engine_status(const char *job_dir)
{
    int sock = status_dial(job_dir), fd = sock < 0 ? -1 : status_ask(sock);
    char *text = fd < 0 ? NULL : status_text(fd);

    if (fd >= 0)
        close(fd);
    if (sock >= 0)
        close(sock);
    return text;
}
