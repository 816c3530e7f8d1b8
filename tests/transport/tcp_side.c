/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp_side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t side_now(void *self)
{
    return ((struct tcp_side *)self)->now_ms;
}

static void side_accepted(void *self, hth_conn conn)
{
    struct tcp_side *s = self;

    cr_assert(lt(int, s->conns, SIDE_CONNS));
    s->conn[s->conns++] = conn;
}

static void side_up(void *self, hth_conn conn)
{
    (void)conn;
    ((struct tcp_side *)self)->ups++;
}

static void side_down(void *self, hth_conn conn, int code, const char *detail)
{
    struct tcp_side *s = self;

    (void)conn;
    snprintf(s->down_text, sizeof(s->down_text), "%s", detail);
    s->downs++;
    s->down_code = code;
}

static void side_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    (void)conn, (void)bytes, (void)len;
    ((struct tcp_side *)self)->messages++;
}

static void side_writable(void *self, hth_conn conn)
{
    (void)self, (void)conn;
}

static void side_pulled(void *self, uint64_t cookie, int code)
{
    struct tcp_side *s = self;

    (void)cookie;
    s->pulls++;
    s->pull_code = code;
    s->has_crc = s->t->ops->pulled_crc(s->t, &s->crc);
}

static void side_log(void *self, enum hearth_log_level level, const char *event, const char *text)
{
    struct tcp_side *s = self;

    (void)level;
    s->warned += strcmp(event, "tcp-accept") == 0;
    if (!strcmp(event, "path-failed")) {
        s->path_lines++;
        snprintf(s->path_line, sizeof(s->path_line), "%s", text);
    }
    if (!strcmp(event, "stranger-refused")) {
        s->refusals++;
        snprintf(s->refused, sizeof(s->refused), "%s", text);
    }
}

void tcp_side_open(struct tcp_side *s, const char *bind)
{
    tcp_side_open_keyed(s, bind, NULL);
}

void tcp_side_open_keyed(struct tcp_side *s, const char *bind, const unsigned char key[HTH_KEY])
{
    struct hth_transport_events events = { s, side_accepted, side_up, side_down, side_message,
        side_writable, side_pulled };
    struct hth_transport_opts opts = { .bind = bind,
        .key = key ? &s->job_key : NULL,
        .clock = { side_now, side_now, s },
        .log = { .emit = side_log, .self = s } };
    unsigned char blob[HTH_ADDR_MAX];
    struct hearth_error err = { 0 };
    uint32_t len;
    int rc;

    memset(s, 0, sizeof(*s));
    s->now_ms = 1000;
    s->key = key;
    setenv("HEARTH_TCP_LANES", "0", 0); /* a test moves each byte by its turns */
    if (key) {
        s->job_key = (struct hth_key){ .bytes = key, .id = hth_key_id(key) };
    }
    rc = hth_transport_open("tcp", getenv("HEARTH_TEST_LIB"), &opts, &events, &s->t, &err);
    cr_assert(eq(int, rc, 0), "%s", err.text);
    must(s->t->ops->address(s->t, blob, &len, NULL));
    s->addr.in.sin_family = blob[1] == 4 ? AF_INET : AF_INET6;
    s->addr.in.sin_port = htons(hth_get16(blob + 2));
    if (blob[1] == 4)
        memcpy(&s->addr.in.sin_addr, blob + 4, 4);
    else
        memcpy(&s->addr.in6.sin6_addr, blob + 4, 16);
    s->bytes = malloc(SIDE_BYTES);
    cr_assert(ne(ptr, s->bytes, NULL));
    memset(s->bytes, 1, SIDE_BYTES);
    must(s->t->ops->reg(s->t, s->bytes, SIDE_BYTES, &s->region, NULL));
}

void tcp_side_close(struct tcp_side *s)
{
    s->t->ops->close(s->t);
    free(s->bytes);
}

void tcp_turns(struct tcp_side *s, int turns)
{
    for (int i = 0; i < turns; i++)
        if (!s->t->ops->progress(s->t))
            usleep(1000);
}

int tcp_dial(const struct tcp_side *s)
{
    return tcp_dial_from(s, NULL);
}

