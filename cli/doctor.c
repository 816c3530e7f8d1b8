/* SPDX-License-Identifier: Apache-2.0 */
/* doctor net: the networks of this machine, those that an engine would use, and what is better. */
#include "doctor.h"
#include "cli.h"

#include "client/opts/check.h"
#include "core/base/auth.h"

#include <stdlib.h>
#include <string.h>

const char *doctor_root(void)
{
#ifdef HEARTH_POINTS
    const char *root = getenv("HEARTH_DOCTOR_ROOT");

    return root ? root : "";
#else
    return "";
#endif
}

/* The folder in which tests have modules of their own. */
static const char *doctor_modules(const struct hth_machine *machine, char *out, size_t len)
{
    snprintf(out, len, "%s/modules", machine->root);
    return machine->root[0] ? out : NULL;
}

/* Asks all libraries at once, since each takes its time to load. */
static void doctor_ask(struct doctor *d)
{
    struct hth_asking *asked = calloc(LIBRARIES, sizeof(*asked));
    char modules[300];
    const char *dir = doctor_modules(&d->machine, modules, sizeof(modules));

    d->library[0].transport = "ofi";
    d->library[1].transport = "ucx";
    d->library[2].transport = "tcp";
    if (!asked)
        return;
    hth_offers_ask("ofi", dir, d->opts.fabric_library, &d->machine, &asked[0]);
    hth_offers_ask("ucx", dir, d->opts.ucx_library, &d->machine, &asked[1]);
    hth_offers_ask("tcp", dir, NULL, &d->machine, &asked[2]);
    for (size_t i = 0; i < LIBRARIES; i++) {
        hth_offers_hear(&asked[i]);
        d->library[i] = asked[i].library;
    }
    free(asked);
}

/* Checks the options by the function with which hearth_open() would refuse a rank with this
 * environment. */
static void doctor_ask_open(struct doctor *d)
{
    struct hearth_opts opts = d->opts;
    struct hearth_error err = { 0 };

    opts.rank = 0; /* a launcher's, and doctor may run without one */
    opts.world = 1;
    if (!opts.job) /* as the root, a program may name it by itself */
        opts.job = "job";
    if (!hth_auth_init(&err) && !hth_opts_check(&opts, !opts.root, &err))
        return;
    snprintf(d->choice.refused, sizeof(d->choice.refused), "%s", err.text);
}

void doctor_look(struct doctor *d, const char *root, struct hearth_error *err)
{
    d->opts = (struct hearth_opts)HEARTH_OPTS_INIT;
    *err = (struct hearth_error){ 0 };
    (void)hearth_opts_from_env(&d->opts, err);
    d->opts.root = root;
    hth_machine_look(doctor_root(), &d->machine);
    doctor_ask(d);
    choice_make(&d->opts, &d->machine, d->library, LIBRARIES, &d->choice);
    doctor_ask_open(d);
}

/* ---- for people ------------------------------------------------------------------------------ */

static const char *number_text(int64_t v, char out[24])
{
    snprintf(out, 24, "%" PRId64, v);
    return v < 0 ? "-" : out;
}

static void doctor_print_ports(const struct hth_machine *m)
{
    static const char *const titles[] = { "ADAPTER", "PORT", "LINK", "RATE", "LAYER", "NUMA",
        "INTERFACE" };
    struct grid g = { .columns = 7 };
    char text[24];

    if (!m->ports) {
        puts("RDMA adapters: none (nothing is in /sys/class/infiniband)\n");
        return;
    }
    grid_titles(&g, titles);
    for (unsigned i = 0; i < m->ports; i++) {
        const struct hth_rdma_port *p = &m->port[i];

        grid_add(&g, "%s", p->device);
        grid_add(&g, "%s", number_text(p->port, text));
        grid_add(&g, "%s", p->state);
        grid_add(&g, "%s", p->rate);
        grid_add(&g, "%s", p->layer);
        grid_add(&g, "%s", number_text(p->numa, text));
        grid_add(&g, "%s", p->interface[0] ? p->interface : "-");
    }
    grid_print(&g, "lrlllrl");
    grid_free(&g);
    puts("");
}

static void doctor_print_interfaces(const struct hth_machine *m)
{
    static const char *const titles[] = { "INTERFACE", "LINK", "MBIT/S", "MTU", "NUMA", "RDMA",
        "ADDRESSES" };
    struct grid g = { .columns = 7 };
    char text[24];

    grid_titles(&g, titles);
    for (unsigned i = 0; i < m->interfaces; i++) {
        const struct hth_interface *one = &m->interface[i];

        grid_add(&g, "%s", one->name);
        grid_add(&g, "%s", one->state[0] ? one->state : "-");
        grid_add(&g, "%s", number_text(one->speed_mbit, text));
        grid_add(&g, "%s", number_text(one->mtu, text));
        grid_add(&g, "%s", number_text(one->numa, text));
        grid_add(&g, "%s", one->is_rdma ? "yes" : "-");
        grid_add(&g, "%s", one->addresses[0] ? one->addresses : "-");
    }
    grid_print(&g, "llrrrll");
    grid_free(&g);
    puts("");
}

