/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Providers where the network card carries out a read and checks its key, and the card behind an
 * interface: UCX wants it by name and port, "mlx5_0:1", where everybody else says "ib0" or "eth2".
 */
#include "rdma.h"

#include "core/base/open.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const cards[] = { "rc", "rc_verbs", "rc_mlx5", "dc", "dc_mlx5" };

static int card_is_known(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(cards) / sizeof(cards[0]); i++)
        if (strlen(cards[i]) == len && memcmp(cards[i], name, len) == 0)
            return 1;
    return 0;
}

int hth_ucx_is_rdma(const char *provider)
{
    for (;;) {
        size_t len = strcspn(provider, ",");

        if (!card_is_known(provider, len))
            return 0;
        if (!provider[len])
            return 1;
        provider += len + 1;
    }
}

/* The first line of the file, without its end; "" where there is none. */
static void line_read(const char *path, char *out, size_t len)
{
    FILE *f = hth_open_kernel_text(path);

    out[0] = '\0';
    if (f && fgets(out, (int)len, f))
        out[strcspn(out, "\n")] = '\0';
    if (f)
        fclose(f);
}

/* The first entry of the folder for which fits() is true; 0: none. */
static int entry_find(const char *dir, int (*fits)(const char *dir, const char *name, void *arg),
        void *arg, char *out, size_t len)
{
    DIR *d = hth_open_kernel_list(dir);
    struct dirent *entry;
    int found = 0;

    while (d && !found && (entry = readdir(d)) != NULL) {
        found = entry->d_name[0] != '.' && fits(dir, entry->d_name, arg);
        if (found)
            snprintf(out, len, "%.40s", entry->d_name);
    }
    if (d)
        closedir(d);
    return found;
}

static int entry_any(const char *dir, const char *name, void *arg)
{
    (void)dir, (void)name, (void)arg;
    return 1;
}

/* A file that says the interface's name. */
static int ndev_fits(const char *dir, const char *name, void *interface)
{
    char path[PATH_MAX], line[64];

    snprintf(path, sizeof(path), "%.3000s/%.40s", dir, name);
    line_read(path, line, sizeof(line));
    return strcmp(line, interface) == 0;
}

/* A port one of whose addresses lies on the interface: RoCE, also over a VLAN or a bond. */
static int port_fits(const char *dir, const char *name, void *interface)
{
    char path[PATH_MAX], found[64];

    snprintf(path, sizeof(path), "%.3000s/%.40s/gid_attrs/ndevs", dir, name);
    return entry_find(path, ndev_fits, interface, found, sizeof(found));
}

struct card {
    const char *interface;
    char port[64];
};

static int card_fits(const char *dir, const char *name, void *arg)
{
    struct card *card = arg;
    char path[PATH_MAX];
    char interface[64];

    snprintf(path, sizeof(path), "%.3000s/%.40s/ports", dir, name);
    snprintf(interface, sizeof(interface), "%.40s", card->interface);
    return entry_find(path, port_fits, interface, card->port, sizeof(card->port));
}

int hth_ucx_rdma_device(const char *sys, const char *interface, char out[HTH_UCX_DEVICE])
{
    struct card card = { .interface = interface };
    char path[PATH_MAX], name[64], line[64];

    /* InfiniBand: the interface is one of the card's own; its ports count from 0 there. */
    snprintf(path, sizeof(path), "%.3000s/class/net/%.40s/device/infiniband", sys, interface);
    if (entry_find(path, entry_any, NULL, name, sizeof(name))) {
        snprintf(path, sizeof(path), "%.3000s/class/net/%.40s/dev_port", sys, interface);
        line_read(path, line, sizeof(line));
        snprintf(out, HTH_UCX_DEVICE, "%.40s:%ld", name, strtol(line, NULL, 10) + 1);
        return 1;
    }
    snprintf(path, sizeof(path), "%.3000s/class/infiniband", sys);
    if (!entry_find(path, card_fits, &card, name, sizeof(name)))
        return 0;
    snprintf(out, HTH_UCX_DEVICE, "%.40s:%.16s", name, card.port);
    return 1;
}
