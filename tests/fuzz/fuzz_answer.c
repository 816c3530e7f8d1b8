/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Anything that an engine, also a hostile or newer one, can send to its rank: answers to requests
 * that are waited for, posted or given up, or to no request; events; slots lent ahead; with a
 * descriptor or none. An answer that is accepted has the type that was due, and is whole; its text
 * ends; descriptors are closed.
 */
#include "client/link/events.h"
#include "client/link/kept.h"
#include "client/link/link_parts.h"
#include "client/link/wire.h"
#include "core/local/packet.h"
#include "steps.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Of a step's `how`; its upper half, of the first one to a request, is what is asked for. */
enum { ANSWERS = 1, OF_THE_SAVE = 2, DESCRIPTOR = 4, AS_IT_IS = 8 };
/* Of `more`: it answers so many requests before the last one; and, in the first step to a request,
 * how that is asked. */
enum { BEFORE = 7, TEXT = 8, POST = 16, WITH_TOKEN = 32, TAKE_AHEAD = 64 };

#define TOKEN 17u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    uint32_t type;
    size_t len;
} due[] = {
    { HTH_LOCAL_OK, sizeof(struct hth_local_head) },
    { HTH_LOCAL_MAPPED, sizeof(struct hth_local_mapped) },
    { HTH_LOCAL_LENT, sizeof(struct hth_local_lent) },
    { HTH_LOCAL_SAVE_ID, sizeof(struct hth_local_save_id) },
    { HTH_LOCAL_EVENT, sizeof(struct hth_local_event) },
};

#define DESCRIPTORS 64 /* that are looked at */

struct talk {
    struct hearth h;
    struct hearth_handle *handle;
    int engine, null, open;
};

static void answer_want(int good)
{
    if (!good)
        abort();
}

static int descriptors(void)
{
    int open = 0;

    for (int fd = 0; fd < DESCRIPTORS; fd++)
        open += fcntl(fd, F_GETFD) >= 0;
    return open;
}

static void talk_open(struct talk *t)
{
    int ends[2], before = descriptors();

    answer_want(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    *t = (struct talk){
        .engine = ends[1], .null = open("/dev/null", O_RDWR | O_CLOEXEC), .open = before
    };
    pthread_mutex_init(&t->h.lock, NULL);
    answer_want(!hth_lines_init(&t->h.lines, &t->h.opts) && !hth_link_open(&t->h));
    t->h.link->fd = ends[0];
    t->h.link->incarnation = 1;
    t->handle = calloc(1, sizeof(*t->handle));
    answer_want(t->handle != NULL);
    *t->handle = (struct hearth_handle){ .h = &t->h, .token = TOKEN, .incarnation = 1, .step = 3 };
    hth_events_add(t->handle);
}

static void talk_close(struct talk *t)
{
    hth_events_drop(t->handle);
    hth_link_close(&t->h);
    hth_lines_fini(&t->h.lines);
    pthread_mutex_destroy(&t->h.lock);
    close(t->engine);
    close(t->null);
    answer_want(descriptors() == t->open);
}

static void engine_says(struct talk *t, const struct step *s)
{
    union {
        struct hth_local_head head;
        unsigned char bytes[HTH_LOCAL_MAX];
    } p = { 0 };
    size_t most = sizeof(p) - sizeof(p.head), len = s->len < most ? s->len : most;

    memcpy(p.bytes + sizeof(p.head), s->bytes, len);
    p.head = (struct hth_local_head){ (uint32_t)(len + sizeof(p.head)), s->type,
        s->how & ANSWERS ? t->h.link->requests - (s->more & BEFORE) : 0,
        s->how & OF_THE_SAVE ? TOKEN : 0 };
    if (s->how & AS_IT_IS)
        memcpy(p.bytes, s->bytes, len < sizeof(p.head) ? len : sizeof(p.head));
    (void)hth_packet_put(
            t->engine, p.bytes, len + sizeof(p.head), s->how & DESCRIPTOR ? t->null : -1);
}

/* An object of the save that the engine has yet to receive: BEGIN, and SEAL. */
static void object_add(struct talk *t)
{
    struct hth_kept_object object = { .sealed = 1, .name = "object" };

    t->handle->ahead = 1;
    answer_want(!hth_kept_object_locked(t->handle, &object));
}

static void ahead_take(struct talk *t)
{
    struct hth_local_lent lent;
    int fd;

    if (hth_ahead_take_locked(&t->h, 1, &lent, &fd))
        close(fd);
}

static void ask_locked(struct talk *t, struct hth_reader *r, unsigned which, unsigned more)
{
    struct hth_local_head msg = { 0 };
    struct hth_asked asked;
    union {
        struct hth_local_head head;
        unsigned char bytes[4096];
    } answer;
    char text[8] = "";
    struct hth_ask a = { .msg = &msg,
        .len = sizeof(msg),
        .type = HTH_LOCAL_STATUS,
        .want = due[which].type,
        .token = more & WITH_TOKEN ? TOKEN : 0,
        .fd = -1,
        .answer = &answer,
        .answer_len = due[which].len,
        .text = more & TEXT ? text : NULL,
        .text_size = sizeof(text),
        .what = "to ask" };
    struct step s;

    if (hth_ask_send_locked(&t->h, &a, &asked, 0))
        return;
    for (int i = 0; i < 4 && step_next(r, &s); i++)
        engine_says(t, &s);
    hth_hear_locked(&t->h);
    if (!hth_ask_wait_locked(&t->h, &asked, 0, a.what, NULL)) /* else it is given up */
        answer_want(answer.head.type == a.want || (a.want == HTH_LOCAL_EVENT && !answer.head.type));
    answer_want(memchr(text, '\0', sizeof(text)) != NULL);
    hth_ask_drop_locked(&t->h, &asked);
}

/* The first step that answers it says how. */
static void ask(struct talk *t, struct hth_reader *r)
{
    unsigned how = r->at[r->pos], more = r->pos + 1 < r->len ? r->at[r->pos + 1] : 0;

    pthread_mutex_lock(&t->h.lock);
    if (more & TAKE_AHEAD)
        ahead_take(t);
    if (more & POST)
        object_add(t);
    ask_locked(t, r, (how >> 4) % (sizeof(due) / sizeof(due[0])), more);
    pthread_mutex_unlock(&t->h.lock);
    hth_lines_drain(&t->h.lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hth_reader r = { .at = data, .len = size };
    struct talk t;

    talk_open(&t);
    for (unsigned i = 0; i < STEPS_MAX / 4 && r.pos < size && !r.bad && t.h.link->fd >= 0; i++)
        ask(&t, &r);
    answer_want(strnlen(t.handle->status.text, sizeof(t.handle->status.text)) <
                sizeof(t.handle->status.text));
    talk_close(&t);
    return 0;
}
