/* SPDX-License-Identifier: Apache-2.0 */
/* The engine beside us, seen from outside: its process, its rest, its end. */
#include "bench.h"
#include "engines.h"

#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

pid_t engine_pid(const char *root)
{
    pid_t pid = 0;

    return engines_find(root, NULL, &pid, 1) ? pid : 0;
}

void engine_settle(const char *root)
{
    double now, then = -1, end = now_s() + 120;
    pid_t pid = engine_pid(root);
    unsigned calm = 0;

    while (calm < 3) {
        if (!pid)
            die("there is no engine under %s", root);
        now = cpu_of(pid);
        calm = now - then < 0.015 ? calm + 1 : 0;
        then = now;
        if (now_s() > end)
            die("the engine under %s does not come to rest", root);
        nap_ms(100);
    }
}

static int gone(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type;
    return where->level ? remove(path) : 0; /* the root may be a mount */
}

void engine_end(const char *root)
{
    if (engines_signal(root, NULL, SIGKILL) < 0)
        die("the engine under %s does not end", root);
    nftw(root, gone, 16, FTW_DEPTH | FTW_PHYS);
}
