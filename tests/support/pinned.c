/* SPDX-License-Identifier: Apache-2.0 */
/* io_uring by its three system calls: one write at a time from a fixed buffer into a memfd. */
#include "pinned.h"

#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static uint32_t *word(void *ring, uint32_t at)
{
    return (uint32_t *)(void *)((char *)ring + at);
}

static int map_rings(struct pinned *p, const struct io_uring_params *params)
{
    p->sq_bytes = params->sq_off.array + params->sq_entries * sizeof(uint32_t);
    p->cq_bytes = params->cq_off.cqes + params->cq_entries * sizeof(struct io_uring_cqe);
    p->sqes_bytes = params->sq_entries * sizeof(struct io_uring_sqe);
    p->sq = mmap(
            NULL, p->sq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->ring, IORING_OFF_SQ_RING);
    p->cq = mmap(
            NULL, p->cq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->ring, IORING_OFF_CQ_RING);
    p->sqes =
            mmap(NULL, p->sqes_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->ring, IORING_OFF_SQES);
    p->sq_tail_at = params->sq_off.tail;
    p->sq_array_at = params->sq_off.array;
    p->sq_mask_at = params->sq_off.ring_mask;
    p->cq_head_at = params->cq_off.head;
    p->cq_tail_at = params->cq_off.tail;
    p->cq_cqes_at = params->cq_off.cqes;
    p->cq_mask_at = params->cq_off.ring_mask;
    return p->sq == MAP_FAILED || p->cq == MAP_FAILED || p->sqes == MAP_FAILED ? -1 : 0;
}

int pinned_open(struct pinned *p, void *at, size_t bytes)
{
    struct io_uring_params params = { 0 };
    struct iovec view = { at, bytes };

    memset(p, 0, sizeof(*p));
    p->copy_fd = -1;
    p->at = at;
    p->bytes = bytes;
    p->ring = (int)syscall(SYS_io_uring_setup, 4, &params);
    if (p->ring < 0)
        return -1;
    p->copy_fd = memfd_create("view", MFD_CLOEXEC);
    if (p->copy_fd < 0 || ftruncate(p->copy_fd, (off_t)bytes) || map_rings(p, &params) ||
            syscall(SYS_io_uring_register, p->ring, IORING_REGISTER_BUFFERS, &view, 1)) {
        close(p->ring);
        return -1;
    }
    p->copy = mmap(NULL, bytes, PROT_READ, MAP_SHARED, p->copy_fd, 0);
    return p->copy == MAP_FAILED ? -1 : 0;
}

/* One write of [off, off + len) of the view; bytes written or -1. */
static int write_fixed(struct pinned *p, size_t off, size_t len)
{
    uint32_t tail = *word(p->sq, p->sq_tail_at), at = tail & *word(p->sq, p->sq_mask_at);
    struct io_uring_sqe *sqe = (struct io_uring_sqe *)p->sqes + at;
    struct io_uring_cqe *cqe;
    uint32_t head;
    int res;

    memset(sqe, 0, sizeof(*sqe));
    sqe->opcode = IORING_OP_WRITE_FIXED;
    sqe->fd = p->copy_fd;
    sqe->off = off;
    sqe->addr = (uint64_t)(uintptr_t)(p->at + off);
    sqe->len = (uint32_t)len;
    word(p->sq, p->sq_array_at)[at] = at;
    __atomic_store_n(word(p->sq, p->sq_tail_at), tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, p->ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
        return -1;
    head = *word(p->cq, p->cq_head_at);
    if (head == __atomic_load_n(word(p->cq, p->cq_tail_at), __ATOMIC_ACQUIRE))
        return -1;
    cqe = (struct io_uring_cqe *)(void *)word(p->cq, p->cq_cqes_at) +
          (head & *word(p->cq, p->cq_mask_at));
    res = cqe->res;
    __atomic_store_n(word(p->cq, p->cq_head_at), head + 1, __ATOMIC_RELEASE);
    return res;
}

const unsigned char *pinned_read(struct pinned *p, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        size_t piece = bytes - done < 1 << 20 ? bytes - done : 1 << 20;
        int n = write_fixed(p, done, piece);

        if (n <= 0)
            return NULL;
        done += (size_t)n;
    }
    return p->copy;
}

void pinned_close(struct pinned *p)
{
    munmap(p->copy, p->bytes);
    munmap(p->sq, p->sq_bytes);
    munmap(p->cq, p->cq_bytes);
    munmap(p->sqes, p->sqes_bytes);
    close(p->copy_fd);
    close(p->ring);
}
