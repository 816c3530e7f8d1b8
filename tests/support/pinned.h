/* SPDX-License-Identifier: Apache-2.0 */
/* A view of memory that is registered once and read through ever after, as a network card has
 * one: fixed buffers of io_uring, which pin pages as ibv_reg_mr does. */
#ifndef PINNED_H
#define PINNED_H

#include <stddef.h>
#include <stdint.h>

struct pinned {
    int ring;      /* io_uring */
    int copy_fd;   /* what the view shows is written here */
    void *sq, *cq; /* rings */
    void *sqes;
    size_t sq_bytes, cq_bytes, sqes_bytes;
    uint32_t sq_tail_at, sq_array_at, sq_mask_at, cq_head_at, cq_tail_at, cq_cqes_at, cq_mask_at;
    unsigned char *at;
    unsigned char *copy; /* [bytes] */
    size_t bytes;
};

/* 0, or -1 where the kernel has no io_uring for us. */
int pinned_open(struct pinned *p, void *at, size_t bytes);

/* The view's first `bytes` as they are seen through it; NULL on an error. Until the next call. */
const unsigned char *pinned_read(struct pinned *p, size_t bytes);

void pinned_close(struct pinned *p);

#endif
