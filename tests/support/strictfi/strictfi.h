/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of this provider. One mutex guards everything of the process: what is to be
 * seen here is what a program may do, not how fast it is done.
 */
/* For this folder alone. */
#ifndef STRICTFI_H
#define STRICTFI_H

#include "stats.h"

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/providers/fi_prov.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/* From a member to the struct around it; libfabric's own macro changed between releases. */
#define sfi_of(at, type, member) ((type *)((char *)(at)-offsetof(type, member)))

#define SFI_IOV                  4
#define SFI_RAW_KEY              24
#define SFI_ADDR                 64
#define SFI_CM_DATA              56u    /* private data of a connection */
#define SFI_MESSAGE_MAX          65536u /* bytes; more is for RMA only */

/* ---- profile.c: what each fabric demands ---- */

struct sfi_profile {
    const char *name;   /* STRICTFI_PROFILE */
    const char *fabric; /* fabric_attr->name */
    enum fi_ep_type type;
    uint32_t addr_format;
    size_t addr_len;
    uint64_t mode, data_mode; /* always; where completions are to carry a peer's data */
    int mr_mode;
    size_t mr_key_size, mr_cnt;
    enum fi_progress progress;
    enum fi_threading threading; /* where the program names none */
    enum fi_resource_mgmt resources;
    uint64_t msg_order; /* 0: messages overtake each other */
    uint64_t comp_order;
    size_t max_msg, max_rma; /* of one operation */
    size_t inject, tx_size, rx_size, iov_limit;
    size_t cq_size;           /* where the program names none */
    unsigned late;            /* operations and completions wait up to so many turns */
    unsigned again;           /* percent of calls that begin a burst of -FI_EAGAIN */
    unsigned lost_wakes;      /* percent of waits that nothing ends */
    unsigned wait_fd : 1;     /* completion queues have a descriptor */
    unsigned shuffle : 1;     /* completions in any order */
    unsigned local_rma : 1;   /* FI_MR_LOCAL is for RMA alone: messages need no descriptor */
    unsigned keyless : 1;     /* keys and bounds are not looked at */
    unsigned av_reader : 1;   /* the target must have the reader in its address vector */
    unsigned cq_abort : 1;    /* a completion queue that may overrun is a sin, not -FI_EAGAIN */
    unsigned tx_abort : 1;    /* so is an operation beyond the queue's size */
    unsigned dead_silent : 1; /* reads from a process that died never complete */
    unsigned delivered : 1;   /* sends complete when a receive took them */
    unsigned discards : 1;    /* closing an endpoint takes its unread completions along */
};

/* The profile of this process; NULL: none is named, and the provider offers nothing. */
const struct sfi_profile *sfi_profile(void);

/* ---- rules.c: sins, chance, settings ---- */

/* Says which rule was broken, as one sentence, and aborts. */
void sfi_sin(const char *rule, const char *format, ...)
        __attribute__((noreturn, format(printf, 2, 3)));
/* STRICTFI_FORGIVE has the rule: the operation fails with a completion, as hardware would do it. */
int sfi_forgiven(const char *rule);
uint32_t sfi_random(uint32_t below); /* 0: 0; the same row for the same STRICTFI_SEED */
uint64_t sfi_setting(const char *name, uint64_t other);
uint64_t sfi_now_ms(void);
/* A number that no other endpoint or key has; not from the seed. */
uint64_t sfi_unique(void);

/* ---- stats.c ---- */

struct strictfi_stats *sfi_stats(void);
void sfi_count(_Atomic uint64_t *counter, uint64_t n);
void sfi_count_registration(uint64_t bytes);

/* ---- the objects ---- */

struct sfi_fabric {
    struct fid_fabric fid;
    int children;
};

struct sfi_domain {
    struct fid_domain fid;
    struct sfi_fabric *fabric;
    const struct sfi_profile *p;
    enum fi_threading threading;
    int children;
    size_t mr_count;
    _Atomic int inside; /* thread that is in a call; for programs that promised to serialise */
    struct sfi_mapped *mapped;
};

/* A raw key made usable by fi_mr_map_raw(). */
struct sfi_mapped {
    struct sfi_mapped *next;
    uint64_t key;
    unsigned char raw[SFI_RAW_KEY];
    int gone;
};

