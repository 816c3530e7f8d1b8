/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of endpoints without connections. What others dial, at most HTH_ADDR_MAX bytes:
 *
 *    u8 2 (version)   u8 libfabric's number of the address format   u16 port, 0: none   the provider's bytes
 *
 * It comes from peers, so it is looked at before the library sees it: the provider reads as many
 * bytes as the format has, and not as many as there are.
 */
#include "rdm.h"

#include "core/base/bytes.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOB_VERSION 2u
#define BLOB_HEAD    4u

static int format_is_ip(uint32_t format)
{
    return format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6 || format == FI_SOCKADDR;
}

int hth_rdm_blob(struct hth_rdm *r, struct fid_ep *ep, unsigned char *out, uint32_t *out_len)
{
    unsigned char bytes[256];
    union hth_addr ip = { 0 };
    size_t len = sizeof(bytes);
    int rc = fi_getname(&ep->fid, bytes, &len);

    if (!rc && len > HTH_RDM_ADDR)
        rc = -FI_ETOOSMALL;
    if (rc)
        return rc;
    if (format_is_ip(r->o.info->addr_format))
        memcpy(&ip, bytes, len < sizeof(ip) ? len : sizeof(ip));
    out[0] = BLOB_VERSION;
    out[1] = (unsigned char)r->o.info->addr_format;
    hth_put16(out + 2, ntohs(ip.in.sin_port)); /* sin6_port is there, too */
    memcpy(out + BLOB_HEAD, bytes, len);
    *out_len = BLOB_HEAD + (uint32_t)len;
    return 0;
}

/* "fi_shm://...": the library takes the end from the terminator, and the name is a file's. */
static int text_is_sound(const unsigned char *text, uint32_t len)
{
    const char *name = text[len - 1] ? NULL : strstr((const char *)text, "://");

    return name && strlen((const char *)text) == len - 1 && !strchr(name + 3, '/');
}

static int peer_is_sound(const struct hth_rdm *r, const unsigned char *blob, uint32_t len)
{
    uint32_t format = r->o.info->addr_format, own = r->address_len - BLOB_HEAD;
    const unsigned char *at = blob + BLOB_HEAD;
    union hth_addr ip = { 0 };

    if (!blob || len <= BLOB_HEAD || len > HTH_ADDR_MAX || blob[0] != BLOB_VERSION ||
            blob[1] != (unsigned char)format)
        return 0;
    len -= BLOB_HEAD;
    if (format == FI_ADDR_STR)
        return text_is_sound(at, len);
    if (len != own)
        return 0;
    if (!format_is_ip(format))
        return 1;
    if (len > sizeof(ip))
        return 0;
    memcpy(&ip, at, len);
    return ip.sa.sa_family == r->o.self.sa.sa_family && ip.in.sin_port &&
           !hth_addr_is_wildcard(&ip);
}

static void peer_label(struct hth_rdm *r, struct hth_rdm_peer *p)
{
    char text[128] = "";
    size_t len = sizeof(text);
    union hth_addr ip = { 0 };

    if (format_is_ip(r->o.info->addr_format)) {
        memcpy(&ip, p->blob + BLOB_HEAD, p->len - BLOB_HEAD);
        hth_addr_text(&ip, p->label);
        return;
    }
    fi_av_straddr(r->home.av, p->blob + BLOB_HEAD, text, &len);
    snprintf(p->label, sizeof(p->label), "%.*s", (int)sizeof(p->label) - 1, text);
}

int hth_rdm_peer_get(struct hth_rdm *r, const unsigned char *blob, uint32_t len,
        struct hth_rdm_peer **out, struct hearth_error *err)
{
    struct hth_rdm_peer *p;
    int rc;

    if (!peer_is_sound(r, blob, len))
        return hth_fail(err, HEARTH_EINVAL, 0, "this is no address for libfabric provider %s",
                r->o.info->fabric_attr->prov_name);
    for (p = r->peers; p; p = p->next)
        if (p->len == len && memcmp(p->blob, blob, len) == 0) {
            p->refs++;
            *out = p;
            return HEARTH_OK;
        }
    p = calloc(1, sizeof(*p));
    if (!p)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a peer's address");
    memcpy(p->blob, blob, len);
    p->len = len;
    p->refs = 1;
    peer_label(r, p);
    rc = fi_av_insert(r->home.av, p->blob + BLOB_HEAD, 1, &p->home, 0, NULL);
    if (rc != 1) {
        rc = hth_fail(err, hth_ofi_is_used_up(rc) ? HEARTH_EBUSY : HEARTH_EINVAL, rc < 0 ? -rc : 0,
                "libfabric does not take the address %s", p->label);
        free(p);
        return rc;
    }
    p->next = r->peers;
    r->peers = p;
    *out = p;
    return HEARTH_OK;
}

static void peer_leave_pull_end(struct hth_rdm_peer *peer, struct hth_rdm_end *e)
{
    for (int i = 0; e && e->av && i < 2; i++)
        if (peer->pull[i].number == e->number)
            fi_av_remove(e->av, &peer->pull[i].addr, 1, 0);
}

void hth_rdm_peer_put(struct hth_rdm *r, struct hth_rdm_peer *peer)
{
    struct hth_rdm_peer **at = &r->peers;

    if (!peer || --peer->refs)
        return;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    peer_leave_pull_end(peer, r->pull);
    peer_leave_pull_end(peer, r->old);
    /* At the end the vector goes as a whole. Of one that is used shm (2.1) looks into the peer's
     * memory, which of a peer in this process may be gone. */
    if (r->home.av && !r->o.closing)
        fi_av_remove(r->home.av, &peer->home, 1, 0);
    free(peer);
}

int hth_rdm_peer_at(struct hth_rdm_conn *c, struct hth_rdm_end *e, fi_addr_t *out)
{
    struct hth_rdm_peer *p = c->peer;
    uint32_t i = e->number % 2; /* two live at once, at most, one after the other */
    int rc;

    if (p->pull[i].number != e->number) {
        rc = fi_av_insert(e->av, p->blob + BLOB_HEAD, 1, &p->pull[i].addr, 0, NULL);
        if (rc != 1)
            return rc < 0 ? rc : -FI_EINVAL;
        p->pull[i].number = e->number;
    }
    *out = p->pull[i].addr;
    return 0;
}

static void peer_ip(const struct hth_rdm_peer *peer, union hth_addr *out)
{
    memset(out, 0, sizeof(*out));
    memcpy(out, peer->blob + BLOB_HEAD, peer->len - BLOB_HEAD);
}

void hth_rdm_peer_note_socket(struct hth_rdm *r, struct hth_rdm_peer *peer)
{
    union hth_addr there;

    if (!r->o.sockets || peer->home_known)
        return;
    peer_ip(peer, &there);
    peer->home_port = hth_ofi_socket_port(&r->o.self, &there);
    peer->home_known = 1;
}

void hth_rdm_peer_end_reads(struct hth_rdm *r, struct hth_rdm_peer *peer)
{
    union hth_addr there;

    peer_ip(peer, &there);
    hth_ofi_sockets_end(&r->o.self, &there, peer->home_port);
}
