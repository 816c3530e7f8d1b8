/* SPDX-License-Identifier: Apache-2.0 */
/* Each rule of the strict provider is seen to end a process that sins against it, by its name. */
#include "check.h"

#include "fabric_side.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void sin_fn(void);

/* Runs the sin in a process of its own and returns what it printed. */
static const char *sin_run(const char *profile, const char *seed, sin_fn *fn, int *out_status)
{
    static char text[1024];
    char path[4096];
    size_t got = 0;
    ssize_t n;
    int fds[2];
    pid_t pid;

    cr_assert(zero(int, pipe(fds)));
    pid = fork();
    if (pid == 0) {
        alarm(60);
        snprintf(path, sizeof(path), "%s/strictfi", getenv("HEARTH_TEST_LIB"));
        setenv("FI_PROVIDER_PATH", path, 1);
        setenv("FI_PROVIDER", "strict", 1); /* spares the start of all others */
        setenv("STRICTFI_PROFILE", profile, 1);
        setenv("STRICTFI_SEED", seed, 1);
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        fn();
        _exit(0);
    }
    close(fds[1]);
    while ((n = read(fds[0], text + got, sizeof(text) - 1 - got)) > 0)
        got += (size_t)n;
    text[got] = 0;
    close(fds[0]);
    waitpid(pid, out_status, 0);
    return text;
}

static void must_sin(const char *profile, const char *seed, const char *rule, sin_fn *fn)
{
    char want[64];
    int status, said, aborted;
    const char *text = sin_run(profile, seed, fn, &status);

    snprintf(want, sizeof(want), "STRICTFI %s: ", rule);
    said = strstr(text, want) != NULL;
    aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    cr_expect(eq(int, said, 1), "%s: %s: it said: %s", profile, rule, text);
    cr_expect(eq(int, aborted, 1), "%s: %s: status 0x%x", profile, rule, status);
}

/* ---- two sides in one process ---- */

static struct side a, b;

static void both_open(void)
{
    struct side_card card;

    side_open(&a);
    side_open(&b);
    side_card(&b, &card);
    side_meet(&a, &card);
    side_card(&a, &card);
    side_meet(&b, &card);
}

/* Until nothing of a's is under way: it has ended, or this process has, however busy the machine
 * is. */
static void both_poll(void)
{
    for (unsigned i = 0; i < SIDE_SLOTS; i++)
        while (a.slot[i].kind == SIDE_SEND || a.slot[i].kind == SIDE_READ) {
            side_poll(&a);
            side_poll(&b);
            usleep(100); /* for progress in a thread */
        }
}

/* Posts a read of b's memory by a, however often that takes. */
static void read_post(size_t at, size_t len, void *desc, uint64_t key)
{
    struct side_slot *slot = &a.slot[SIDE_SLOTS - 1];

    while (fi_read(a.ep, a.into, len, desc, a.peer, a.base + at, key, &slot->context) == -FI_EAGAIN)
        side_poll(&a);
    slot->kind = SIDE_READ;
}

static void *desc_of(struct side *s)
{
    return fi_mr_desc(s->mr);
}

static struct fid_mr *region_new(struct side *s, void *at, size_t len, uint64_t access)
{
    struct fid_mr *mr = NULL;

    if (fi_mr_reg(s->domain, at, len, access, 0, 77, 0, &mr, NULL))
        _exit(3);
    return mr;
}

/* ---- endpoints ---- */

static void sin_enable(void)
{
    side_open_endpoint(&a);
    fi_send(a.ep, a.data, 1, NULL, 0, &a.slot[0].context);
}

static void sin_closed(void)
{
    both_open();
    fi_close(&a.ep->fid);
    fi_send(a.ep, a.data, 1, desc_of(&a), a.peer, &a.slot[0].context);
}

static void sin_bind_late(void)
{
    side_open(&a);
    fi_ep_bind(a.ep, &a.av->fid, 0);
}