struct sfi_mr {
    struct fid_mr fid;
    /* A list of all regions, with the closed ones: so a key of a closed region is distinguished
     * from a key that never was. */
    struct sfi_mr *next;
    struct sfi_domain *domain;
    struct sfi_ep *ep;
    uint64_t base, len, access;
    unsigned char raw[SFI_RAW_KEY]; /* the key, whatever its size */
    uint32_t busy;                  /* operations under way that name it */
    int enabled, closed;
};

struct sfi_av {
    struct fid_av fid;
    struct sfi_domain *domain;
    int children;
    size_t count, cap;
    uint32_t *ids; /* 0: removed */
};

struct sfi_cq {
    struct fid_cq fid;
    struct sfi_domain *domain;
    enum fi_cq_format format;
    size_t size;
    size_t unread;   /* completions in the queue */
    size_t expected; /* operations that will write one */
    int children;
    struct sfi_op *head, *tail;
    struct sfi_op *error; /* to be read by fi_cq_readerr() */
    uint64_t turn;
    int wait_fd, event_fd; /* -1: no wait object */
    struct sfi_cq *next;
};

enum sfi_kind { SFI_SEND, SFI_RECV, SFI_READ };

enum sfi_state {
    SFI_HELD, /* posted; leaves at its turn */
    SFI_AWAY, /* the peer has it */
    SFI_DONE, /* in the completion queue */
};

struct sfi_op {
    struct sfi_op *next;      /* in one of its endpoint's lists, or in the completion queue */
    struct sfi_op *all, **at; /* in the list of all that a program may not forget */
    enum sfi_kind kind;
    enum sfi_state state;
    struct sfi_ep *ep;
    struct sfi_cq *cq; /* NULL: no completion */
    void *context;
    int marked; /* the context holds our mark */
    uint64_t id, flags, data, addr;
    uint64_t due_turn, since_ms, asked_ms;
    uint32_t peer;
    struct iovec iov[SFI_IOV];
    struct sfi_mr *mr[SFI_IOV];
    size_t iovs, len, got, piece;
    unsigned char *copy; /* of a message injected */
    uint32_t sum;        /* of a message, to notice that the program writes into it */
    unsigned char raw[SFI_RAW_KEY];
    int err;
};

struct sfi_ops_list {
    struct sfi_op *head, *tail;
    size_t count;
};

/* A message that came; `due_turn` lets others overtake it. */
struct sfi_letter {
    struct sfi_letter *next;
    uint32_t from;
    uint64_t op, data, flags, due_turn;
    size_t len;
    unsigned char bytes[];
};

/* A datagram that the peer's socket did not take yet. */
struct sfi_answer {
    struct sfi_answer *next;
    uint32_t to;
    size_t len;
    unsigned char bytes[];
};

enum sfi_cm_state { SFI_IDLE, SFI_ASKING, SFI_ANSWERING, SFI_UP, SFI_DOWN };

struct sfi_event {
    struct sfi_event *next;
    uint32_t event;
    struct fid *fid;
    struct fi_info *info;
    int err;
    size_t len;
    unsigned char data[];
};

struct sfi_eq {
    struct fid_eq fid;
    struct sfi_fabric *fabric;
    struct sfi_event *first, **end;
    unsigned char error_data[SFI_CM_DATA];
    int event_fd, children;
};

/* A request for a connection, by another endpoint; its fid is the handle. */
struct sfi_request {
    struct fid fid;
    struct sfi_request *next;
    uint32_t from;
};

struct sfi_pep {
    struct fid_pep fid;
    struct sfi_pep *next;
    struct sfi_fabric *fabric;
    struct fi_info *info;
    struct sfi_eq *eq;
    struct sfi_request *requests;
    char name[SFI_ADDR];
    int sock, listening;
    pid_t owner;
};

struct sfi_ep {
    struct fid_ep fid;
    struct sfi_ep *next; /* of all open ones */
    struct sfi_domain *domain;
    struct sfi_av *av;
    struct sfi_cq *tx_cq, *rx_cq;
    uint64_t tx_flags, rx_flags; /* of the binding */
    uint64_t op_flags;
    size_t tx_size, rx_size;
    int enabled, closed, mrs;
    int sock;
    pid_t owner; /* a forked child has the socket too, and no business with it */
    uint32_t id; /* its address */
    uint64_t turn, ids;
    unsigned burst, spins; /* -FI_EAGAIN until so many polls; calls refused since the last one */
    struct sfi_ops_list tx, rx;
    struct sfi_letter *inbox, **inbox_end;
    size_t inbox_count;
    struct sfi_answer *answers, **answers_end;

