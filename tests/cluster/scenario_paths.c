/* SPDX-License-Identifier: Apache-2.0 */
/* Machines with two interfaces, of which one goes dead under saves: nobody is lost, and when the
 * link is back both carry bytes again. */
#include "cluster.h"

#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* That machines have received by each link, as the switches count. */
static int links_carried(struct world *w, uint64_t out[2])
{
    FILE *f = fopen("/proc/self/net/dev", "re");
    char line[400], kind[2];
    unsigned made;
    uint64_t in, sent;

    out[0] = out[1] = 0;
    if (!f)
        return lost(w, "/proc/self/net/dev cannot be read");
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, " %1[vw]%u: %lu %*u %*u %*u %*u %*u %*u %*u %lu", kind, &made, &in,
                    &sent) == 4)
            out[kind[0] == 'w'] += sent;
    fclose(f);
    return 0;
}

static int save_counted(struct world *w, uint64_t step, uint64_t out[2])
{
    uint64_t before[2];

    TRY(links_carried(w, before));
    TRY(world_save(w, step));
    TRY(links_carried(w, out));
    out[0] -= before[0];
    out[1] -= before[1];
    note(w, "step %lu: %lu KiB by link 0, %lu KiB by link 1", (unsigned long)step,
            (unsigned long)out[0] / 1024, (unsigned long)out[1] / 1024);
    return 0;
}

static int nobody_is_lost(struct world *w)
{
    for (uint32_t k = 0; k < w->nodes; k++)
        if (node_log_has(w, k, " peer-down ") || node_log_has(w, k, " peers-apart ") ||
                node_log_has(w, k, " node-lost "))
            return lost(w, "the engine of %s calls a node lost", w->node[k].name);
    return 0;
}

/* arg: the link that is cut, and whether peers are lost sooner than the kernel finds that a link is
 * dead. By link 0 go messages, too. */
static int link_cut(struct world *w, const char *arg)
{
    uint32_t cut = arg[0] == '1';
    uint64_t step = 2, carried[2] = { 0 }, until;
    int rc, said = 0;

    w->two_links = 1;
    w->dead_ms = arg[1] ? 2000 : 5000; /* 5000: the default, as is stall_ms then */
    w->kib = 8 * 1024;
    w->save_ms = 40000;
    TRY(world_begin(w, 3, 1, step));
    TRY(save_counted(w, ++step, carried));
    if (carried[0] < MIB || carried[1] < MIB)
        return lost(w, "one of two links carries nothing");
    TRY(world_save_begin(w, ++step));
    if ((rc = path_cut_link(w, cut)))
        return rc;
    TRY(world_save_end(w, step));
    for (int i = 0; i < 3; i++)
        TRY(save_counted(w, ++step, carried));
    TRY(nobody_is_lost(w));
    for (until = now_ms() + 5000; !said && now_ms() < until; nap_ms(50))
        for (uint32_t k = 0; k < 3; k++)
            said += node_log_has(w, k, cut ? " path-failed 10.78.0." : " path-failed 10.77.0.");
    if (!said)
        return lost(w, "no engine's log has the address that failed");
    TRY(path_mend(w));
    for (until = now_ms() + 60000; now_ms() < until;) {
        TRY(save_counted(w, ++step, carried));
        if (carried[0] >= MIB && carried[1] >= MIB)
            return nobody_is_lost(w);
        nap_ms(1000);
    }
    return lost(w, "a link that is whole again carries nothing after a minute");
}

const struct scenario scenarios_paths[] = { { "cut-link-0", link_cut, "0" },
    { "cut-link-1", link_cut, "1" }, { "cut-link-0-dead-soon", link_cut, "0s" }, { 0 } };
