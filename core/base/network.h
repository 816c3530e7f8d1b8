/* SPDX-License-Identifier: Apache-2.0 */
/* Which machines reach an address, and what the option `network` allows a listener there. */
#ifndef HEARTH_CORE_BASE_NETWORK_H
#define HEARTH_CORE_BASE_NETWORK_H

#include <hearth/error.h>

enum hth_reach {
    HTH_REACH_NONE = -1, /* no numeric address, or no such list of them */
    HTH_REACH_WILDCARD,  /* every interface, those to come too */
    HTH_REACH_LOOPBACK,  /* 127.0.0.0/8, ::1: every user of this machine */
    HTH_REACH_OTHERS,
};
/* Of the option `bind`: one address, or up to HTH_BINDS different ones with commas between, all
 * IPv4 or all IPv6, and all of one reach. */
#define HTH_BINDS      4
#define HTH_BIND_TEXT  48                          /* bytes of one, with its end */
#define HTH_BINDS_TEXT (HTH_BINDS * HTH_BIND_TEXT) /* of the list */
enum hth_reach hth_address_reach(const char *list);
/* The next address of the list at *at into `out`, cut short if it is too long to be one. 0: there
 * is none. */
int hth_bind_next(const char **at, char out[HTH_BIND_TEXT]);
/* 1: the same addresses in the same order, however each is written. */
int hth_binds_equal(const char *a, const char *b);

#define HTH_TRANSPORT_AUTO "auto"

struct hth_network {
    const char *bind;      /* one address or several; NULL: loopback */
    const char *transport; /* "tcp", "ofi", "ucx", "auto" */
    const char *provider;  /* NULL or "": the transport's default */
    int has_key, trusted;
    int strong; /* integrity = strong */
};

/* Which transport that is: what was set, by NULL or "" for unset. A provider alone is
 * libfabric's. */
const char *hth_network_transport(const char *transport, const char *provider);

/* May an engine listen like this? Of auto, which is not a listener yet, as far as a key goes.
 * Errors: HEARTH_EINVAL, one sentence for ranks and hearthd. */
int hth_network_check(const struct hth_network *n, struct hearth_error *err);
/* The same without the question for a key: for a transport, which knows the provider it has
 * taken. */
int hth_listener_check(const struct hth_network *n, struct hearth_error *err);

/* The protections that are missing where this is allowed, a sentence each; returns how many. */
#define HTH_LEFT_OUT      3
#define HTH_LEFT_OUT_TEXT 224
unsigned hth_network_left_out(
        const struct hth_network *n, char out[HTH_LEFT_OUT][HTH_LEFT_OUT_TEXT]);

#endif
