/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport's module whose library is made up: <root>/offers.<TRANSPORT> has its version in the
 * first line, then an offer each: "provider|fabric|shape|devices|hardware|offered|keys|against",
 * of which verbs' find peers by IP. A line "crash" or "hang" is done.
 */
#include "transport/offers.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void offer_read(char *line, struct hth_offer *out)
{
    char *part[8] = { 0 };

    for (size_t i = 0; i < 8; i++)
        part[i] = strsep(&line, "|");
    if (!part[7])
        abort();
    snprintf(out->provider, sizeof(out->provider), "%s", part[0]);
    snprintf(out->fabric, sizeof(out->fabric), "%s", part[1]);
    snprintf(out->shape, sizeof(out->shape), "%s", part[2]);
    snprintf(out->devices, sizeof(out->devices), "%s", part[3]);
    out->hardware = atoi(part[4]);
    out->offered = atoi(part[5]);
    out->keys = atoi(part[6]);
    out->needs_ip = !strcmp(part[0], "verbs");
    snprintf(out->against, sizeof(out->against), "%s", part[7]);
}

hth_transport_list_fn hth_transport_list;
__attribute__((visibility("default"))) int hth_transport_list(const char *library,
        const struct hth_machine *machine, struct hth_offers *out, struct hearth_error *err)
{
    char path[PATH_MAX], line[1024];
    FILE *f;

    snprintf(path, sizeof(path), "%s/offers." TRANSPORT, machine->root);
    f = fopen(path, "r");
    if (!f) {
        err->code = HEARTH_ENOENT;
        snprintf(err->text, sizeof(err->text), "there is no %s", library ? library : "library");
        return HEARTH_ENOENT;
    }
    while (fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        if (!strcmp(line, "crash"))
            abort();
        while (!strcmp(line, "hang"))
            pause();
        if (!out->library[0])
            snprintf(out->library, sizeof(out->library), "%.150s", line);
        else
            offer_read(line, &out->offer[out->count++]);
    }
    fclose(f);
    return HEARTH_OK;
}
