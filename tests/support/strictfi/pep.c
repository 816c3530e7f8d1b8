/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening endpoints. Their socket's name is the address as text; a request is an event with a
 * handle, and exists until it is accepted or rejected.
 */
#include "strictfi.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sfi_pep *listeners;

struct sfi_pep *sfi_peps(void)
{
    return listeners;
}

void sfi_sockaddr_text(const void *addr, char *out, size_t cap)
{
    const struct sockaddr_in *in = addr;
    const struct sockaddr_in6 *in6 = addr;
    char ip[INET6_ADDRSTRLEN] = "";

    if (in->sin_family == AF_INET6)
        inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof(ip));
    else
        inet_ntop(AF_INET, &in->sin_addr, ip, sizeof(ip));
    snprintf(out, cap, "strictfi-%s-%u", ip, ntohs(in->sin_port)); /* both have it there */
}

/* ---- requests ---- */

static struct fi_ops request_ops = {
    .size = sizeof(struct fi_ops),
    .close = NULL,
    .bind = sfi_no_bind,
    .control = sfi_no_control,
    .ops_open = sfi_no_ops,
};

static void request_put(
        struct sfi_pep *pep, const struct sfi_wire *head, const void *data, size_t len)
{
    struct sfi_request *r = calloc(1, sizeof(*r));
    struct fi_info *info = fi_dupinfo(pep->info);

    if (!r || !info) {
        free(r);
        return;
    }
    r->fid = (struct fid){ FI_CLASS_CONNREQ, NULL, &request_ops };
    r->from = head->from;
    r->next = pep->requests;
    pep->requests = r;
    info->handle = &r->fid;
    /* The dialler is on this machine, too; its port means nothing, and ours stands there. */
    info->dest_addr = malloc(info->src_addrlen);
    if (info->dest_addr) {
        memcpy(info->dest_addr, info->src_addr, info->src_addrlen);
        info->dest_addrlen = info->src_addrlen;
    }
    sfi_eq_put(pep->eq, FI_CONNREQ, &pep->fid.fid, info, 0, data, len);
}

uint32_t sfi_request_from(struct fid *handle)
{
    for (struct sfi_pep *pep = listeners; pep; pep = pep->next)
        for (struct sfi_request *r = pep->requests; r; r = r->next)
            if (&r->fid == handle)
                return r->from;
    sfi_sin("connect", "an endpoint was made of a request that is no more, or answered");
}

uint32_t sfi_request_take(struct fid *handle)
{
    for (struct sfi_pep *pep = listeners; pep; pep = pep->next)
        for (struct sfi_request **at = &pep->requests; *at; at = &(*at)->next) {
            struct sfi_request *r = *at;
            uint32_t from = r->from;

            if (&r->fid != handle)
                continue;
            *at = r->next;
            free(r);
            return from;
        }
    sfi_sin("connect", "a request was answered that is no more");
}

void sfi_pep_progress(struct sfi_pep *pep)
{
    unsigned char data[SFI_CM_DATA];
    struct sfi_wire head;
    ssize_t n;

    while (pep->listening && (n = sfi_wire_fetch(pep->sock, &head, data, sizeof(data))) >= 0) {
        if (head.word == SFI_WORD_CONNECT)
            request_put(pep, &head, data, (size_t)n);
        if (head.memory >= 0)
            close(head.memory);
    }
}

/* ---- what a program does with one ---- */

static int pep_close(struct fid *fid)
{
    struct sfi_pep *pep = sfi_of(fid, struct sfi_pep, fid.fid), **at;
    struct sfi_request *r;

    sfi_lock();
    for (at = &listeners; *at != pep; at = &(*at)->next)
        ;
    *at = pep->next;
    while ((r = pep->requests)) {
        pep->requests = r->next;
        free(r);
    }
    if (pep->eq) {
        sfi_eq_forget(pep->eq, fid);
        pep->eq->children--;
    }
    sfi_wire_unbind(pep->sock, pep->name);
    pep->fabric->children--;
    sfi_unlock();
    fi_freeinfo(pep->info);
    free(pep);
    return 0;
}

