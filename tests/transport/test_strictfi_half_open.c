/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strangers at a datagram endpoint: a stranger that greets and never answers uses one of 64 places,
 * whatever address it greets with, and a proper peer still gets its connection. If more peers dial
 * at once, each is accepted or told that it was not.
 */
#include "check.h"

#include "fabric_side.h"
#include "transport/ofi/rdm.h"
#include "transport/transport.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define GREETINGS 200u
#define PATIENCE  200000 /* turns; a greeting is answered in some tens */

static struct side stranger;
static struct hth_transport *engine, *peer;
static struct hth_rdm_hello answer[GREETINGS];
static uint32_t answers;
static unsigned accepted, up, gone;

static uint64_t now_ms(void *self)
{
    struct timespec ts;

    (void)self;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void on_accept(void *self, hth_conn conn)
{
    (void)self, (void)conn;
    accepted++;
}

static void on_up(void *self, hth_conn conn)
{
    (void)self, (void)conn;
    up++;
}

static void on_down(void *self, hth_conn conn, int code, const char *detail)
{
    (void)conn, (void)code, (void)detail;
    gone += self != NULL;
}

static void on_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    (void)self, (void)conn, (void)bytes, (void)len;
}

static void on_writable(void *self, hth_conn conn)
{
    (void)self, (void)conn;
}

static void on_pull(void *self, uint64_t cookie, int code)
{
    (void)self, (void)cookie, (void)code;
}

static struct hth_transport *transport_open(void *self)
{
    struct hth_transport_events events = { self, on_accept, on_up, on_down, on_message, on_writable,
        on_pull };
    struct hth_transport_opts opts = { .bind = "127.0.0.1",
        .provider = "strict",
        .trusted = 1,
        .connect_ms = 60000, /* no place gets free by itself */
        .clock = { now_ms, now_ms, NULL } };
    struct hth_transport *t = NULL;

    must(hth_transport_open("ofi", getenv("HEARTH_TEST_LIB"), &opts, &events, &t, NULL));
    return t;
}

static void open_all(void)
{
    unsigned char addr[HTH_ADDR_MAX];
    uint32_t len;
    char path[4096];

    alarm(60);
    snprintf(path, sizeof(path), "%s/strictfi", getenv("HEARTH_TEST_LIB"));
    setenv("FI_PROVIDER_PATH", path, 1);
    setenv("FI_PROVIDER", "strict", 1);
    setenv("STRICTFI_PROFILE", "efa", 1);
    engine = transport_open(NULL);
    peer = transport_open(&peer);
    side_open(&stranger);
    must(engine->ops->address(engine, addr, &len, NULL));
    cr_assert(eq(int, fi_av_insert(stranger.av, addr + 4, 1, &stranger.peer, 0, NULL), 1));
}

static void close_all(void)
{
    side_close(&stranger);
    engine->ops->close(engine);
    peer->ops->close(peer);
}

static void stranger_takes(const unsigned char *bytes, size_t len)
{
    struct hth_rdm_head head;

    if (!hth_rdm_head_read(bytes, len, &head) && head.kind == HTH_RDM_ACCEPT &&
            !hth_rdm_hello_read(bytes + HTH_RDM_HEAD, head.len, &answer[answers]))
        answers++;
}

static void turn(void)
{
    struct fi_cq_msg_entry e;

    engine->ops->progress(engine);
    peer->ops->progress(peer);
    if (fi_cq_read(stranger.cq, &e, 1) == 1) {
        struct side_slot *slot = e.op_context;

        if (slot->kind == SIDE_RECV)
            stranger_takes(slot->bytes, e.len);
        slot->kind = SIDE_FREE;
    }
    side_post_receives(&stranger);
}

static void turns_until(const unsigned *what, unsigned want)
{
    for (int i = 0; i < PATIENCE && *what < want; i++)
        turn();
    cr_assert(eq(uint, *what, want));
}

/* A packet by the one slot that is left for it. */
static void stranger_says(struct hth_rdm_head head, const unsigned char *body)
{
    struct side_slot *slot = &stranger.slot[SIDE_SLOTS - 1];

    hth_rdm_head_write(&head, slot->bytes);
    if (head.len)
        memcpy(slot->bytes + HTH_RDM_HEAD, body, head.len);
    while (fi_send(stranger.ep, slot->bytes, HTH_RDM_HEAD + head.len, fi_mr_desc(stranger.mr),
                   stranger.peer, &slot->context) == -FI_EAGAIN)
        turn();
    slot->kind = SIDE_SEND;
    while (slot->kind == SIDE_SEND)
        turn();
}

static void stranger_greets(void)
{
    struct hth_rdm_hello hello = { .id = answers + 1, .token = 7, .packet = SIDE_MESSAGE };
    size_t own = sizeof(hello.addr) - 4;
    unsigned char body[HTH_RDM_LEAST];
    uint32_t len;

    must(peer->ops->address(peer, hello.addr, &len, NULL)); /* for the first four bytes */
    cr_assert(zero(int, fi_getname(&stranger.ep->fid, hello.addr + 4, &own)));
    hello.addr_len = 4 + (uint32_t)own;
    len = (uint32_t)hth_rdm_hello_write(&hello, body);
    stranger_says((struct hth_rdm_head){ .kind = HTH_RDM_OPEN, .len = len }, body);
}

Test(strictfi_half_open, strangers_share_64_places_and_a_peer_connects, .timeout = 90)
{
    unsigned char addr[HTH_ADDR_MAX];
    hth_conn conn;
    uint32_t len;

    open_all();
    for (uint32_t i = 0; i < GREETINGS; i++) {
        stranger_greets();
        turns_until(&answers, i + 1);
    }
    cr_expect(zero(uint, accepted)); /* the owner has not accepted one */
    must(engine->ops->address(engine, addr, &len, NULL));
    must(peer->ops->connect(peer, addr, len, &conn, NULL));
    turns_until(&up, 1);
    turns_until(&accepted, 1);
    for (uint32_t i = 0; i < GREETINGS; i++) /* those without a place get no answer */
        stranger_says(
                (struct hth_rdm_head){
                        .kind = HTH_RDM_ACK, .to = answer[i].id, .token = answer[i].token },
                NULL);
    for (int i = 0; i < 2000; i++)
        turn();
    cr_expect(eq(uint, accepted, 1 + HTH_RDM_HALF - 1)); /* the peer took one of the places */
    close_all();
}

#define DIALS 96u /* more than there are places */

static unsigned all_know(void)
{
    return up == DIALS && up - gone == accepted;
}

Test(strictfi_half_open, of_96_dials_at_once_each_is_accepted_or_told, .timeout = 90)
{
    unsigned char addr[HTH_ADDR_MAX];
    uint32_t len;

    open_all();
    must(engine->ops->address(engine, addr, &len, NULL));
    for (uint32_t i = 0; i < DIALS; i++) {
        hth_conn conn;

        must(peer->ops->connect(peer, addr, len, &conn, NULL));
    }
    for (int i = 0; i < 500; i++) /* all greetings arrive before the peer reads an answer */
        engine->ops->progress(engine);
    for (int i = 0; i < PATIENCE && !all_know(); i++)
        turn();
    cr_expect(eq(uint, up, DIALS));
    cr_expect(eq(uint, up - gone, accepted));
    cr_expect(ge(uint, accepted, HTH_RDM_HALF / 2));
    close_all();
}