Test(strictfi_rules, endpoints_are_used_between_enable_and_close)
{
    must_sin("efa", "1", "enable", sin_enable);
    must_sin("worst", "1", "enable", sin_enable);
    must_sin("efa", "1", "enable", sin_bind_late);
    must_sin("efa", "1", "closed", sin_closed);
}

/* ---- local memory ---- */

static void sin_read_without_desc(void)
{
    both_open();
    read_post(0, 64, NULL, a.key);
}

static void sin_send_without_desc(void)
{
    both_open();
    fi_send(a.ep, a.data, 64, NULL, a.peer, &a.slot[SIDE_SLOTS - 1].context);
}

static void sin_desc_of_nobody(void)
{
    both_open();
    read_post(0, 64, &a, a.key);
}

static void sin_desc_of_other_domain(void)
{
    both_open();
    read_post(0, 64, desc_of(&b), a.key);
}

static void sin_desc_of_closed(void)
{
    struct fid_mr *mr;

    both_open();
    mr = region_new(&a, a.into, 64, FI_READ);
    fi_close(&mr->fid);
    read_post(0, 64, fi_mr_desc(mr), a.key);
}

static void sin_desc_too_short(void)
{
    both_open();
    read_post(0, 65, fi_mr_desc(region_new(&a, a.into, 64, FI_READ)), a.key);
}

static void sin_desc_without_access(void)
{
    both_open();
    read_post(0, 64, fi_mr_desc(region_new(&a, a.into, 64, FI_SEND | FI_RECV)), a.key);
}

static void sin_close_under_way(void)
{
    struct fid_mr *mr;

    both_open();
    mr = region_new(&a, a.into, 64, FI_READ);
    read_post(0, 64, fi_mr_desc(mr), a.key);
    fi_close(&mr->fid);
}

static void sin_not_mapped(void)
{
    void *gone;

    side_open(&a);
    gone = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(gone, 1 << 20);
    region_new(&a, gone, 1 << 20, FI_REMOTE_READ);
}

Test(strictfi_rules, local_memory_is_named_by_a_descriptor_that_covers_it)
{
    must_sin("efa", "1", "mr-local", sin_read_without_desc);
    must_sin("efa-direct", "1", "mr-local", sin_send_without_desc);
    must_sin("worst", "1", "mr-local", sin_read_without_desc);
    must_sin("efa", "1", "mr-desc", sin_desc_of_nobody);
    must_sin("efa", "1", "mr-desc", sin_desc_of_other_domain);
    must_sin("efa", "1", "mr-closed", sin_desc_of_closed);
    must_sin("efa", "1", "mr-bounds", sin_desc_too_short);
    must_sin("efa", "1", "mr-access", sin_desc_without_access);
    must_sin("efa", "1", "mr-busy", sin_close_under_way);
    must_sin("efa", "1", "allocated", sin_not_mapped);
    must_sin("cxi", "1", "allocated", sin_not_mapped);
}

/* ---- memory of peers ---- */

static void sin_wrong_key(void)
{
    both_open();
    read_post(0, 64, desc_of(&a), a.key + 1);
    both_poll();
}

static void sin_past_the_end(void)
{
    both_open();
    read_post(2 * SIDE_DATA + SIDE_SLOTS * SIDE_MESSAGE - 63, 64, desc_of(&a), a.key);
    both_poll();
}

static void sin_before_the_start(void)
{
    both_open();
    read_post((size_t)-1, 64, desc_of(&a), a.key);
    both_poll();
}

static void sin_after_close(void)
{
    struct fid_mr *mr;
    uint64_t key;

    both_open();
    mr = region_new(&b, b.data, 4096, FI_REMOTE_READ);
    key = fi_mr_key(mr);
    fi_close(&mr->fid);
    read_post(0, 64, desc_of(&a), key);
    both_poll();
}

