/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: an object that is read here stays as it is until its lease is given back. Which ones we
 * have the link remembers, since a restarted engine has to be asked for them again.
 */
#include "lease.h"

#include "client/link/leases.h"
#include <sys/stat.h>
#include <unistd.h>

/* Only to the engine that gave it: another one's leases have the same numbers. */
static void lease_give_back(struct hearth *h, uint64_t id, uint64_t incarnation)
{
    pthread_mutex_lock(&h->lock);
    if (incarnation == hth_incarnation_locked(h) && hth_is_connected(h))
        hth_give_locked(h, HTH_LOCAL_UNMAP, id);
    pthread_mutex_unlock(&h->lock);
}

int hth_lease_enter(struct hearth *h, struct hth_save_id save, uint64_t object, uint64_t id,
        uint64_t incarnation, int fd, struct hth_lease **out_lease, struct hearth_error *err)
{
    struct hth_lease lease = { .save = save, .object = object, .id = id };
    struct stat st;
    int rc;

    if (fd < 0 || fstat(fd, &st) != 0) {
        lease_give_back(h, id, incarnation);
        return hth_fail(err, HEARTH_EPROTO, 0, "map an object: " HTH_NO_DESCRIPTOR);
    }
    lease.dev = st.st_dev;
    lease.ino = st.st_ino;
    rc = hth_leases_add(h, &lease, incarnation, out_lease);
    if (rc == HEARTH_ENOMEM) {
        lease_give_back(h, id, incarnation);
        return hth_fail(err, rc, 0, "no memory for a lease");
    }
    return rc ? hth_fail(err, rc, 0, "map an object: this node's engine was restarted meanwhile")
              : HEARTH_OK;
}

struct hth_ask hth_lease_ask(struct hth_local_map *m, struct hth_local_mapped *out, int *out_fd)
{
    return (struct hth_ask){ .msg = m,
        .len = sizeof(*m),
        .type = HTH_LOCAL_MAP,
        .want = HTH_LOCAL_MAPPED,
        .fd = -1,
        .again = 1,
        .answer = out,
        .answer_len = sizeof(*out),
        .out_fd = out_fd,
        .what = "map an object" };
}

int hth_lease_get(struct hearth *h, struct hth_save_id save, uint64_t object,
        struct hth_local_mapped *out, int *out_fd, struct hth_lease **out_lease,
        struct hearth_error *err)
{
    struct hth_local_map m = { .save = hth_local_save_of(save), .object = object };
    int fd = -1;
    struct hth_ask ask = hth_lease_ask(&m, out, &fd);
    int rc = hth_ask(h, &ask, err);

    if (rc)
        return rc;
    rc = hth_lease_enter(h, save, object, out->lease, ask.answered, fd, out_lease, err);
    if (!rc)
        *out_fd = fd;
    else if (fd >= 0)
        close(fd);
    return rc;
}

void hth_lease_put(struct hearth *h, struct hth_lease *lease)
{
    hth_leases_drop(h, lease);
}
