/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: limits of this shell, of running engines, and of the container; the clock. */
#include "checkup.h"

#include "core/base/auth.h"
#include "core/base/full.h"
#include "core/base/open.h"
#include "core/store/need.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <unistd.h>

#define THREADS_LEAST 64u /* more than an engine has: workers, lanes, those of a library */
#define STACK         (64u << 10)
#define FILES_FEW     1024u
#define SHM_FEW       (UINT64_C(64) << 20) /* what containers have by default */

/* This shell and each running engine of this process namespace: "self", or a pid. 0: no more. */
static int see_who(const struct checkup *c, unsigned i, char who[24], char text[320])
{
    unsigned engines = 0;

    snprintf(who, 24, "self");
    snprintf(text, 320, "a process of this shell");
    for (unsigned k = 0; i && k < c->patients; k++) {
        const struct patient *p = &c->patient[k];

        if (p->engine.pid <= 0 || ++engines != i)
            continue;
        snprintf(who, 24, "%ld", (long)p->engine.pid);
        snprintf(text, 320, "the engine of %.255s, pid %s,", p->name, who);
        return 1;
    }
    return !i;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int see_cgroup_of(struct checkup *c, const char *who, const char *text, const char **unseen)
{
    char proc[300], limit[32], left[32], more[32], file[1100];
    struct hth_limit l;

    snprintf(proc, sizeof(proc), "%s/proc", doctor_root());
    *unseen = hth_room_limit(proc, who, &l);
    human(limit, l.bytes);
    human(left, l.room);
    human(more, c->room.mount);
    if (l.room == HTH_ROOM_NONE || l.room >= c->room.mount)
        return 0;
    found(c, STATE_RISK,
            "%s may take %s in all (%.300s): %s are left below it, and the tmpfs, whose pages "
            "count there, may take %s more. At the limit the kernel ends processes, or saves fail",
            text, limit, l.file, left, more);
    remedy(c,
            "echo %" PRIu64 " > %s     (in a pod: resources.limits.memory)\n"
            "or: mount -o remount,size=%" PRIu64 "m %s",
            l.bytes + (c->room.mount - l.room), shell_word(l.file, file, sizeof(file)),
            (c->room.size - c->room.mount + l.room / 4 * 3) >> 20, c->mount);
    return 1;
}

void see_cgroup(struct checkup *c)
{
    const char *unseen = NULL, *why;
    char who[24], text[320];
    int bad = 0;

    if (c->root_fd < 0 || !c->room.tmpfs)
        return;
    for (unsigned i = 0; see_who(c, i, who, text); i++) {
        bad |= see_cgroup_of(c, who, text, &why);
        unseen = why ? why : unseen;
    }
    if (unseen)
        found(c, STATE_UNKNOWN, "a limit of memory may hold that cannot be seen: %s", unseen);
    else if (!bad)
        found(c, STATE_OK, "no cgroup has less left than the tmpfs may take");
}

/* 1: what an engine would take, by the environment, is an adapter, which locks all slots. */
static int see_locks_slots(const struct checkup *c)
{
    const char *provider = c->net.choice.provider;

    return strcmp(c->net.choice.transport, "tcp") != 0 && strcmp(provider, "tcp") != 0 &&
           strcmp(provider, "shm") != 0 && strcmp(provider, "none") != 0;
}

/* What the slots may take: all of the mount; at least the queues of an adapter. */
static uint64_t see_slots(const struct checkup *c)
{
    uint64_t size = c->root_fd >= 0 && c->room.tmpfs ? c->room.size : 0;

    return size > LEAST_MEMLOCK ? size : LEAST_MEMLOCK;
}

/* The key's page is locked by an engine of this shell's limits; nothing else on TCP is. */
static void see_memlock_key(struct checkup *c)
{
    struct hth_key key;

    if (!c->net.opts.key_file || hth_key_open(c->net.opts.key_file, &key, NULL)) {
        found(c, STATE_OK, "only an adapter's slots are locked, and none is taken");
        return;
    }
    if (key.locked) {
        found(c, STATE_OK, "no adapter is taken, and the key's page can be locked");
    } else {
        found(c, STATE_RISK, "the page of the job's key cannot be locked: it may be swapped out");
        remedy(c, "ulimit -l 64");
    }
    hth_key_close(&key);
}

void see_memlock(struct checkup *c)
{
    char who[24], text[320], has[32], needs[32];
    uint64_t soft, hard;
    int bad = 0;

    if (!see_locks_slots(c)) {
        see_memlock_key(c);
        return;
    }
    human(needs, see_slots(c));
    for (unsigned i = 0; see_who(c, i, who, text); i++) {
        if (limit_of(who, "Max locked memory", &soft, &hard) || soft >= see_slots(c) ||
                (!i && c->net.machine.locks_any))
            continue;
        human(has, soft);
        found(c, STATE_BROKEN,
                "%s may lock %s of memory. An adapter (%s) locks all slots, up to %s", text, has,
                c->net.choice.provider, needs);
        remedy(c, "ulimit -l unlimited     (lasting: '* - memlock unlimited' in "
                  "/etc/security/limits.conf)\n"
                  "systemd: LimitMEMLOCK=infinity; docker run --ulimit memlock=-1; a pod: "
                  "capability IPC_LOCK");
        bad = 1;
    }
    if (!bad)
        found(c, STATE_OK, "all slots can be locked");
}

/* ---- files, threads -------------------------------------------------------------------------- */

void see_files(struct checkup *c)
{
    char who[24], text[320];
    uint64_t soft, hard, least = 0;
    int bad = 0;

    for (unsigned i = 0; see_who(c, i, who, text); i++) {
        if (limit_of(who, "Max open files", &soft, &hard))
            continue;
        least = !least || hard < least ? hard : least;
        if (hard >= FILES_FEW)
            continue;
        found(c, hard < HTH_FILES_LEAST ? STATE_BROKEN : STATE_RISK,
                "%s may open %" PRIu64 " files. An engine needs %d, and 4 more for each connection "
                "to a peer",
                text, hard, HTH_FILES_LEAST);
        remedy(c, "ulimit -Hn 65536     (lasting: '* - nofile 65536' in "
                  "/etc/security/limits.conf)\n"
                  "systemd: LimitNOFILE=65536; docker run --ulimit nofile=65536");
        bad = 1;
    }
    if (!bad)
        found(c, STATE_OK, "at least %" PRIu64 " can be opened", least);
}

void see_file_size(struct checkup *c)
{
    char who[24], text[320], size[32];
    uint64_t soft, hard;
    int bad = 0;

    for (unsigned i = 0; see_who(c, i, who, text); i++) {
        if (limit_of(who, "Max file size", &soft, &hard) || soft == UINT64_MAX)
            continue;
        human(size, soft);
        found(c, soft < HTH_SLOT_ROUND ? STATE_BROKEN : STATE_RISK,
                "%s may make files of %s at most: an object that is larger cannot be saved", text,
                size);
        remedy(c, "ulimit -f unlimited     (systemd: LimitFSIZE=infinity)");
        bad = 1;
    }
    if (!bad)
        found(c, STATE_OK, "a file may have any size");
}

static void *see_thread(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* Starts so many threads as any engine has, and ends them: limits of users, of cgroups and of the
 * machine hold for that alike. */
void see_threads(struct checkup *c)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread[THREADS_LEAST];
    pthread_attr_t attr;
    unsigned n = 0;
    int why = 0;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    pthread_mutex_lock(&gate);
    while (n < THREADS_LEAST && !(why = pthread_create(&thread[n], &attr, see_thread, &gate)))
        n++;
    pthread_mutex_unlock(&gate);
    for (unsigned i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    pthread_attr_destroy(&attr);
    if (!why) {
        found(c, STATE_OK, "%u can be started", n);
        return;
    }
    found(c, STATE_BROKEN, "only %u threads can be started, and an engine may need %u: %s", n,
            THREADS_LEAST, strerrordesc_np(why));
    remedy(c, "ulimit -u 4096; of a container: docker run --pids-limit 4096, podPidsLimit of the "
              "kubelet, pids.max of its cgroup");
}

/* 0; -1: there is none. */
static int see_shm_look(struct statfs *fs, struct stat *st)
{
    int fd = hth_open_named("/dev/shm", O_PATH | O_DIRECTORY);
    int rc = fd < 0 || fstat(fd, st) || fstatfs(fd, fs) ? -1 : 0;

    if (fd >= 0)
        close(fd);
    return rc;
}

void see_shm(struct checkup *c)
{
    struct statfs fs;
    struct stat st;
    uint64_t size;
    char text[32];

    if (see_shm_look(&fs, &st)) {
        found(c, STATE_RISK,
                "there is no /dev/shm: engines of this machine do not see what others have "
                "promised of its memory");
        remedy(c, "mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /dev/shm");
        return;
    }
    if (c->root_fd >= 0 && st.st_dev == c->at.st_dev) {
        found(c, STATE_OK, "the root lies in it");
        return;
    }
    size = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
    human(text, size);
    if (size > SHM_FEW && fs.f_bavail) {
        found(c, STATE_OK, "/dev/shm has %s", text);
        return;
    }
    found(c, STATE_RISK,
            fs.f_bavail
                    ? "/dev/shm has %s, as containers have by default: Hearth needs a page of it, "
                      "but data loaders and NCCL of a trainer need more"
                    : "/dev/shm (%s) is full: engines of this machine do not see what others "
                      "have promised of its memory",
            text);
    remedy(c,
            "mount -o remount,size=8g /dev/shm; docker run --shm-size=8g; a pod: an emptyDir with "
            "medium: Memory at /dev/shm");
}

/* ---- the clock ------------------------------------------------------------------------------- */

void see_clock(struct checkup *c)
{
    struct timex t = { 0 };
    int state = adjtimex(&t);

    if (state < 0) {
        found(c, STATE_UNKNOWN, "the kernel does not tell the state of its clock: %s",
                strerrordesc_np(errno));
    } else if (state == TIME_ERROR || t.status & STA_UNSYNC) {
        found(c, STATE_RISK,
                "no time service has synchronised the clock: times in logs and ages of saves of "
                "two nodes cannot be compared, and a job's epochs are numbered by it");
        remedy(c, "timedatectl set-ntp true     (or: systemctl enable --now chrony)");
    } else {
        found(c, STATE_OK, "it is synchronised, within %ld ms", t.maxerror / 1000);
    }
}
