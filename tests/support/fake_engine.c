/* SPDX-License-Identifier: Apache-2.0 */
/* See fake_engine.h. One thread, one lock; everything is decided at once. */
#include "fake_parts.h"

#include "core/base/auth.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- the thread ----------------------------------------------------------------------------- */

static void client_gone(struct fake_engine *f, struct client *c)
{
    close(c->fd);
    for (int i = 0; i < LEASES; i++)
        if (f->lease[i].client == c)
            f->lease[i].id = 0;
    memset(c, 0, sizeof(*c));
    c->fd = -1;
    f->counts.clients--;
}

static void hear(struct fake_engine *f, struct client *c)
{
    static _Thread_local uint64_t packet[HTH_LOCAL_MAX / 8];
    struct iovec iov = { packet, sizeof(packet) };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
    };
    ssize_t n = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *got = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    int fd = -1;

    if (n < 0 && (errno == EAGAIN || errno == ECONNRESET))
        return; /* reset: it closed and left answers unread; what it sent is still to be read */
    if (got)
        memcpy(&fd, CMSG_DATA(got), sizeof(fd));
    if (n <= 0)
        client_gone(f, c);
    else
        fake_answer(f, c, packet, fd);
    if (fd >= 0)
        close(fd);
}

static void welcome(struct fake_engine *f)
{
    int fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);

    for (int i = 0; fd >= 0 && i < CLIENTS; i++)
        if (f->client[i].fd < 0) {
            f->client[i].fd = fd;
            f->counts.clients++;
            return;
        }
    if (fd >= 0)
        close(fd);
}

static void *run(void *arg)
{
    struct fake_engine *f = arg;

    for (;;) {
        struct pollfd p[CLIENTS + 2];

        pthread_mutex_lock(&f->lock);
        for (int i = 0; i < CLIENTS; i++)
            p[i] = (struct pollfd){ .fd = f->client[i].fd, .events = POLLIN };
        p[CLIENTS] = (struct pollfd){ .fd = f->listener, .events = POLLIN };
        p[CLIENTS + 1] = (struct pollfd){ .fd = f->wake, .events = POLLIN };
        pthread_mutex_unlock(&f->lock);
        poll(p, CLIENTS + 2, 1000);
        pthread_mutex_lock(&f->lock);
        if (f->stop) {
            pthread_mutex_unlock(&f->lock);
            return NULL;
        }
        if (p[CLIENTS + 1].revents) {
            uint64_t v;

            if (read(f->wake, &v, sizeof(v)) < 0)
                f->stop = f->stop; /* woken already */
        }
        for (int i = 0; i < CLIENTS; i++)
            if (p[i].revents && f->client[i].fd == p[i].fd)
                hear(f, &f->client[i]);
        if (p[CLIENTS].revents && f->listener == p[CLIENTS].fd)
            welcome(f);
        pthread_mutex_unlock(&f->lock);
    }
}

static int listen_there(const struct fake_engine *f)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int dir = open(f->dir, O_PATH | O_CLOEXEC),
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/sock", dir);
    unlink(a.sun_path);
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 64)) {
        close(fd);
        fd = -1;
    }
    close(dir);
    return fd;
}

static void wake(struct fake_engine *f)
{
    uint64_t one = 1;

    if (write(f->wake, &one, sizeof(one)) < 0)
        abort();
}

struct fake_engine *fake_start(const char *root, const char *job)
{
    struct fake_engine *f = calloc(1, sizeof(*f));

    f->client = calloc(CLIENTS, sizeof(*f->client));
    snprintf(f->dir, sizeof(f->dir), "%s/%s", root, job);
    mkdir(f->dir, 0700);
    snprintf(f->dir, sizeof(f->dir), "%s/%s/" HTH_RECORDS_DIR, root, job);
    mkdir(f->dir, 0700);
    for (int i = 0; i < CLIENTS; i++)
        f->client[i].fd = -1;
    for (int i = 0; i < SLOTS; i++)
        f->slot[i].fd = -1;
    pthread_mutex_init(&f->lock, NULL);
    f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    f->listener = listen_there(f);
    hth_auth_init(NULL);
    if (f->listener < 0 || pthread_create(&f->thread, NULL, run, f))
        abort();
    return f;
}

void fake_crash(struct fake_engine *f)
{
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < CLIENTS; i++)
        if (f->client[i].fd >= 0)
            client_gone(f, &f->client[i]);
    close(f->listener);
    f->listener = -1;
    f->tokens = 0;
    f->leases = 0;
    f->counts.leases = 0;
    wake(f);
    pthread_mutex_unlock(&f->lock);
}

void fake_back(struct fake_engine *f)
{
    pthread_mutex_lock(&f->lock);
    f->listener = listen_there(f);
    wake(f);
    pthread_mutex_unlock(&f->lock);
}

