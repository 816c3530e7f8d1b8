/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabrics of this node. Loading libfabric takes 0.3 s, and a faulty library crashes or hangs.
 * So each library is asked in a process of its own while the store is opened, and this process
 * loads only the library that it uses.
 */
#include "fabrics.h"

#include "transport/choice.h"
#include <stdlib.h>
#include <string.h>

#define ASKED 3u /* ofi, ucx, tcp */

struct hth_fabrics {
    const struct hth_config *config; /* borrowed until hth_fabrics_close() */
    struct hth_network network;
    struct hth_machine machine;
    struct hth_asking asked[ASKED];
    struct hth_library library[ASKED];
    struct hth_candidates found;
    hth_fabric_open_fn *open;
    void *self;
};

static const char *text_or_null(const char *text)
{
    return text[0] ? text : NULL;
}

struct hth_fabrics *hth_fabrics_ask(
        const struct hth_config *c, hth_fabric_open_fn *open, void *self)
{
    struct hth_fabrics *f = calloc(1, sizeof(*f));
    const char *dir = text_or_null(c->module_dir);

    if (!f)
        return NULL;
    f->config = c;
    f->open = open;
    f->self = self;
    f->network = hth_config_network(c);
    hth_machine_look("", &f->machine);
    hth_offers_ask("ofi", dir, text_or_null(c->fabric_library), &f->machine, &f->asked[0]);
    hth_offers_ask("ucx", dir, text_or_null(c->ucx_library), &f->machine, &f->asked[1]);
    hth_offers_ask("tcp", dir, NULL, &f->machine, &f->asked[2]);
    return f;
}

static void fabrics_hear(struct hth_fabrics *f, const struct hth_log *log)
{
    for (size_t i = 0; i < ASKED; i++) {
        hth_offers_hear(&f->asked[i]);
        f->library[i] = f->asked[i].library;
    }
    hth_candidates_find(&f->network, &f->machine, f->library, ASKED, &f->found);
    for (uint32_t i = 0; i < f->found.count; i++) {
        const struct hth_candidate *c = &f->found.one[i];

        if (c->against[0])
            hth_say(log, HEARTH_LOG_INFO, "fabric-left-out", "%s: %s", c->fabric->name, c->against);
    }
}

static struct hth_transport *fabrics_try(const struct hth_fabrics *f,
        struct hth_node_fabrics *offers, const struct hth_fabric *fabric,
        const struct hth_transport_events *events, const struct hth_log *log)
{
    struct hearth_error err = { 0 };
    struct hth_transport *t;

    if (!fabric || !(offers->offered & HTH_FABRIC_BIT(fabric->number)))
        return NULL;
    t = f->open(f->self, fabric, events, &err);
    if (t) {
        offers->opened = fabric->number;
        return t;
    }
    offers->offered &= ~HTH_FABRIC_BIT(fabric->number);
    hth_say(log, HEARTH_LOG_WARN, "fabric-left-out", "%s: %s", fabric->name, err.text);
    return NULL;
}

static void fabrics_say(const struct hth_fabrics *f, const struct hth_node_fabrics *offers,
        const struct hth_log *log)
{
    for (uint32_t i = 0; i < f->found.count; i++) {
        const struct hth_candidate *c = &f->found.one[i];

        if (c->fabric->number == offers->opened)
            hth_say(log, HEARTH_LOG_INFO, "fabric", "%s: %s%s%s", c->fabric->name,
                    offers->opened == offers->last ? "on record for this job"
                                                   : "the best that opens here",
                    c->rate[0] ? ", " : "", c->rate);
    }
}

struct hth_transport *hth_fabrics_open(struct hth_fabrics *f, struct hth_node_fabrics *offers,
        const struct hth_transport_events *events, const struct hth_log *log,
        struct hearth_error *err)
{
    char why[HTH_ASK_TEXT];
    struct hth_transport *t;

    fabrics_hear(f, log);
    offers->offered = f->found.usable;
    t = fabrics_try(f, offers, hth_fabric_of(offers->last), events, log);
    for (const struct hth_fabric *one = hth_fabrics; !t && one->number; one++)
        t = fabrics_try(f, offers, one, events, log);
    if (t) {
        fabrics_say(f, offers, log);
        return t;
    }
    hth_candidates_why(&f->found, &f->network, &f->machine, why, sizeof(why));
    hth_fail(err, HEARTH_EINVAL, 0, "no fabric of node %s can be taken (transport = auto): %s",
            f->config->node, why[0] ? why : "what is there does not open, see the engine's log");
    return NULL;
}

void hth_fabrics_close(struct hth_fabrics *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < ASKED; i++) /* the engine may have ended before the answers came */
        hth_offers_drop(&f->asked[i]);
    hth_machine_fini(&f->machine);
    free(f);
}
