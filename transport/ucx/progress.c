/* SPDX-License-Identifier: Apache-2.0 */
/* One turn: UCX's progress, then what its notes ask for. And what to wait for until the next
 * turn. */
#include "ucx.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define PROGRESS_ROUNDS 64 /* of UCX's own before ours, so that neither waits for long */

#define OWNER(event, type, member) \
    ((type *)(void *)((unsigned char *)(event)-offsetof(type, member)))

static void note_run(struct hth_ucx *t, struct hth_ucx_event *e)
{
    struct hth_ucx_request *request;

    switch (e->kind) {
    case HTH_UCX_REQUEST:
        request = OWNER(e, struct hth_ucx_request, event);
        hth_ucx_conn_accept(t, request->request);
        free(request);
        break;
    case HTH_UCX_INBOUND:
        hth_ucx_received(t, OWNER(e, struct hth_ucx_inbound, event));
        break;
    case HTH_UCX_WRITABLE:
        hth_ucx_writable(t, OWNER(e, struct hth_ucx_conn, writable));
        break;
    case HTH_UCX_PULLED:
        hth_ucx_pulled(OWNER(e, struct hth_ucx_pull, event));
        break;
    case HTH_UCX_SERVED:
        hth_ucx_served(t, OWNER(e, struct hth_ucx_packet, event));
        break;
    case HTH_UCX_DOWN:
        hth_ucx_conn_down(t, OWNER(e, struct hth_ucx_conn, down));
        break;
    }
}

/* Only the notes there are now: those that callbacks add have their turn in the next call. */
int hth_ucx_events_run(struct hth_ucx *t)
{
    struct hth_ucx_event *e = hth_ucx_notes_take(t);
    int done = 0;

    while (e) {
        struct hth_ucx_event *next = e->next;

        note_run(t, e);
        done++;
        e = next;
    }
    return done;
}

int hth_ucx_progress(struct hth_transport *base)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    uint64_t woken;
    int done = 0;

    if (read(t->wake_fd, &woken, sizeof(woken)) > 0)
        done++;
    for (int i = 0; i < PROGRESS_ROUNDS; i++) {
        if (!ucp_worker_progress(t->worker))
            break;
        done++;
    }
    done += hth_ucx_conns_expire(t);
    done += hth_ucx_conns_close(t);
    done += hth_ucx_events_run(t);
    return done;
}

int hth_ucx_arm(struct hth_transport *base, int *out_fd, uint64_t *out_due_ms)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    uint64_t due = hth_ucx_conns_due_ms(t), now = hth_now_ms(&t->clock);

    if (t->noted || due <= now || ucp_worker_arm(t->worker) != UCS_OK)
        return 0;
    *out_fd = t->epoll_fd;
    *out_due_ms = due;
    return 1;
}

void hth_ucx_wake(struct hth_transport *base)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    uint64_t one = 1;

    while (write(t->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ; /* EAGAIN, the counter is full: then it is readable already */
}