static const char *offer_state(const struct hth_offer *offer)
{
    return !offer->against[0] ? "yes" : !offer->hardware ? "no hardware" : "no";
}

static void doctor_print_library(const struct hth_library *l)
{
    static const char *const titles[] = { "PROVIDER", "USABLE", "ENDPOINTS", "KEYS", "DEVICES",
        "FABRIC" };
    struct grid g = { .columns = 6 };

    if (!l->answered) {
        say("transport %s: %s\n\n", l->transport, l->why);
        return;
    }
    say("transport %s: %s\n", l->transport, l->offers.library);
    grid_titles(&g, titles);
    for (unsigned i = 0; i < l->offers.count; i++) {
        const struct hth_offer *o = &l->offers.offer[i];

        grid_add(&g, "%s", o->provider);
        grid_add(&g, "%s", offer_state(o));
        grid_add(&g, "%s", o->shape);
        grid_add(&g, "%s", o->keys ? "checked" : "-");
        grid_add(&g, "%s", o->devices[0] ? o->devices : "-");
        grid_add(&g, "%s", o->fabric);
    }
    grid_print(&g, "llllll");
    grid_free(&g);
    puts("");
}

/* Prints the fabrics among which transport = auto chooses, the best first. */
static void doctor_print_candidates(const struct hth_candidates *c)
{
    static const char *const titles[] = { "AUTO", "PROVIDER", "RATE", "USABLE" };
    struct grid g = { .columns = 4 };

    grid_titles(&g, titles);
    for (uint32_t i = 0; i < c->count; i++) {
        const struct hth_candidate *one = &c->one[i];

        grid_add(&g, "%s", one->fabric->transport);
        grid_add(&g, "%s", one->fabric->provider);
        grid_add(&g, "%s", one->rate[0] ? one->rate : "-");
        grid_add(&g, "%s", one->against[0] ? one->against : "yes");
    }
    grid_print(&g, "llll");
    grid_free(&g);
    puts("");
}

static void doctor_print_memlock(const struct hth_machine *m)
{
    char size[32];

    human(size, m->memlock_bytes);
    if (m->memlock_bytes == UINT64_MAX)
        puts("locked memory  unlimited");
    else if (m->locks_any)
        say("locked memory  any, by the capability IPC_LOCK (the limit is %s)\n", size);
    else if (m->memlock_bytes < LEAST_MEMLOCK)
        say("locked memory  %s: too little for an RDMA adapter, for which all slots are locked "
            "(ulimit -l, LimitMEMLOCK=infinity)\n",
                size);
    else
        say("locked memory  %s: with an RDMA adapter all slots are locked, and must fit\n", size);
}

static void doctor_print_settings(const struct doctor *d)
{
    const char *control = d->machine.congestion;

    doctor_print_memlock(&d->machine);
    say("huge pages     %s\n", d->pages.text);
    say("TCP            congestion control %s%s\n\n", control[0] ? control : "not known",
            strcmp(control, "bbr") == 0
                    ? ": over loopback half as fast as cubic or reno; compare only like with like"
                    : "");
}

static void doctor_print_choice(const struct doctor *d)
{
    const struct choice *c = &d->choice;

    say("chosen         transport %s (%s), provider %s (%s), address %s (%s)\n", c->transport,
            c->transport_by, c->provider, c->provider_by, c->bind, c->bind_by);
    if (c->refused[0])
        say("does not open  %s\n", c->refused);
    else
        say("opens          nothing that can be seen stands against it%s\n",
                d->opts.root ? "" : "; no root is named, so none is checked");
    if (c->why[0])
        say("why            %s\n", c->why);
    if (c->note[0])
        say("note           %s\n", c->note);
    for (unsigned i = 0; i < c->betters; i++)
        say("%s  %s (%s): %s\n",
                c->better[i].offer->against[0] ? "not better yet" : "better       ",
                c->better[i].offer->provider, c->better[i].offer->fabric, c->better[i].text);
    if (!c->betters)
        puts("better         nothing: no other provider's hardware is here");
}

static void doctor_print(const struct doctor *d)
{
    doctor_print_ports(&d->machine);
    doctor_print_interfaces(&d->machine);
    for (size_t i = 0; i < LIBRARIES; i++)
        doctor_print_library(&d->library[i]);
    doctor_print_settings(d);
    doctor_print_candidates(&d->choice.candidates);
    doctor_print_choice(d);
}

/* ---- for programs ---------------------------------------------------------------------------- */

static json_t *json_words(const char *text)
{
    return text[0] ? json_text(text, strlen(text)) : json_null();
}

