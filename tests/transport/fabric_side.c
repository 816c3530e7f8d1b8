/* SPDX-License-Identifier: Apache-2.0 */
/* A program that counts its operations, names its memory, and polls before it tries again. */
#include "fabric_side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MEMORY       (2 * SIDE_DATA + SIDE_SLOTS * SIDE_MESSAGE)
#define MAX_RMA_SIZE 14 /* FI_OPT_MAX_RMA_SIZE of libfabric 2 */
#define EVERY_MR \
    (FI_MR_LOCAL | FI_MR_RAW | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT)

#define NEED(call)                                                                            \
    do {                                                                                      \
        int rc_ = (int)(call);                                                                \
        if (rc_ < 0) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, fi_strerror(-rc_)); \
            exit(3);                                                                          \
        }                                                                                     \
    } while (0)

struct fi_info *side_info(void)
{
    struct fi_info *hints = fi_allocinfo(), *found = NULL;
    const char *as = getenv("STRICTFI_AS"), *profile = getenv("STRICTFI_PROFILE");
    int connected = profile && strcmp(profile, "verbs") == 0;

    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
    hints->domain_attr->mr_mode = EVERY_MR;
    hints->ep_attr->type = connected ? FI_EP_MSG : FI_EP_RDM; /* not what rxm makes of it */
    hints->fabric_attr->prov_name = strdup(as ? as : "strict");
    if (fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &found))
        found = NULL;
    fi_freeinfo(hints);
    return found;
}

void side_open_objects(struct side *s)
{
    struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_MSG, .size = 2 * SIDE_SLOTS };
    struct fi_av_attr av = { .type = FI_AV_TABLE };
    struct fi_eq_attr eq = { .wait_obj = FI_WAIT_FD };

    memset(s, 0, sizeof(*s));
    s->info = side_info();
    if (!s->info) {
        fprintf(stderr, "the provider is not offered\n");
        exit(3);
    }
    s->info->tx_attr->size = SIDE_SENDS + 1;
    s->info->rx_attr->size = SIDE_RECVS;
    NEED(fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
    NEED(fi_domain(s->fabric, s->info, &s->domain, NULL));
    if (s->info->ep_attr->type == FI_EP_MSG)
        NEED(fi_eq_open(s->fabric, &eq, &s->eq, NULL));
    else
        NEED(fi_av_open(s->domain, &av, &s->av, NULL));
    NEED(fi_cq_open(s->domain, &cq, &s->cq, NULL));
    s->data = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->data == MAP_FAILED)
        exit(3);
    s->into = s->data + SIDE_DATA;
    for (unsigned i = 0; i < SIDE_SLOTS; i++)
        s->slot[i].bytes = s->into + SIDE_DATA + i * SIDE_MESSAGE;
}