void fake_stop(struct fake_engine *f)
{
    if (!f)
        return;
    fake_crash(f);
    pthread_mutex_lock(&f->lock);
    f->stop = 1;
    wake(f);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    for (int i = 0; i < SAVES; i++)
        fake_free_save(f, &f->save[i]);
    for (int i = 0; i < SLOTS; i++)
        if (f->slot[i].fd >= 0) {
            munmap(f->slot[i].base, f->slot[i].cap);
            close(f->slot[i].fd);
        }
    close(f->wake);
    pthread_mutex_destroy(&f->lock);
    free(f->client);
    free(f);
}

void fake_key(struct fake_engine *f, const unsigned char *key)
{
    pthread_mutex_lock(&f->lock);
    memcpy(f->key, key, sizeof(f->key));
    f->has_key = 1;
    pthread_mutex_unlock(&f->lock);
}

void fake_refuse(struct fake_engine *f, uint32_t type, int code, const char *text)
{
    pthread_mutex_lock(&f->lock);
    f->refuse = type;
    f->refuse_code = code;
    snprintf(f->refuse_text, sizeof(f->refuse_text), "%s", text);
    pthread_mutex_unlock(&f->lock);
}

void fake_silence(struct fake_engine *f, uint32_t type)
{
    pthread_mutex_lock(&f->lock);
    f->silence = type;
    pthread_mutex_unlock(&f->lock);
}

void fake_map_late(struct fake_engine *f)
{
    pthread_mutex_lock(&f->lock);
    fake_answer_map(f, f->asker, &f->unanswered);
    pthread_mutex_unlock(&f->lock);
}

void fake_hold(struct fake_engine *f, enum hearth_level level)
{
    pthread_mutex_lock(&f->lock);
    f->hold = level;
    for (int i = 0; !level && i < SAVES; i++)
        if (f->save[i].used && f->save[i].world_done && !f->save[i].code)
            fake_advance(f, i);
    pthread_mutex_unlock(&f->lock);
}

void fake_cancel_all(struct fake_engine *f, const char *why)
{
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < SAVES; i++)
        if (f->save[i].used && f->save[i].level < HEARTH_PROTECTED)
            fake_fail_save(f, i, why);
    pthread_mutex_unlock(&f->lock);
}

void fake_let_go(struct fake_engine *f, uint64_t slot)
{
    struct hth_local_let_go m = { .slot = slot };

    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < CLIENTS; i++)
        if (f->client[i].fd >= 0)
            fake_put(f->client[i].fd, &m, sizeof(m), HTH_LOCAL_LET_GO, 0, 0, -1);
    pthread_mutex_unlock(&f->lock);
}

void fake_remote(struct fake_engine *f, int remote)
{
    pthread_mutex_lock(&f->lock);
    f->remote = remote;
    pthread_mutex_unlock(&f->lock);
}

void fake_without_sums(struct fake_engine *f)
{
    pthread_mutex_lock(&f->lock);
    f->without_sums = 1;
    pthread_mutex_unlock(&f->lock);
}

void fake_gather(struct fake_engine *f, uint32_t count)
{
    pthread_mutex_lock(&f->lock);
    f->gather = count < OBJECTS ? count : OBJECTS;
    f->waiting = 0;
    pthread_mutex_unlock(&f->lock);
}

void fake_flip(struct fake_engine *f, int count)
{
    pthread_mutex_lock(&f->lock);
    f->flip = count;
    pthread_mutex_unlock(&f->lock);
}

void fake_cut(struct fake_engine *f, int count)
{
    pthread_mutex_lock(&f->lock);
    f->cut = count;
    pthread_mutex_unlock(&f->lock);
}

void fake_runs(struct fake_engine *f, uint32_t runs)
{
    pthread_mutex_lock(&f->lock);
    f->runs = runs;
    pthread_mutex_unlock(&f->lock);
}

void fake_strong(struct fake_engine *f)
{
    pthread_mutex_lock(&f->lock);
    f->strong = 1;
    pthread_mutex_unlock(&f->lock);
}

void fake_forge(struct fake_engine *f, int count)
{
    pthread_mutex_lock(&f->lock);
    f->forge = count;
    pthread_mutex_unlock(&f->lock);
}

/* No client has sent a message that the engine has not read yet. */
static int is_quiet(struct fake_engine *f)
{
    struct pollfd p[CLIENTS];

    for (int i = 0; i < CLIENTS; i++)
        p[i] = (struct pollfd){ .fd = f->client[i].fd, .events = POLLIN };
    return poll(p, CLIENTS, 0) <= 0;
}

struct fake_counts fake_counts(struct fake_engine *f)
{
    struct fake_counts counts;
    int quiet = 0;

    for (int i = 0; i < 2000 && !quiet; i++) {
        pthread_mutex_lock(&f->lock);
        quiet = is_quiet(f);
        counts = f->counts;
        pthread_mutex_unlock(&f->lock);
        if (!quiet)
            usleep(1000);
    }
    return counts;
}
