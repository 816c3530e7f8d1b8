/* SPDX-License-Identifier: Apache-2.0 */
/* The fake engine's packets, slots and saves. */
#include "fake_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- packets -------------------------------------------------------------------------------- */

void fake_put(
        int fd, void *msg, size_t len, uint32_t type, uint64_t request, uint64_t token, int attach)
{
    struct hth_local_head head = { (uint32_t)len, type, request, token };
    struct iovec iov = { msg, len };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

    memcpy(msg, &head, sizeof(head));
    if (attach >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof(control);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.head), &attach, sizeof(attach));
    }
    sendmsg(fd, &m, MSG_NOSIGNAL);
}

void fake_put_error(struct client *c, uint64_t request, int code, const char *text)
{
    struct hth_local_error e = { .code = code };

    snprintf(e.text, sizeof(e.text), "%s", text);
    fake_put(c->fd, &e, sizeof(e), HTH_LOCAL_ERROR, request, 0, -1);
}

void fake_put_ok(struct client *c, uint64_t request)
{
    struct hth_local_head h;

    fake_put(c->fd, &h, sizeof(h), HTH_LOCAL_OK, request, 0, -1);
}

void fake_put_bytes(
        struct client *c, uint64_t request, const void *bytes, size_t len, const uint32_t *sum)
{
    struct hth_local_bytes b = { .len = len, .sum = sum ? *sum : 0, .summed = sum != NULL };
    int fd = memfd_create("fake", MFD_CLOEXEC);

    if (write(fd, bytes, len) == (ssize_t)len)
        fake_put(c->fd, &b, sizeof(b), HTH_LOCAL_BYTES, request, 0, fd);
    close(fd);
}

/* ---- saves ---------------------------------------------------------------------------------- */

void fake_put_event(struct fake_engine *f, struct client *c, const struct loan *l, uint64_t request)
{
    const struct save *s = &f->save[l->save];
    struct hth_local_event e = { .save = hth_local_save_of(s->id),
        .level = s->level,
        .code = s->code,
        .bytes = l->bytes,
        .copied = s->level >= HEARTH_COPIED ? l->bytes : 0 };

    snprintf(e.text, sizeof(e.text), "%s", s->code ? f->why : "waits for node b");
    fake_put(c->fd, &e, sizeof(e), HTH_LOCAL_EVENT, request, l->token, -1);
}

static void tell_all(struct fake_engine *f, int save)
{
    for (int i = 0; i < CLIENTS; i++)
        for (int j = 0; f->client[i].fd >= 0 && j < SAVES; j++) {
            struct loan *l = &f->client[i].loan[j];

            if (l->token && l->save == save && l->committed)
                fake_put_event(f, &f->client[i], l, 0);
        }
}

void fake_free_save(struct fake_engine *f, struct save *s)
{
    for (uint32_t i = 0; i < s->objects; i++) {
        free(s->object[i].raw);
        if (s->object[i].slot >= 0)
            f->slot[s->object[i].slot].busy = 0;
    }
    *s = (struct save){ 0 };
}

/* As far as it may go; what is older goes. */
void fake_advance(struct fake_engine *f, int save)
{
    struct save *s = &f->save[save];
    uint32_t world = 1;

    for (int i = 0; i < CLIENTS; i++)
        if (f->client[i].fd >= 0 && f->client[i].world > world)
            world = f->client[i].world;
    s->level = HEARTH_SEALED;
    if ((uint32_t)s->world_done >= world)
        s->level = HEARTH_PROTECTED;
    if (f->hold && s->level > f->hold)
        s->level = f->hold;
    if (s->level == HEARTH_PROTECTED)
        for (int i = 0; i < SAVES; i++)
            if (f->save[i].used && hth_save_cmp(f->save[i].id, s->id) < 0)
                fake_free_save(f, &f->save[i]);
    tell_all(f, save);
}

int fake_newest(const struct fake_engine *f)
{
    int best = -1;

    for (int i = 0; i < SAVES; i++)
        if (f->save[i].used && f->save[i].level == HEARTH_PROTECTED && !f->save[i].code &&
                (best < 0 || hth_save_cmp(f->save[i].id, f->save[best].id) > 0))
            best = i;
    return best;
}

int fake_find_save(const struct fake_engine *f, struct hth_local_save id)
{
    for (int i = 0; i < SAVES; i++)
        if (f->save[i].used && !hth_save_cmp(f->save[i].id, hth_local_save_to(id)))
            return i;
    return -1;
}

/* The save of this step that runs, or a new one. */
int fake_save_of_step(struct fake_engine *f, const struct client *c, uint64_t step)
{
    uint32_t attempt = 1;
    int spare = -1;

    for (int i = 0; i < SAVES; i++) {
        const struct save *s = &f->save[i];
        int mine = 0;

        for (int j = 0; j < SAVES; j++)
            mine |= c->loan[j].token && c->loan[j].save == i;
        if (s->used && s->id.step == step && s->id.epoch == f->epoch) {
            if (!mine && s->level < HEARTH_PROTECTED && !s->code)
                return i;
            attempt = s->id.attempt + 1;
        }
        if (!s->used)
            spare = i;
    }
    f->save[spare] = (struct save){ .used = 1, .id = { f->epoch, f->nonce, step, attempt } };
    return spare;
}

static int slot_is_leased(const struct fake_engine *f, int slot)
{
    for (int i = 0; i < LEASES; i++)
        if (f->lease[i].id && f->lease[i].slot == slot)
            return 1;
    return 0;
}

int fake_take_slot(struct fake_engine *f, uint64_t bytes)
{
    uint64_t cap = (bytes + (2u << 20) - 1) / (2u << 20) * (2u << 20);

    for (int i = 0; i < SLOTS; i++) {
        struct slot *s = &f->slot[i];

        if (s->fd >= 0 && (s->busy || s->cap < bytes || slot_is_leased(f, i)))
            continue;
        if (s->fd < 0) {
            s->fd = memfd_create("fake-slot", MFD_CLOEXEC);
            s->cap = cap;
            if (ftruncate(s->fd, (off_t)cap) != 0)
                return -1;
            s->base = mmap(NULL, cap, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
            f->counts.slots++;
        }
        s->busy = 1;
        s->generation++;
        return i;
    }
    return -1;
}

struct loan *fake_find_loan(struct client *c, uint64_t token)
{
    for (int i = 0; i < SAVES; i++)
        if (c->loan[i].token && c->loan[i].token == token && !c->loan[i].given)
            return &c->loan[i];
    return NULL;
}

struct loan *fake_new_loan(struct fake_engine *f, struct client *c)
{
    for (int i = 0; i < SAVES; i++) {
        struct loan *l = &c->loan[i];

        if (!l->token || (l->committed && f->save[l->save].level >= HEARTH_PROTECTED)) {
            *l = (struct loan){ .token = ++f->tokens, .save = -1 };
            return l;
        }
    }
    abort();
}

void fake_fail_save(struct fake_engine *f, int save, const char *why)
{
    snprintf(f->why, sizeof(f->why), "%s", why);
    f->save[save].code = HEARTH_EFAILED;
    tell_all(f, save);
}
