/* SPDX-License-Identifier: Apache-2.0 */
/* The engine beside us, seen from outside: its process, its page faults, its end. */
#include "bench.h"
#include "engines.h"

#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pid_t engine_pid(const char *root)
{
    pid_t pid = 0;

    return engines_find(root, NULL, &pid, 1) ? pid : 0;
}

int engine_use(pid_t pid, struct engine_use *out)
{
    unsigned long long faults, user, system;
    char path[64], text[1024] = "";
    const char *at;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    f = fopen(path, "re");
    if (!f)
        return -1;
    at = fgets(text, sizeof(text), f) ? strrchr(text, ')') : NULL;
    fclose(f);
    if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %llu %*u %*u %*u %llu %llu", &faults,
                       &user, &system) != 3)
        return -1;
    out->faults = faults;
    out->cpu_s = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
    return 0;
}

void engine_settle(const char *root)
{
    struct engine_use now, then = { .cpu_s = -1 };
    double end = now_s() + 120;
    pid_t pid = engine_pid(root);
    unsigned calm = 0;

    while (calm < 3) {
        if (!pid || engine_use(pid, &now))
            die("there is no engine under %s", root);
        calm = now.cpu_s - then.cpu_s < 0.015 ? calm + 1 : 0;
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