static int pep_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    struct sfi_pep *pep = sfi_of(fid, struct sfi_pep, fid.fid);

    (void)flags;
    if (bfid->fclass != FI_CLASS_EQ)
        return -FI_EINVAL;
    sfi_lock();
    pep->eq = sfi_of(bfid, struct sfi_eq, fid.fid);
    pep->eq->children++;
    sfi_unlock();
    return 0;
}

/* Port 0: chooses a port that no other endpoint has. */
static int pep_name(struct sfi_pep *pep)
{
    struct sockaddr_in *in = pep->info->src_addr;
    int given = in->sin_port != 0;

    do {
        if (!given)
            in->sin_port = htons((uint16_t)(20000 + sfi_unique() % 40000));
        sfi_sockaddr_text(in, pep->name, sizeof(pep->name));
        pep->sock = sfi_wire_bind(pep->name);
    } while (!given && pep->sock == -EADDRINUSE);
    return pep->sock < 0 ? pep->sock : 0;
}

static int pep_listen(struct fid_pep *fid)
{
    struct sfi_pep *pep = sfi_of(fid, struct sfi_pep, fid);

    sfi_lock();
    if (!pep->eq)
        sfi_sin("connect", "fi_listen() was called on an endpoint without an event queue");
    pep->listening = 1;
    sfi_auto_start();
    sfi_auto_nudge();
    sfi_unlock();
    return 0;
}

static int pep_getname(fid_t fid, void *addr, size_t *len)
{
    struct sfi_pep *pep = sfi_of(fid, struct sfi_pep, fid.fid);
    size_t room = *len;

    *len = pep->info->src_addrlen;
    if (room < *len)
        return -FI_ETOOSMALL;
    memcpy(addr, pep->info->src_addr, *len);
    return 0;
}

static int pep_reject(struct fid_pep *fid, fid_t handle, const void *data, size_t len)
{
    struct sfi_pep *pep = sfi_of(fid, struct sfi_pep, fid);
    struct sfi_wire head = { .word = SFI_WORD_REJECT };

    sfi_lock();
    sfi_cm_data_check("fi_reject()", len);
    sfi_wire_throw(pep->sock, sfi_request_take(handle), &head, data, len);
    sfi_unlock();
    return 0;
}

static int pep_getopt(fid_t fid, int level, int name, void *value, size_t *len)
{
    (void)fid;
    return sfi_cm_getopt(level, name, value, len);
}

static int no_pep_setopt(fid_t fid, int level, int name, const void *value, size_t len)
{
    (void)fid, (void)level, (void)name, (void)value, (void)len;
    return -FI_ENOPROTOOPT;
}

static struct fi_ops pep_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = pep_close,
    .bind = pep_bind,
    .control = sfi_no_control,
    .ops_open = sfi_no_ops,
};

static struct fi_ops_ep pep_ep_ops = {
    .size = sizeof(struct fi_ops_ep),
    .getopt = pep_getopt,
    .setopt = no_pep_setopt,
};

static struct fi_ops_cm pep_cm_ops = {
    .size = sizeof(struct fi_ops_cm),
    .getname = pep_getname,
    .listen = pep_listen,
    .reject = pep_reject,
};

int sfi_pep_open(
        struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **out, void *context)
{
    struct sfi_fabric *f = sfi_of(fabric, struct sfi_fabric, fid);
    struct sfi_pep *pep;
    int rc;

    if (sfi_profile()->type != FI_EP_MSG || !info->src_addr)
        return -FI_EINVAL;
    pep = calloc(1, sizeof(*pep));
    if (!pep)
        return -FI_ENOMEM;
    pep->fabric = f;
    pep->owner = getpid();
    pep->info = fi_dupinfo(info);
    rc = pep->info ? pep_name(pep) : -FI_ENOMEM;
    if (rc) {
        fi_freeinfo(pep->info);
        free(pep);
        return rc;
    }
    pep->fid.fid = (struct fid){ FI_CLASS_PEP, context, &pep_fid_ops };
    pep->fid.ops = &pep_ep_ops;
    pep->fid.cm = &pep_cm_ops;
    sfi_lock();
    f->children++;
    pep->next = listeners;
    listeners = pep;
    sfi_unlock();
    *out = &pep->fid;
    return 0;
}