static json_t *json_count(int64_t v)
{
    return v < 0 ? json_null() : json_integer(v);
}

static json_t *json_adapters(const struct hth_machine *m)
{
    json_t *all = json_array();

    for (unsigned i = 0; i < m->ports; i++) {
        const struct hth_rdma_port *p = &m->port[i];

        json_array_append_new(all,
                json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "adapter", json_words(p->device),
                        "port", json_count(p->port), "link", json_words(p->state), "rate",
                        json_words(p->rate), "layer", json_words(p->layer), "numa",
                        json_count(p->numa), "interface", json_words(p->interface)));
    }
    return all;
}

static json_t *json_interfaces(const struct hth_machine *m)
{
    json_t *all = json_array();

    for (unsigned i = 0; i < m->interfaces; i++) {
        const struct hth_interface *one = &m->interface[i];

        json_array_append_new(all,
                json_pack("{s:o, s:o, s:o, s:o, s:o, s:b, s:o}", "interface", json_words(one->name),
                        "link", json_words(one->state), "speed_mbit", json_count(one->speed_mbit),
                        "mtu", json_count(one->mtu), "numa", json_count(one->numa), "rdma",
                        one->is_rdma, "addresses", json_words(one->addresses)));
    }
    return all;
}

static json_t *json_library(const struct hth_library *l)
{
    json_t *providers = json_array();

    for (unsigned i = 0; i < l->offers.count; i++) {
        const struct hth_offer *o = &l->offers.offer[i];

        json_array_append_new(
                providers, json_pack("{s:o, s:o, s:o, s:o, s:b, s:o, s:b, s:o}", "provider",
                                   json_words(o->provider), "fabric", json_words(o->fabric),
                                   "endpoints", json_words(o->shape), "devices",
                                   json_words(o->devices), "offered", o->offered, "hardware",
                                   o->hardware < 0 ? json_null() : json_boolean(o->hardware),
                                   "keys", o->keys, "against", json_words(o->against)));
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "transport", l->transport, "library",
            json_words(l->offers.library), "error", json_words(l->why), "providers", providers);
}

static json_t *json_candidates(const struct hth_candidates *c)
{
    json_t *all = json_array();

    for (uint32_t i = 0; i < c->count; i++)
        json_array_append_new(
                all, json_pack("{s:s, s:s, s:o, s:o}", "transport", c->one[i].fabric->transport,
                             "provider", c->one[i].fabric->provider, "rate",
                             json_words(c->one[i].rate), "against", json_words(c->one[i].against)));
    return all;
}

static json_t *json_choice(const struct choice *c)
{
    json_t *better = json_array();

    for (unsigned i = 0; i < c->betters; i++)
        json_array_append_new(better,
                json_pack("{s:s, s:b, s:o}", "provider", c->better[i].offer->provider, "usable",
                        !c->better[i].offer->against[0], "text", json_words(c->better[i].text)));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "transport",
            c->transport, "transport_by", c->transport_by, "provider", c->provider, "provider_by",
            c->provider_by, "bind", c->bind, "bind_by", c->bind_by, "refused",
            json_words(c->refused), "why", json_words(c->why), "note", json_words(c->note),
            "candidates", json_candidates(&c->candidates), "better", better);
}

static json_t *json_doctor(const struct doctor *d)
{
    json_t *libraries = json_array();
    uint64_t memlock = d->machine.memlock_bytes;

    for (size_t i = 0; i < LIBRARIES; i++)
        json_array_append_new(libraries, json_library(&d->library[i]));
    return json_pack("{s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:b, s:o, s:o, s:o}", "adapters",
            json_adapters(&d->machine), "interfaces", json_interfaces(&d->machine), "libraries",
            libraries, "memlock_bytes",
            memlock > INT64_MAX ? json_null() : json_integer((json_int_t)memlock), "locks_any",
            d->machine.locks_any || memlock == UINT64_MAX, "mount", json_words(d->pages.mount),
            "huge", json_words(d->pages.huge), "huge_pages", d->pages.are_huge, "pages",
            json_words(d->pages.text), "congestion_control", json_words(d->machine.congestion),
            "choice", json_choice(&d->choice));
}

enum status doctor_net(const struct args *a)
{
    struct doctor *d = calloc(1, sizeof(*d));
    struct hearth_error err;
    enum status printed = STATUS_OK, status;

    if (!d)
        return complain(&(struct hearth_error){ HEARTH_ENOMEM, 0, "no memory to look" });
    doctor_look(d, a->root, &err);
    if (err.code)
        remark("%s", err.text);
    hth_pages_look(doctor_root(), a->root, 1, &d->pages);
    status = remarks() || d->choice.refused[0] ? STATUS_WRONG : STATUS_OK;
    if (a->json)
        printed = print_json(json_doctor(d));
    else
        doctor_print(d);
    hth_machine_fini(&d->machine);
    free(d);
    return printed ? printed : status;
}
