/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path between two machines: packets that are lost on the way, all of them, the large ones, or
 * those above a rate. A rule of nftables where they arrive drops them, so neither end is notified.
 */
#include "cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE_BYTES 1000u

/* `nft COMMANDS` in machine k: its exit status, 127 where there is no nft. */
static int path_nft(struct world *w, uint32_t k, const char *commands)
{
    int status = -1;
    pid_t pid;

    fflush(NULL);
    pid = node_fork(w, k);
    if (pid == 0) {
        execlp("nft", "nft", commands, (char *)NULL);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* `which` of the packets that k sends to `to` are lost: a condition of nft; "": all. */
static int path_drop(struct world *w, uint32_t k, uint32_t to, const char *which)
{
    char commands[300];
    int rc;

    if (!w->namespaces)
        return SKIPPED;
    snprintf(commands, sizeof(commands),
            "add table ip path; add chain ip path in { type filter hook input priority 0 ; }; "
            "add rule ip path in ip saddr %s %s drop",
            w->node[k].address, which);
    rc = path_nft(w, to, commands);
    if (rc == 127)
        return SKIPPED;
    note(w, "packets that %s sends to %s are lost: %s", w->node[k].name, w->node[to].name,
            which[0] ? which : "all");
    return rc ? lost(w, "nft: exit status %d for: %s", rc, commands) : 0;
}

int path_cut(struct world *w, uint32_t k, uint32_t to, enum loss loss)
{
    char size[40] = "";

    if (loss == LOSE_LARGE)
        snprintf(size, sizeof(size), "meta length > %u", LARGE_BYTES);
    return path_drop(w, k, to, size);
}

int path_slow(struct world *w, uint32_t k, uint32_t to)
{
    return path_drop(w, k, to, "limit rate over 2 mbytes/second burst 64 kbytes");
}

int path_cut_link(struct world *w, uint32_t link)
{
    char commands[300];

    if (!w->namespaces)
        return SKIPPED;
    snprintf(commands, sizeof(commands),
            "add table ip path; add chain ip path in { type filter hook input priority 0 ; }; "
            "add rule ip path in iifname eth%u drop",
            link);
    for (uint32_t k = 0; k < w->nodes; k++) {
        int rc = path_nft(w, k, commands);

        if (rc)
            return rc == 127 ? SKIPPED : lost(w, "nft: exit status %d for: %s", rc, commands);
    }
    note(w, "packets on link %u are lost", link);
    return 0;
}

int path_mend(struct world *w)
{
    for (uint32_t k = 0; w->namespaces && k < w->nodes; k++) {
        int rc = w->node[k].up ? path_nft(w, k, "add table ip path; delete table ip path") : 0;

        if (rc && rc != 127)
            return lost(w, "nft: exit status %d for the end of a cut", rc);
    }
    note(w, "no packets are lost any more");
    return 0;
}
