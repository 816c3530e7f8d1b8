/* SPDX-License-Identifier: Apache-2.0 */
/* Guests: accepted, challenged, and admitted once they have proved the key. */
#include "door.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define PATIENCE_MS 50u /* that a guest has even where others wait for its buffer */
#define ACCEPTS     64u /* then those inside have their turn */

static void guest_leaves(struct hth_guest *g)
{
    hth_watch_end(&g->watch);
    g->door->guests--;
}

static struct hth_guest *guest_oldest(struct hth_door *d)
{
    struct hth_guest *oldest = NULL;

    for (struct hth_guest *g = d->guest; g < d->guest + HTH_GUESTS; g++)
        if (g->watch.fd >= 0 && (!oldest || g->since_ms < oldest->since_ms))
            oldest = g;
    return oldest;
}

static int guest_makes_way(struct hth_door *d)
{
    struct hth_guest *oldest = guest_oldest(d);

    if (!oldest || d->m->now_ms - oldest->since_ms < PATIENCE_MS)
        return 0;
    guest_leaves(oldest);
    return 1;
}

/* A whole greeting is here. */
static void guest_admit(struct hth_guest *g)
{
    struct hth_door *d = g->door;
    struct hth_proving proving;
    struct hth_greeting hello;
    int fd = g->watch.fd;

    if (hth_greeting_decode(&hello, g->talk.greeting)) {
        guest_leaves(g);
        return;
    }
    /* A greeting without a length takes leave: one of the sides has a key, and the other none. */
    if (!hello.len || !hth_greeting_holds(&g->talk, &d->m->keys, &proving)) {
        d->unproved++;
        hth_place_text(fd, 0, d->unproved_from);
        guest_leaves(g);
        return;
    }
    g->watch.fd = -1;
    d->guests--;
    hth_place_keep_alive(fd);
    d->owner.admit(d->owner.self, fd, g->own, &hello, &proving);
    hth_wipe(&proving, sizeof(proving));
}

static void guest_stir(struct hth_watch *w, uint32_t events)
{
    struct hth_guest *g = (struct hth_guest *)w;
    ssize_t n = recv(w->fd, g->talk.greeting + g->got, HTH_GREETING - g->got, MSG_DONTWAIT);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        guest_leaves(g);
        return;
    }
    g->got += (size_t)n;
    if (g->got == HTH_GREETING)
        guest_admit(g);
}

static void guest_place(struct hth_door *d, int fd, int own)
{
    struct hth_guest *g = d->guest;
    int yes = 1;

    while (g->watch.fd >= 0)
        g++;
    *g = (struct hth_guest){
        .watch = { .fd = fd, .stir = guest_stir }, .door = d, .since_ms = d->m->now_ms, .own = own
    };
    d->guests++;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    hth_challenge_make(g->talk.challenge, &d->m->keys);
    if (send(fd, g->talk.challenge, HTH_CHALLENGE, MSG_NOSIGNAL | MSG_DONTWAIT) != HTH_CHALLENGE ||
            hth_watch_add(d->m->epoll, &g->watch, EPOLLIN))
        guest_leaves(g);
}

/* 1: accepted, try the next; 0: no connection waits; -1: one waits and there is no buffer
 * or descriptor for it. */
static int door_let_one_in(struct hth_door *d, int listener)
{
    int fd;

    if (d->guests == HTH_GUESTS && !guest_makes_way(d))
        return -1;
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        guest_place(d, fd, 0);
        return 1;
    }
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
        return errno != EAGAIN;
    if ((errno == EMFILE || errno == ENFILE) && !d->guests)
        d->owner.full(d->owner.self, errno);
    return guest_makes_way(d) ? 1 : -1;
}

static void listener_stir(struct hth_watch *w, uint32_t events)
{
    struct hth_door *d = ((struct hth_listener *)w)->self;
    const struct hth_guest *oldest;
    int more = 1;

    (void)events;
    for (uint32_t i = 0; i < ACCEPTS && more > 0; i++)
        more = door_let_one_in(d, w->fd);
    if (more >= 0)
        return;
    oldest = guest_oldest(d);
    d->rest_till_ms = (oldest ? oldest->since_ms : d->m->now_ms) + PATIENCE_MS;
}

void hth_door_init(struct hth_door *d, struct hth_meeting *m, const struct hth_door_owner *owner,
        const struct hth_meeting_place *place)
{
    d->m = m;
    d->owner = *owner;
    d->listening.place = place;
    for (uint32_t i = 0; i < HTH_GUESTS; i++)
        d->guest[i].watch.fd = -1;
}

int hth_door_open(struct hth_door *d, struct hearth_error *err)
{
    const struct hth_meeting_keys *k = &d->m->keys;
    struct hth_listening *l = &d->listening;
    unsigned open = 0;

    if (k->keyed || k->trusted)
        hth_listen_wider(l);
    for (unsigned i = 0; i < l->count; i++) {
        struct hth_listener *at = &l->at[i];

        at->self = d;
        at->watch.stir = listener_stir;
        at->shut = hth_place_check(k, l->place->host, at->watch.fd, 1, err) != 0;
        if (!at->shut && hth_watch_add(d->m->epoll, &at->watch, EPOLLIN))
            return hth_fail(err, HEARTH_ENOMEM, errno, "rank 0 cannot wait for other ranks");
        open += !at->shut;
    }
    d->is_open = 1;
    return open ? HEARTH_OK : HEARTH_EINVAL;
}

void hth_door_let_in(struct hth_door *d, int fd)
{
    guest_place(d, fd, 1);
}

void hth_door_tick(struct hth_door *d, int open)
{
    struct hth_guest *oldest;

    while ((oldest = guest_oldest(d)) && d->m->now_ms - oldest->since_ms >= HTH_HALF_MS)
        guest_leaves(oldest);
    open = open && d->m->now_ms >= d->rest_till_ms;
    if (open == d->is_open)
        return;
    for (unsigned i = 0; i < d->listening.count; i++)
        if (!d->listening.at[i].shut)
            hth_watch_change(d->m->epoll, &d->listening.at[i].watch, open ? (uint32_t)EPOLLIN : 0u);
    d->is_open = open;
}

uint64_t hth_door_due_ms(const struct hth_door *d)
{
    uint64_t due = d->rest_till_ms > d->m->now_ms ? d->rest_till_ms : HTH_NEVER;

    for (const struct hth_guest *g = d->guest; g < d->guest + HTH_GUESTS; g++)
        if (g->watch.fd >= 0 && g->since_ms + HTH_HALF_MS < due)
            due = g->since_ms + HTH_HALF_MS;
    return due;
}

void hth_door_shut(struct hth_door *d)
{
    hth_listen_end(&d->listening);
}

void hth_door_close(struct hth_door *d)
{
    hth_door_shut(d);
    for (struct hth_guest *g = d->guest; g < d->guest + HTH_GUESTS; g++)
        if (g->watch.fd >= 0)
            guest_leaves(g);
}
