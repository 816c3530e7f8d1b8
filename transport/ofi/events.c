/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of libfabric for connections: its event queue, read one event at a time.
 *
 * An event names its endpoint by address. The library may give the address of a closed endpoint to
 * the next one, and need not take the events of a closed endpoint out of its queue. So whoever
 * closes an endpoint empties the queue at once, while the address still means that endpoint alone:
 * its own events are dropped, and those of others wait here for their turn.
 */
#include "ofi.h"

#include <stdlib.h>

static int event_read_error(struct hth_ofi *o, struct hth_ofi_event *out)
{
    struct fi_eq_err_entry e = { 0 };

    if (fi_eq_readerr(o->eq, &e, 0) < 0)
        return 0;
    *out = (struct hth_ofi_event){ .fid = e.fid, .err = e.err };
    return 1;
}

static int event_read(struct hth_ofi *o, struct hth_ofi_event *out)
{
    union {
        struct fi_eq_cm_entry entry;
        unsigned char room[sizeof(struct fi_eq_cm_entry) + 512]; /* the peer's private data */
    } in;
    uint32_t event = 0;
    ssize_t rc = fi_eq_read(o->eq, &event, &in, sizeof(in), 0);

    if (rc == -FI_EAVAIL)
        return event_read_error(o, out);
    if (rc < (ssize_t)sizeof(in.entry))
        return 0;
    *out = (struct hth_ofi_event){ .event = event, .fid = in.entry.fid };
    if (event == FI_CONNREQ)
        out->info = in.entry.info;
    return 1;
}

static void event_refuse(struct hth_ofi *o, struct hth_ofi_event *e)
{
    if (!e->info)
        return;
    fi_reject(o->pep, e->info->handle, NULL, 0);
    o->lib->freeinfo(e->info);
}

/* Keeps the event for its turn. If there is no memory, a request is refused, and other events show
 * by deadlines. */
static void event_keep(struct hth_ofi *o, const struct hth_ofi_event *e)
{
    struct hth_ofi_event *kept = malloc(sizeof(*kept)), **end = &o->kept;

    if (!kept) {
        event_refuse(o, &(struct hth_ofi_event){ .info = e->info });
        return;
    }
    *kept = *e;
    kept->next = NULL;
    while (*end)
        end = &(*end)->next;
    *end = kept;
}

int hth_ofi_event_next(struct hth_ofi *o, struct hth_ofi_event *out)
{
    struct hth_ofi_event *kept = o->kept;

    if (!kept)
        return event_read(o, out);
    o->kept = kept->next;
    *out = *kept;
    free(kept);
    return 1;
}

void hth_ofi_events_drop(struct hth_ofi *o, const struct fid *fid)
{
    struct hth_ofi_event **at = &o->kept, e;

    while (*at) {
        struct hth_ofi_event *kept = *at;

        if (kept->fid != fid) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        free(kept);
    }
    while (event_read(o, &e))
        if (e.fid != fid)
            event_keep(o, &e);
}

void hth_ofi_events_end(struct hth_ofi *o)
{
    struct hth_ofi_event e;

    while (o->kept && hth_ofi_event_next(o, &e))
        event_refuse(o, &e);
}