static void sin_not_for_peers(void)
{
    both_open();
    read_post(0, 64, desc_of(&a), fi_mr_key(region_new(&b, b.data, 4096, FI_READ)));
    both_poll();
}

static void sin_not_enabled(void)
{
    struct fid_mr *mr;

    both_open();
    mr = region_new(&b, b.data, 4096, FI_REMOTE_READ);
    fi_mr_bind(mr, &b.ep->fid, 0);
    read_post(0, 64, desc_of(&a), fi_mr_key(mr));
    both_poll();
}

static void sin_enable_unbound(void)
{
    side_open(&a);
    fi_mr_enable(region_new(&a, a.data, 4096, FI_REMOTE_READ));
}

/* The region hangs from a second endpoint, and the read comes to the first. */
static void sin_other_endpoint(void)
{
    struct fid_ep *second;
    struct fid_mr *mr;

    both_open();
    if (fi_endpoint(b.domain, b.info, &second, NULL) || fi_ep_bind(second, &b.av->fid, 0) ||
            fi_ep_bind(second, &b.cq->fid, FI_TRANSMIT | FI_RECV) || fi_enable(second))
        _exit(3);
    mr = region_new(&b, b.data, 4096, FI_REMOTE_READ);
    if (fi_mr_bind(mr, &second->fid, 0) || fi_mr_enable(mr))
        _exit(3);
    read_post(0, 64, desc_of(&a), fi_mr_key(mr));
    both_poll();
}

static void sin_unmapped_key(void)
{
    both_open();
    fi_mr_unmap_key(a.domain, a.key);
    read_post(0, 64, desc_of(&a), a.key);
}

static void sin_reader_unknown(void)
{
    struct side_card card;

    side_open(&a);
    side_open(&b);
    side_card(&b, &card);
    side_meet(&a, &card);
    read_post(0, 64, desc_of(&a), a.key);
    both_poll();
}

Test(strictfi_rules, memory_of_peers_is_read_as_it_was_granted)
{
    must_sin("efa", "1", "key", sin_wrong_key);
    must_sin("opx", "1", "key", sin_wrong_key);
    must_sin("worst", "1", "key", sin_wrong_key);
    must_sin("worst", "1", "key", sin_unmapped_key);
    must_sin("efa-direct", "1", "mr-bounds", sin_past_the_end);
    must_sin("opx", "1", "mr-bounds", sin_past_the_end);
    must_sin("efa", "1", "mr-bounds", sin_before_the_start);
    must_sin("opx", "1", "mr-bounds", sin_before_the_start);
    must_sin("worst", "4", "mr-bounds", sin_past_the_end);
    must_sin("efa", "1", "mr-closed", sin_after_close);
    must_sin("efa", "1", "mr-access", sin_not_for_peers);
    must_sin("cxi", "1", "mr-bind", sin_not_enabled);
    must_sin("cxi", "1", "mr-bind", sin_enable_unbound);
    must_sin("cxi", "1", "mr-bind", sin_other_endpoint);
    must_sin("efa-direct", "1", "av-reader", sin_reader_unknown);
    must_sin("worst", "2", "av-reader", sin_reader_unknown);
}

/* ---- addresses ---- */

static void sin_altered_address(void)
{
    struct side_card card;

    side_open(&a);
    side_card(&a, &card);
    card.addr[9] ^= 1;
    side_meet(&a, &card);
}

static void sin_unknown_address(void)
{
    both_open();
    a.peer = 5;
    side_send(&a, 0);
}

static void sin_removed_address(void)
{
    both_open();
    fi_av_remove(a.av, &a.peer, 1, 0);
    side_send(&a, 0);
}

Test(strictfi_rules, addresses_are_inserted_as_they_were_given)
{
    must_sin("efa", "1", "address", sin_altered_address);
    must_sin("shm", "1", "address", sin_altered_address);
    must_sin("efa", "1", "address", sin_unknown_address);
    must_sin("efa", "1", "address", sin_removed_address);
}

/* ---- contexts and buffers ---- */

