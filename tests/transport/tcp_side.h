/* SPDX-License-Identifier: Apache-2.0 */
/* A transport `tcp` with a clock of the test's, and plain sockets that talk to it byte by byte. */
#ifndef TCP_SIDE_H
#define TCP_SIDE_H

#include "check.h"

#include "core/base/bytes.h"
#include "transport/tcp/tcp.h"

#define SIDE_CONNS 64
#define SIDE_BYTES (UINT64_C(8) << 20)

struct tcp_side {
    struct hth_transport *t;
    union hth_addr addr; /* where it listens */
    uint64_t now_ms;     /* its clock, moved by the test alone */
    hth_conn conn[SIDE_CONNS];
    int conns, ups, downs, messages, pulls, warned;
    int down_code, pull_code, has_crc;
    char down_text[256];
    uint32_t crc;         /* of the last pull */
    unsigned char *bytes; /* [SIDE_BYTES], registered */
    struct hth_region *region;
    const unsigned char *key; /* NULL: it has none */
    struct hth_key job_key;   /* the same, and more if a test sets it */
    int refusals;             /* lines of the log, and the last of them */
    char refused[256];
    int path_lines; /* lines that say of a path that it failed, and the last of them */
    char path_line[256];
};

void tcp_side_open(struct tcp_side *s, const char *bind);
void tcp_side_open_keyed(struct tcp_side *s, const char *bind, const unsigned char key[HTH_KEY]);
void tcp_side_close(struct tcp_side *s);
void tcp_turns(struct tcp_side *s,
        int turns); /* of progress(), with 1 ms between them when it did nothing */

/* A plain socket that the listener has yet to accept. */
int tcp_dial(const struct tcp_side *s);
int tcp_dial_from(const struct tcp_side *s, const char *ip);
void tcp_say(int fd, const void *bytes, size_t len);
/* More than the kernel takes at once: as the transport turns, until it has closed. */
void tcp_say_all(struct tcp_side *s, int fd, const void *bytes, size_t len);
/* len bytes, while the transport turns; 0: it closed before. */
int tcp_hear(struct tcp_side *s, int fd, void *out, size_t len);
int tcp_is_closed(int fd); /* now, without a turn; whatever came before is thrown away */
int tcp_is_quiet(int fd);  /* open, and not a byte has come */

/* The options of a dialler that has this side's key; without a key nothing is sealed. */
struct hth_seal_opts tcp_greeting(const struct tcp_side *s, enum hth_purpose purpose);
/* A hello alone. */
void tcp_hello(const struct hth_seal_opts *o, unsigned char out[HTH_SEAL_HELLO]);
/* A socket that has sent its whole hello and received the listener's; -1: it was closed before. */
int tcp_greet(struct tcp_side *s, const struct hth_seal_opts *o, struct hth_seal **out);

/* A whole connection of plain sockets; its hth_conn at the other end. */
struct tcp_member {
    int messages, bulk;
    struct hth_seal *messages_seal, *bulk_seal;
    hth_conn conn;
};
void tcp_join(struct tcp_side *s, struct tcp_member *m);
void tcp_leave(struct tcp_member *m);
/* The bytes that were sent are refused as nonsense, and the connection is closed. */
void tcp_must_cost(struct tcp_side *s, const struct tcp_member *m);
void tcp_ask(const struct tcp_member *m, uint64_t pull, const unsigned char desc[HTH_TCP_DESC],
        uint64_t off, uint64_t len);
/* The next frame's header; its body is not read. */
void tcp_hear_head(struct tcp_side *s, const struct tcp_member *m, unsigned char out[HTH_TCP_HEAD]);

#endif
