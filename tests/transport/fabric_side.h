/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A well-behaved program over libfabric, for test_strictfi.c: it heeds whatever the provider's
 * description asks for, so that a rule is broken only where a test means to.
 */
#ifndef FABRIC_SIDE_H
#define FABRIC_SIDE_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdint.h>

#define SIDE_DATA    (3u << 20) /* bytes that peers may read; as many to read into */
#define SIDE_MESSAGE 4096u
#define SIDE_RECVS   8u
#define SIDE_SENDS   4u
#define SIDE_SLOTS   (SIDE_RECVS + SIDE_SENDS + 1)

/* One side gives this to the other out of band. */
struct side_card {
    unsigned char addr[64], key[64];
    size_t addr_len, key_len;
    uint64_t base;
};

/* An operation's context, first, so that one pointer is both. */
struct side_slot {
    struct fi_context2 context;
    enum { SIDE_FREE, SIDE_RECV, SIDE_SEND, SIDE_READ } kind;
    unsigned char *bytes;
};

struct side {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fid_eq *eq; /* FI_EP_MSG */
    struct fid_pep *pep;
    struct fid_mr *mr;
    unsigned char *data, *into; /* [SIDE_DATA] each */
    struct side_slot slot[SIDE_SLOTS];
    fi_addr_t peer;
    uint64_t key, base; /* of the peer's data */
    uint32_t sent, received, last_number;
    uint64_t received_sum; /* of the numbers that messages carry */
    int errors, last_error;
};

/* Offers of the provider under test, as hints that accept every demand get them. NULL: none. */
struct fi_info *side_info(void);
void side_open(struct side *s);
/* Everything but the endpoint; that, bound but not enabled; for tests of what comes too early. */
void side_open_objects(struct side *s);
void side_open_endpoint(struct side *s);
void side_endpoint(struct side *s, struct fi_info *info);
/* FI_EP_MSG: a listens on 127.0.0.1, b is connected to it, or not: -fi_errno. */
void side_listen(struct side *s);
struct fi_info *side_request(struct side *s, const char *private_data);
void side_connect(struct side *s, const struct side *listener, const char *private_data);
void side_accept(struct side *s, struct fi_info *request, const char *private_data);
/* The next event of a connection: FI_CONNECTED, FI_SHUTDOWN, or -fi_errno; data, ended by 0. */
int side_event(struct side *s, char data[64]);
void side_register(struct side *s);
void side_card(struct side *s, struct side_card *out);
void side_meet(struct side *s, const struct side_card *card);
void side_post_receives(struct side *s);
void side_poll(struct side *s);
int side_send(struct side *s, uint32_t number); /* 0: not now */
/* -fi_errno, or 0; ends when it is done. */
int side_read(struct side *s, size_t off, size_t len);
size_t side_read_most(struct side *s);
void side_close(struct side *s);

#endif