static void sin_no_context(void)
{
    both_open();
    fi_send(a.ep, a.data, 1, desc_of(&a), a.peer, NULL);
}

static void sin_number_as_context(void)
{
    both_open();
    fi_send(a.ep, a.data, 1, desc_of(&a), a.peer, (void *)(uintptr_t)4711);
}

static void sin_context_twice(void)
{
    both_open();
    for (int i = 0; i < 2; i++)
        fi_send(a.ep, a.data, 1, desc_of(&a), a.peer, &a.slot[SIDE_SLOTS - 1].context);
}

static void sin_context_written(void)
{
    both_open();
    side_send(&a, 1);
    for (unsigned i = SIDE_RECVS; i < SIDE_SLOTS; i++)
        a.slot[i].context.internal[7] = NULL;
    both_poll();
}

static void sin_buffer_written(void)
{
    both_open();
    side_send(&a, 1);
    for (unsigned i = SIDE_RECVS; i < SIDE_SLOTS; i++)
        a.slot[i].bytes[0] ^= 1;
    both_poll();
}

Test(strictfi_rules, what_is_under_way_is_left_alone)
{
    must_sin("efa-direct", "1", "context", sin_no_context);
    must_sin("efa-direct", "1", "context", sin_number_as_context);
    must_sin("efa-direct", "1", "context", sin_context_twice);
    must_sin("efa-direct", "1", "context", sin_context_written);
    must_sin("efa", "1", "send-buffer", sin_buffer_written);
    must_sin("cxi", "1", "send-buffer", sin_buffer_written);
}

/* ---- limits ---- */

static void sin_long_message(void)
{
    both_open();
    fi_send(a.ep, a.data, 8193, desc_of(&a), a.peer, &a.slot[SIDE_SLOTS - 1].context);
}

static void sin_long_read(void)
{
    both_open();
    read_post(0, side_read_most(&a) + 1, desc_of(&a), a.key);
}

static void sin_two_pieces(void)
{
    struct iovec iov[2] = { { NULL, 1 }, { NULL, 1 } };

    both_open();
    iov[0].iov_base = iov[1].iov_base = a.data;
    fi_sendv(a.ep, iov, NULL, 2, a.peer, &a.slot[SIDE_SLOTS - 1].context);
}

static void sin_long_inject(void)
{
    both_open();
    fi_inject(a.ep, a.data, a.info->tx_attr->inject_size + 1, a.peer);
}

/* Receives beyond the queue, each refused for a while first. */
static void sin_too_many(void)
{
    static struct fi_context2 context[64];
    struct fi_cq_msg_entry e;

    side_open(&a);
    for (int i = 0; i < 64; i++)
        while (fi_recv(a.ep, a.into, 64, desc_of(&a), FI_ADDR_UNSPEC, &context[i]) == -FI_EAGAIN)
            (void)fi_cq_read(a.cq, &e, 1);
}

static void sin_small_queue(void)
{
    struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_MSG, .size = 4 };
    struct fi_cq_msg_entry e;

    side_open_endpoint(&a);
    if (fi_close(&a.ep->fid) || fi_close(&a.cq->fid) || fi_cq_open(a.domain, &attr, &a.cq, NULL) ||
            fi_endpoint(a.domain, a.info, &a.ep, NULL) || fi_ep_bind(a.ep, &a.av->fid, 0) ||
            fi_ep_bind(a.ep, &a.cq->fid, FI_TRANSMIT | FI_RECV) || fi_enable(a.ep))
        _exit(3);
    side_register(&a);
    for (;;) {
        side_post_receives(&a);
        (void)fi_cq_read(a.cq, &e, 1);
    }
}

static void sin_blind_retry(void)
{
    both_open();
    for (;;)
        side_send(&a, 1);
}