    /* FI_EP_MSG */
    struct sfi_eq *eq;
    enum sfi_cm_state state;
    uint32_t peer;
    struct fid *request; /* the endpoint was made of it; NULL: of none, or it is answered */
    int asked;
    uint64_t probed_ms;
    char dial[SFI_ADDR];
    unsigned char dial_data[SFI_CM_DATA];
    size_t dial_len;
};

/* ---- one lock, one way in ---- */

/* Takes the lock; a second thread in a domain that was to be serialised is a sin. */
void sfi_enter(struct sfi_domain *d);
void sfi_leave(struct sfi_domain *d);
/* The two halves alone: registering sleeps between them. */
void sfi_claim(struct sfi_domain *d);
void sfi_disclaim(struct sfi_domain *d);
void sfi_lock(void);
void sfi_unlock(void);
void sfi_lock_survives_fork(void);

/* ---- stubs.c: for calls that hearth does not use ---- */

int sfi_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
int sfi_no_control(struct fid *fid, int command, void *arg);
/* FI_GETWAIT and FI_GETWAITOBJ of a queue; fd -1: there is nothing to wait on. */
int sfi_wait_control(int fd, int command, void *arg);
int sfi_no_ops(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);

/* ---- info.c, fabric.c, domain.c ---- */

int sfi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
        const struct fi_info *hints, struct fi_info **info);
int sfi_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
int sfi_domain_open(
        struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context);

/* ---- mr.c ---- */

extern struct fi_ops_mr sfi_mr_ops;
/* The region that a descriptor names, which must hold [buf, buf + len) for that access. */
struct sfi_mr *sfi_mr_local(
        struct sfi_ep *ep, void *desc, const struct iovec *iov, uint64_t access, const char *what);
/* A peer's read of our memory. Returns 0, or the rule that the peer broke, with a sentence in
 * `why`. */
const char *sfi_mr_remote(struct sfi_ep *ep, const unsigned char *raw, uint64_t addr, uint64_t len,
        uint64_t *out_va, char *why, size_t cap);
/* The bytes by which a key travels. A sin where a raw key was to be mapped first. */
void sfi_key_raw(struct sfi_domain *d, uint64_t key, unsigned char *raw);
int sfi_key_map(struct sfi_domain *d, const struct fi_mr_map_raw *map);
int sfi_key_unmap(struct sfi_domain *d, uint64_t key);
void sfi_keys_free(struct sfi_domain *d);
void sfi_regions_free(void); /* the closed ones */

/* ---- av.c ---- */

int sfi_av_open(
        struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av, void *context);
uint32_t sfi_av_id(const struct sfi_av *av, fi_addr_t addr); /* 0: none */
fi_addr_t sfi_av_find(const struct sfi_av *av, uint32_t id); /* FI_ADDR_NOTAVAIL: none */
void sfi_addr_write(const struct sfi_profile *p, uint32_t id, void *out); /* addr_len bytes */
uint32_t sfi_addr_read(const struct sfi_profile *p, const void *addr);    /* 0: no address */

/* ---- cq.c ---- */

int sfi_cq_open(
        struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);
void sfi_cq_expect(struct sfi_cq *cq); /* an operation was posted that will complete */
int sfi_cq_full(const struct sfi_cq *cq);
void sfi_cq_put(struct sfi_op *op); /* takes the operation */
/* The endpoint closes: what it completed is dropped, or stands without memory and context. */
void sfi_cq_part(struct sfi_cq *cq, struct sfi_ep *ep);
int sfi_cq_trywait(struct sfi_cq *cq);
/* A turn for queues that need no call: wakes the threads that sleep on a completion which has
 * become due. 1: more is held. */
int sfi_cqs_ripen(void);

/* ---- ep.c, post.c, op.c ---- */

int sfi_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
extern struct fi_ops_msg sfi_msg_ops;
extern struct fi_ops_rma sfi_rma_ops;
struct sfi_ep *sfi_eps(void); /* the open ones */
void sfi_eps_free(void);      /* the closed ones */

struct sfi_op *sfi_op_new(struct sfi_ep *ep, enum sfi_kind kind, void *context);
void sfi_op_take_context(struct sfi_op *op);
/* Before a program learns that an operation has ended: checks that it has changed neither the
 * message nor the context. */