int tcp_dial_from(const struct tcp_side *s, const char *ip)
{
    struct sockaddr_in from = { .sin_family = AF_INET };
    socklen_t len = s->addr.sa.sa_family == AF_INET6 ? sizeof(s->addr.in6) : sizeof(s->addr.in);
    int fd = socket(s->addr.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    cr_assert(ge(int, fd, 0));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (ip) {
        cr_assert(eq(int, inet_pton(AF_INET, ip, &from.sin_addr), 1));
        cr_assert(zero(int, bind(fd, (struct sockaddr *)(void *)&from, sizeof(from))), "%s", ip);
    }
    cr_assert(zero(int, connect(fd, &s->addr.sa, len)));
    cr_assert(zero(int, fcntl(fd, F_SETFL, O_NONBLOCK)));
    return fd;
}

void tcp_say(int fd, const void *bytes, size_t len)
{
    cr_assert(eq(sz, (size_t)send(fd, bytes, len, MSG_NOSIGNAL), len));
}

void tcp_say_all(struct tcp_side *s, int fd, const void *bytes, size_t len)
{
    for (size_t said = 0; said < len;) {
        ssize_t n = send(fd, (const char *)bytes + said, len - said, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno != EAGAIN)
            return;
        if (n < 0)
            tcp_turns(s, 1);
        said += n < 0 ? 0 : (size_t)n;
    }
}

int tcp_hear(struct tcp_side *s, int fd, void *out, size_t len)
{
    size_t got = 0;

    for (int turns = 0; got < len; turns++) {
        ssize_t n = recv(fd, (char *)out + got, len - got, 0);

        if (n == 0 || (n < 0 && errno != EAGAIN))
            return 0;
        if (n > 0)
            got += (size_t)n;
        else
            tcp_turns(s, 1);
        cr_assert(lt(int, turns, 20000), "nothing comes");
    }
    return 1;
}

int tcp_is_closed(int fd)
{
    char bytes[4096];
    ssize_t n;

    while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
        continue;
    return n == 0 || errno != EAGAIN;
}

int tcp_is_quiet(int fd)
{
    struct pollfd p = { fd, POLLIN, 0 };

    return poll(&p, 1, 0) == 0;
}

struct hth_seal_opts tcp_greeting(const struct tcp_side *s, enum hth_purpose purpose)
{
    static const unsigned char none[HTH_KEY];
    uint32_t suites = s->key ? hth_seal_suites() : HTH_SUITE_PROOF;

    return (struct hth_seal_opts){
        .key = s->key ? s->key : none, .suites = suites, .purpose = purpose
    };
}

void tcp_hello(const struct hth_seal_opts *o, unsigned char out[HTH_SEAL_HELLO])
{
    struct hth_seal_hand hand;

    must(hth_seal_init(NULL));
    must(hth_seal_dial(&hand, o, out, NULL));
    hth_seal_drop(&hand);
}

int tcp_greet(struct tcp_side *s, const struct hth_seal_opts *o, struct hth_seal **out)
{
    unsigned char hello[HTH_SEAL_HELLO], proof[HTH_SEAL_PROOF];
    struct hth_seal_hand hand;
    int fd = tcp_dial(s);

    must(hth_seal_init(NULL));
    must(hth_seal_dial(&hand, o, hello, NULL));
    tcp_say(fd, hello, sizeof(hello));
    if (tcp_hear(s, fd, hello, sizeof(hello)) && !hth_seal_answer(&hand, hello, proof, NULL)) {
        tcp_say(fd, proof, sizeof(proof));
        if (tcp_hear(s, fd, proof, sizeof(proof)) && !hth_seal_finish(&hand, proof, out, NULL))
            return fd;
    }
    hth_seal_drop(&hand);
    close(fd);
    return -1;
}

void tcp_join(struct tcp_side *s, struct tcp_member *m)
{
    struct hth_seal_opts o = tcp_greeting(s, HTH_PURPOSE_MESSAGES);
    struct hth_seal_bond bond;
    int before = s->conns;

    m->messages = tcp_greet(s, &o, &m->messages_seal);
    cr_assert(ge(int, m->messages, 0));
    hth_seal_bond(m->messages_seal, &bond);
    o = tcp_greeting(s, HTH_PURPOSE_BULK);
    o.bond = &bond;
    m->bulk = tcp_greet(s, &o, &m->bulk_seal);
    cr_assert(ge(int, m->bulk, 0));
    cr_assert(eq(int, s->conns, before + 1));
    m->conn = s->conn[before];
}

void tcp_leave(struct tcp_member *m)
{
    close(m->messages);
    close(m->bulk);
    hth_seal_close(m->messages_seal);
    hth_seal_close(m->bulk_seal);
}

void tcp_must_cost(struct tcp_side *s, const struct tcp_member *m)
{
    for (int i = 0; i < 1000 && !s->downs; i++)
        tcp_turns(s, 1);
    cr_expect(eq(int, s->downs, 1));
    cr_expect(eq(int, s->down_code, HEARTH_EPROTO));
    cr_expect(tcp_is_closed(m->messages));
    cr_expect(tcp_is_closed(m->bulk));
}

void tcp_ask(const struct tcp_member *m, uint64_t pull, const unsigned char desc[HTH_TCP_DESC],
        uint64_t off, uint64_t len)
{
    unsigned char out[HTH_TCP_HEAD + HTH_TCP_REQUEST];

    hth_tcp_head_put(out, HTH_TCP_ASK, 0, HTH_TCP_REQUEST, pull);
    memcpy(out + HTH_TCP_HEAD, desc + 8, 24);
    hth_put64(out + HTH_TCP_HEAD + 24, off);
    hth_put64(out + HTH_TCP_HEAD + 32, len);
    tcp_say(m->bulk, out, sizeof(out));
}

void tcp_hear_head(struct tcp_side *s, const struct tcp_member *m, unsigned char out[HTH_TCP_HEAD])
{
    cr_assert(tcp_hear(s, m->bulk, out, HTH_TCP_HEAD), "the connection has ended");
}