static void sin_no_receives(void)
{
    struct fi_cq_msg_entry e;

    both_open();
    for (;;) {
        while (fi_inject(a.ep, a.data, 1, a.peer) == -FI_EAGAIN)
            side_poll(&a);
        side_poll(&a);
        (void)fi_cq_read(b.cq, &e, 1);
    }
}

Test(strictfi_rules, limits_of_the_description_hold, .timeout = 110)
{
    must_sin("efa-direct", "1", "size", sin_long_message);
    must_sin("efa-direct", "1", "size", sin_long_read);
    must_sin("worst", "1", "size", sin_long_read);
    must_sin("cxi", "1", "iov", sin_two_pieces);
    must_sin("efa", "1", "inject", sin_long_inject);
    must_sin("worst", "1", "inject", sin_long_inject);
    must_sin("worst", "1", "queue-size", sin_too_many);
    must_sin("worst", "1", "cq-overrun", sin_small_queue);
    must_sin("worst", "1", "retry", sin_blind_retry);
    must_sin("shm", "1", "receives", sin_no_receives);
}

/* ---- threads, waiting, closing ---- */

static void *register_slowly(void *arg)
{
    region_new(arg, a.into, SIDE_DATA, FI_READ);
    return NULL;
}

static void sin_two_threads(void)
{
    struct fi_cq_msg_entry e;
    pthread_t thread;

    side_open(&a);
    setenv("STRICTFI_REG_MS_PER_GIB", "10000000", 1); /* until the sin is seen */
    pthread_create(&thread, NULL, register_slowly, &a);
    for (;;)
        (void)fi_cq_read(a.cq, &e, 1);
}

static void sin_trywait(void)
{
    struct fid *fid;

    side_open(&a);
    fid = &a.cq->fid;
    fi_trywait(a.fabric, &fid, 1);
}

static void sin_close_domain(void)
{
    side_open(&a);
    fi_close(&a.domain->fid);
}

static void sin_close_fabric(void)
{
    side_open(&a);
    fi_close(&a.fabric->fid);
}

static void sin_close_queue(void)
{
    side_open(&a);
    fi_close(&a.cq->fid);
}

static void sin_close_vector(void)
{
    side_open(&a);
    fi_close(&a.av->fid);
}

static void sin_close_endpoint(void)
{
    side_open(&a);
    fi_close(&a.ep->fid);
}

Test(strictfi_rules, threads_sleepers_and_closers_keep_the_order)
{
    must_sin("opx", "1", "threads", sin_two_threads);
    must_sin("efa", "1", "wait", sin_trywait);
    must_sin("efa", "1", "children", sin_close_domain);
    must_sin("efa", "1", "children", sin_close_fabric);
    must_sin("efa", "1", "children", sin_close_queue);
    must_sin("efa", "1", "children", sin_close_vector);
    must_sin("cxi", "1", "children", sin_close_endpoint);
}

/* ---- opening ---- */

static void sin_other_mode(void)
{
    struct fi_info *info = side_info();
    struct fid_fabric *fabric;
    struct fid_domain *domain;

    info->domain_attr->mr_mode &= ~FI_MR_LOCAL;
    if (fi_fabric(info->fabric_attr, &fabric, NULL))
        _exit(3);
    fi_domain(fabric, info, &domain, NULL);
}

static void sin_no_profile(void)
{
    side_info();
}

static void behave(void)
{
    both_open();
    read_post(0, 64, desc_of(&a), a.key);
    both_poll();
}

Test(strictfi_rules, demands_are_not_bargained_over)
{
    must_sin("efa", "1", "info", sin_other_mode);
    must_sin("efo", "1", "profile", sin_no_profile);
}

Test(strictfi_rules, a_program_without_a_sin_is_let_be)
{
    static const char *const profiles[] = { "efa", "efa-direct", "cxi", "opx", "shm", "worst" };
    int status;

    for (int i = 0; i < 6; i++) {
        const char *text = sin_run(profiles[i], "1", behave, &status);

        cr_expect(zero(int, status), "%s: %s", profiles[i], text);
    }
}