void side_endpoint(struct side *s, struct fi_info *info)
{
    info->tx_attr->size = SIDE_SENDS + 1;
    info->rx_attr->size = SIDE_RECVS;
    NEED(fi_endpoint(s->domain, info, &s->ep, NULL));
    NEED(fi_ep_bind(s->ep, s->av ? &s->av->fid : &s->eq->fid, 0));
    NEED(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
}

void side_open_endpoint(struct side *s)
{
    side_open_objects(s);
    side_endpoint(s, s->info);
}

void side_register(struct side *s)
{
    uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_REMOTE_READ;

    NEED(fi_mr_reg(s->domain, s->data, MEMORY, access, 0, 0x1234, 0, &s->mr, NULL));
    if (s->info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
        NEED(fi_mr_bind(s->mr, &s->ep->fid, 0));
        NEED(fi_mr_enable(s->mr));
    }
}

void side_open(struct side *s)
{
    side_open_endpoint(s);
    NEED(fi_enable(s->ep));
    side_register(s);
    side_post_receives(s);
}

/* ---- meeting ---- */

void side_card(struct side *s, struct side_card *out)
{
    int mode = s->info->domain_attr->mr_mode;
    uint64_t key = fi_mr_key(s->mr);

    memset(out, 0, sizeof(*out));
    out->addr_len = sizeof(out->addr);
    if (s->av)
        NEED(fi_getname(&s->ep->fid, out->addr, &out->addr_len));
    out->base = mode & FI_MR_VIRT_ADDR ? (uintptr_t)s->data : 0;
    out->key_len = sizeof(out->key);
    if (mode & FI_MR_RAW)
        NEED(fi_mr_raw_attr(s->mr, &out->base, out->key, &out->key_len, 0));
    else
        memcpy(out->key, &key, sizeof(key));
}

void side_meet(struct side *s, const struct side_card *card)
{
    unsigned char key[64];

    if (s->av)
        NEED(fi_av_insert(s->av, card->addr, 1, &s->peer, 0, NULL) - 1);
    s->base = card->base;
    memcpy(key, card->key, sizeof(key));
    if (s->info->domain_attr->mr_mode & FI_MR_RAW)
        NEED(fi_mr_map_raw(s->domain, card->base, key, card->key_len, &s->key, 0));
    else
        memcpy(&s->key, key, sizeof(s->key));
}

/* ---- connections ---- */

void side_listen(struct side *s)
{
    struct fi_info *hints = fi_dupinfo(s->info), *info;

    NEED(fi_getinfo(FI_VERSION(1, 15), "127.0.0.1", "0", FI_SOURCE, hints, &info));
    fi_freeinfo(hints);
    NEED(fi_passive_ep(s->fabric, info, &s->pep, NULL));
    NEED(fi_pep_bind(s->pep, &s->eq->fid, 0));
    NEED(fi_listen(s->pep));
    fi_freeinfo(info);
}

static int event_wait(struct side *s, uint32_t want, char data[64], struct fi_eq_cm_entry *out)
{
    unsigned char room[sizeof(*out) + 64] = { 0 };
    struct fi_eq_err_entry err = { 0 };
    uint32_t event;
    ssize_t n = fi_eq_sread(s->eq, &event, room, sizeof(room) - 1, 5000, 0);

    if (n == -FI_EAVAIL) {
        NEED(fi_eq_readerr(s->eq, &err, 0));
        snprintf(data, 64, "%.*s", (int)err.err_data_size, (char *)err.err_data);
        return -err.err;
    }
    NEED(n);
    memcpy(out, room, sizeof(*out));
    memcpy(data, room + sizeof(*out), 64);
    return !want || event == want ? (int)event : -FI_EOTHER;
}

int side_event(struct side *s, char data[64])
{
    struct fi_eq_cm_entry e;

    return event_wait(s, 0, data, &e);
}

struct fi_info *side_request(struct side *s, const char *private_data)
{
    struct fi_eq_cm_entry e;
    char data[64];

    NEED(event_wait(s, FI_CONNREQ, data, &e));
    return strcmp(data, private_data) == 0 ? e.info : NULL;
}

void side_connect(struct side *s, const struct side *listener, const char *private_data)
{
    unsigned char addr[64];
    size_t len = sizeof(addr);

    NEED(fi_getname(&listener->pep->fid, addr, &len));
    NEED(fi_connect(s->ep, addr, private_data, strlen(private_data)));
}

void side_accept(struct side *s, struct fi_info *request, const char *private_data)
{
    side_endpoint(s, request);
    fi_freeinfo(request);
    NEED(fi_enable(s->ep));
    side_register(s);
    side_post_receives(s);
    NEED(fi_accept(s->ep, private_data, strlen(private_data)));
}

/* ---- operations ---- */

static struct side_slot *slot_free(struct side *s, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        if (s->slot[i].kind == SIDE_FREE)
            return &s->slot[i];
    return NULL;
}

void side_post_receives(struct side *s)
{
    struct side_slot *slot;

    while ((slot = slot_free(s, 0, SIDE_RECVS))) {
        ssize_t rc = fi_recv(s->ep, slot->bytes, SIDE_MESSAGE, fi_mr_desc(s->mr), FI_ADDR_UNSPEC,
                &slot->context);

        if (rc == -FI_EAGAIN || rc == -FI_ENOTCONN)
            return;
        NEED(rc);
        slot->kind = SIDE_RECV;
    }
}

static void side_error(struct side *s)
{
    struct fi_cq_err_entry e = { 0 };

    if (fi_cq_readerr(s->cq, &e, 0) != 1)
        return;
    ((struct side_slot *)e.op_context)->kind = SIDE_FREE;
    s->errors++;
    s->last_error = e.err;
}

void side_poll(struct side *s)
{
    struct fi_cq_msg_entry e;
    ssize_t n = fi_cq_read(s->cq, &e, 1);

    if (n == -FI_EAVAIL) {
        side_error(s);
        return;
    }
    if (n == 1) {
        struct side_slot *slot = e.op_context;
        uint32_t number;

        if (slot->kind == SIDE_RECV) {
            memcpy(&number, slot->bytes, sizeof(number));
            s->received++;
            s->received_sum += number;
            s->last_number = number;
        }
        slot->kind = SIDE_FREE;
    }
    side_post_receives(s);
}

int side_send(struct side *s, uint32_t number)
{
    struct side_slot *slot = slot_free(s, SIDE_RECVS, SIDE_RECVS + SIDE_SENDS);
    ssize_t rc;

    if (!slot)
        return 0;
    memset(slot->bytes, 0, SIDE_MESSAGE);
    memcpy(slot->bytes, &number, sizeof(number));
    rc = fi_send(s->ep, slot->bytes, 4 + number * 37 % (SIDE_MESSAGE - 4), fi_mr_desc(s->mr),
            s->peer, &slot->context);
    if (rc == -FI_EAGAIN)
        return 0;
    NEED(rc);
    slot->kind = SIDE_SEND;
    s->sent++;
    return 1;
}

size_t side_read_most(struct side *s)
{
    size_t most = 0, len = sizeof(most);

    if (fi_getopt(&s->ep->fid, FI_OPT_ENDPOINT, MAX_RMA_SIZE, &most, &len))
        most = s->info->ep_attr->max_msg_size;
    return most < SIDE_DATA ? most : SIDE_DATA;
}

int side_read(struct side *s, size_t off, size_t len)
{
    struct side_slot *slot = &s->slot[SIDE_SLOTS - 1];
    int errors = s->errors;
    ssize_t rc;

    while ((rc = fi_read(s->ep, s->into + off, len, fi_mr_desc(s->mr), s->peer, s->base + off,
                    s->key, &slot->context)) == -FI_EAGAIN)
        side_poll(s);
    NEED(rc);
    slot->kind = SIDE_READ;
    while (slot->kind == SIDE_READ)
        side_poll(s);
    return s->errors > errors ? -s->last_error : 0;
}

/* A region goes before the endpoint that it is bound to, and after one that only uses it. */
void side_close(struct side *s)
{
    int bound = (s->info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0;

    if (s->mr && bound)
        NEED(fi_close(&s->mr->fid));
    if (s->ep)
        NEED(fi_close(&s->ep->fid));
    if (s->pep)
        NEED(fi_close(&s->pep->fid));
    if (s->mr && !bound)
        NEED(fi_close(&s->mr->fid));
    NEED(fi_close(&s->cq->fid));
    NEED(fi_close(s->av ? &s->av->fid : &s->eq->fid));
    NEED(fi_close(&s->domain->fid));
    NEED(fi_close(&s->fabric->fid));
    fi_freeinfo(s->info);
    munmap(s->data, MEMORY);
}