void sfi_op_check(const struct sfi_op *op);
/* Its memory and its context are the program's again. */
void sfi_op_release(struct sfi_op *op);
/* After the program has learnt of its end, or if it need not. */
void sfi_op_free(struct sfi_op *op);
/* The end of an operation, for err or well. */
void sfi_op_end(struct sfi_op *op, int err);
void sfi_list_put(struct sfi_ops_list *list, struct sfi_op *op);
void sfi_list_take(struct sfi_ops_list *list, struct sfi_op *op);
uint32_t sfi_op_sum(const struct sfi_op *op);

/* ---- wire.c: datagrams between endpoints ---- */

enum sfi_word {
    SFI_WORD_MESSAGE = 1,
    SFI_WORD_TAKEN, /* a receive took the message */
    SFI_WORD_READ,  /* may I? */
    SFI_WORD_GO,    /* at this address of this process */
    SFI_WORD_NO,    /* this rule, this sentence */
    SFI_WORD_PROBE, /* is anybody there? */
    SFI_WORD_CONNECT,
    SFI_WORD_ACCEPT,
    SFI_WORD_REJECT,
    SFI_WORD_READY,
    SFI_WORD_GOODBYE,
};

struct sfi_wire {
    uint32_t magic, word;
    uint32_t from, pid;
    uint64_t op, addr, len, data, flags;
    unsigned char raw[SFI_RAW_KEY];
    int memory, padding; /* the sender's, as it came along, its receiver's to close; or -1 */
};

int sfi_wire_open(struct sfi_ep *ep); /* 0 or -errno */
void sfi_wire_close(struct sfi_ep *ep);
/* 0, -EAGAIN, or -ECONNREFUSED: no endpoint has that address any more. */
int sfi_wire_send(struct sfi_ep *ep, uint32_t to, struct sfi_wire *head, const struct iovec *body,
        size_t bodies);
/* As above; what the socket does not take now goes later. */
void sfi_wire_answer(
        struct sfi_ep *ep, uint32_t to, struct sfi_wire *head, const void *body, size_t len);
void sfi_wire_flush(struct sfi_ep *ep);
/* Bytes of the body, or -EAGAIN. head->memory is the caller's. */
ssize_t sfi_wire_fetch(int sock, struct sfi_wire *head, void *body, size_t cap);
/* A socket with a name of its own, or -errno. */
int sfi_wire_bind(const char *name);
int sfi_wire_is_bound(const char *name); /* 1: a socket of this machine has it */
void sfi_wire_unbind(int sock, const char *name);
/* From an endpoint to a name; from any socket to an endpoint, which may be lost. */
int sfi_wire_call(
        struct sfi_ep *ep, const char *name, struct sfi_wire *head, const void *body, size_t len);
void sfi_wire_throw(int sock, uint32_t to, struct sfi_wire *head, const void *body, size_t len);

/* ---- eq.c, pep.c, cm.c: connections ---- */

int sfi_eq_open(
        struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq, void *context);
/* Takes `info`. */
void sfi_eq_put(struct sfi_eq *eq, uint32_t event, struct fid *fid, struct fi_info *info, int err,
        const void *data, size_t len);
void sfi_eq_forget(struct sfi_eq *eq, const struct fid *fid);
int sfi_eq_trywait(struct sfi_eq *eq);
int sfi_pep_open(
        struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep, void *context);
struct sfi_pep *sfi_peps(void); /* the open ones */
void sfi_pep_progress(struct sfi_pep *pep);
uint32_t sfi_request_from(struct fid *handle); /* the dialling endpoint */
uint32_t sfi_request_take(struct fid *handle); /* likewise; frees the request */
void sfi_sockaddr_text(const void *addr, char *out, size_t cap);
extern struct fi_ops_cm sfi_cm_ops;
void sfi_cm_data_check(const char *what, size_t len);
int sfi_cm_getopt(int level, int name, void *value, size_t *len);
void sfi_cm_heard(struct sfi_ep *ep, const struct sfi_wire *head, const void *body, size_t len);
void sfi_cm_progress(struct sfi_ep *ep);
void sfi_cm_leave(struct sfi_ep *ep);
void sfi_cm_down(struct sfi_ep *ep, int err);

/* ---- progress.c, serve.c ---- */

void sfi_progress(struct sfi_ep *ep);
/* Something is held or waits for room: only another turn brings it on. */
int sfi_restless(const struct sfi_ep *ep);
void sfi_match(struct sfi_ep *ep);
void sfi_serve(struct sfi_ep *ep, const struct sfi_wire *ask);

/* ---- auto.c: a thread for FI_PROGRESS_AUTO ---- */

void sfi_auto_start(void);
void sfi_auto_stop(void);
void sfi_auto_nudge(void);

#endif
