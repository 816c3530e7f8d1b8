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
    const char *as = getenv("STRICTFI_AS");

    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
    hints->domain_attr->mr_mode = EVERY_MR;
    hints->fabric_attr->prov_name = strdup(as ? as : "strict");
    if (fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &found))
        found = NULL;
    fi_freeinfo(hints);
    return found;
}

void side_open_endpoint(struct side *s)
{
    struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_MSG, .size = 2 * SIDE_SLOTS };
    struct fi_av_attr av = { .type = FI_AV_TABLE };

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
    NEED(fi_av_open(s->domain, &av, &s->av, NULL));
    NEED(fi_cq_open(s->domain, &cq, &s->cq, NULL));
    NEED(fi_endpoint(s->domain, s->info, &s->ep, NULL));
    NEED(fi_ep_bind(s->ep, &s->av->fid, 0));
    NEED(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
    s->data = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->data == MAP_FAILED)
        exit(3);
    s->into = s->data + SIDE_DATA;
    for (unsigned i = 0; i < SIDE_SLOTS; i++)
        s->slot[i].bytes = s->into + SIDE_DATA + i * SIDE_MESSAGE;
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

    NEED(fi_av_insert(s->av, card->addr, 1, &s->peer, 0, NULL) - 1);
    s->base = card->base;
    memcpy(key, card->key, sizeof(key));
    if (s->info->domain_attr->mr_mode & FI_MR_RAW)
        NEED(fi_mr_map_raw(s->domain, card->base, key, card->key_len, &s->key, 0));
    else
        memcpy(&s->key, key, sizeof(s->key));
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

        if (rc == -FI_EAGAIN)
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
    struct fi_cq_msg_entry e[1];
    ssize_t n = fi_cq_read(s->cq, e, 1);

    if (n == -FI_EAVAIL) {
        side_error(s);
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        struct side_slot *slot = e[i].op_context;
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
    if (s->mr && !bound)
        NEED(fi_close(&s->mr->fid));
    NEED(fi_close(&s->cq->fid));
    NEED(fi_close(&s->av->fid));
    NEED(fi_close(&s->domain->fid));
    NEED(fi_close(&s->fabric->fid));
    fi_freeinfo(s->info);
    munmap(s->data, MEMORY);
}
