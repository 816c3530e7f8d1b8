/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: the jobs of the root, their engines, and the connections of these to their peers. */
#include "checkup.h"
#include "sockets.h"

#include "core/base/file.h"
#include "core/base/open.h"
#include "core/format/epoch.h"

#include <errno.h>
#include <fcntl.h>
#include <hearth/version.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_MOST   (5u << 20) /* an engine's is smaller */
#define TOLERATED  100u       /* bytes of a packet: options of IP and TCP */
#define LINKS_MOST 3u         /* findings of one job */

static const char *see_word(const struct patient *p, const char *key)
{
    const char *text = json_string_value(json_object_get(p->status, key));

    return text ? text : "";
}

/* ---- engines --------------------------------------------------------------------------------- */

static int see_has(const struct patient *p, const char *name, mode_t *out_mode)
{
    int records = hth_open_below(p->fd, HTH_RECORDS_DIR, O_PATH | O_DIRECTORY, 0);
    struct stat st = { 0 };
    int has = records >= 0 && !fstatat(records, name, &st, AT_SYMLINK_NOFOLLOW);

    if (records >= 0)
        close(records);
    *out_mode = st.st_mode;
    return has;
}

static void see_left(struct checkup *c, const struct patient *p)
{
    char size[32], word[1100];
    mode_t mode;

    human(size, place_taken(p->fd));
    shell_word(p->name, word, sizeof(word));
    if (see_has(p, "lock", &mode) && !S_ISREG(mode)) {
        found(c, STATE_BROKEN, "%s: its lock is not a file, so no engine can start", p->name);
        remedy(c, "ls -la %s/%s/" HTH_RECORDS_DIR "     (then remove the lock)", c->shown, word);
    } else if (see_has(p, "sock", &mode)) {
        found(c, STATE_RISK,
                "%s: no engine runs, and the last one left its socket: it was killed, or it "
                "crashed. Its saves stay here (%s)",
                p->name, size);
        remedy(c,
                "tail -n 3 %s/%s/" HTH_RECORDS_DIR "/log; dmesg | grep -i oom\n"
                "start the job again: an engine takes over what is there. Or: hearth clean --root "
                "%s %s",
                c->shown, word, c->shown, word);
    } else {
        found(c, STATE_OK, "%s: no engine runs; %s stay", p->name, size);
    }
}

/* 1: the process is stopped, by a signal or a debugger. */
static int see_is_stopped(pid_t pid)
{
    char path[64], line[512] = "", *state;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    f = hth_open_kernel_text(path);
    if (f && !fgets(line, sizeof(line), f))
        line[0] = '\0';
    if (f)
        fclose(f);
    state = strrchr(line, ')');
    return state && (state[2] == 'T' || state[2] == 't');
}

static void see_silent(struct checkup *c, const struct patient *p)
{
    char who[HTH_LOCK_HOLDER_TEXT], word[1100];

    hth_lock_holder_text(&p->engine, who);
    if (p->st.st_uid != geteuid() && geteuid()) {
        found(c, STATE_UNKNOWN, "%s: the engine (%s) answers user %u alone", p->name, who,
                (unsigned)p->st.st_uid);
        return;
    }
    if (p->engine.pid > 0 && see_is_stopped(p->engine.pid)) {
        found(c, STATE_BROKEN, "%s: the engine (%s) is stopped", p->name, who);
        remedy(c, "kill -CONT %ld", (long)p->engine.pid);
        return;
    }
    found(c, STATE_BROKEN, "%s: the engine (%s) does not answer within 2 s", p->name, who);
    remedy(c, "tail -n 20 %s/%s/" HTH_RECORDS_DIR "/log", c->shown,
            shell_word(p->name, word, sizeof(word)));
}

/* The engine's first check that says something of this node or its saves: without ranks an engine
 * waits for a job, and nothing is wrong. NULL: all is well, or an older engine does not judge. */
static const json_t *see_ill(const struct patient *p)
{
    const json_t *checks = json_object_get(json_object_get(p->status, "health"), "checks"), *one;
    size_t i;

    json_array_foreach(checks, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));

        if (name && strcmp(name, "not_running") != 0)
            return one;
    }
    return NULL;
}

static void see_engine(struct checkup *c, const struct patient *p)
{
    const json_t *ill = see_ill(p);
    const char *text = json_string_value(json_object_get(ill, "text"));
    char word[1100];

    if (!ill) {
        found(c, STATE_OK, "%s: pid %ld%s%s", p->name, (long)p->engine.pid,
                see_word(p, "state")[0] ? ", " : "", see_word(p, "state"));
        return;
    }
    found(c, json_integer_value(json_object_get(ill, "level")) > 1 ? STATE_BROKEN : STATE_RISK,
            "%s: its engine reports %s: %s", p->name,
            json_string_value(json_object_get(ill, "name")), text ? text : "");
    remedy(c, "hearth status --root %s %s", c->shown, shell_word(p->name, word, sizeof(word)));
}

void see_engines(struct checkup *c)
{
    for (unsigned i = 0; i < c->patients; i++)
        if (!c->patient[i].engine.held)
            see_left(c, &c->patient[i]);
        else if (!c->patient[i].status)
            see_silent(c, &c->patient[i]);
        else
            see_engine(c, &c->patient[i]);
    if (c->closed)
        found(c, STATE_UNKNOWN, "%u jobs of other users are here: ask as their users or as root",
                c->closed);
    else if (!c->patients && c->root_fd >= 0)
        found(c, STATE_OK, "no job is here");
}

/* ---- versions -------------------------------------------------------------------------------- */

static void see_libraries(struct checkup *c)
{
    char text[300] = "";
    size_t n = 0;

    for (size_t i = 0; i < LIBRARIES && n < sizeof(text); i++)
        if (c->net.library[i].answered)
            n += (size_t)snprintf(
                    text + n, sizeof(text) - n, ", %s", c->net.library[i].offers.library);
    found(c, STATE_OK, "hearth " HEARTH_VERSION "%s", text);
}

void see_versions(struct checkup *c)
{
    char word[1100];

    see_libraries(c);
    for (unsigned i = 0; i < c->patients; i++) {
        const struct patient *p = &c->patient[i];
        const char *version = see_word(p, "version");

        if (!p->status || !strcmp(version, HEARTH_VERSION))
            continue;
        if (!version[0]) {
            found(c, STATE_UNKNOWN, "%s: its engine does not report its version", p->name);
            continue;
        }
        found(c, STATE_RISK,
                "%s: its engine is of version %s, and this program of " HEARTH_VERSION
                ": ranks of another version may be refused",
                p->name, version);
        remedy(c,
                "end the job, kill %ld, and start it again: the saves stay\n"
                "hearth ls --root %s %s",
                (long)p->engine.pid, c->shown, shell_word(p->name, word, sizeof(word)));
    }
}

/* ---- logs ------------------------------------------------------------------------------------ */

/* The log as text; NULL: there is none. */
static char *see_log_text(const struct patient *p)
{
    int fd = hth_open_file(p->fd, HTH_RECORDS_DIR "/log", O_RDONLY);
    char *text = fd < 0 ? NULL : malloc(LOG_MOST + 1);
    ssize_t n = text ? pread(fd, text, LOG_MOST, 0) : 0;

    if (text)
        text[n < 0 ? 0 : n] = '\0';
    if (fd >= 0)
        close(fd);
    return text;
}

/* 1: lines of this engine are missing: it begins its log with `engine-ready`, and makes a new one
 * with the next line if the file was removed. */
static int see_log_was_removed(const struct patient *p, const char *text)
{
    mode_t mode;

    return !text || (!strstr(text, "engine-ready") && !see_has(p, "log.1", &mode));
}

static void see_log(struct checkup *c, const struct patient *p)
{
    char *text = see_log_text(p), *lost = text ? strstr(text, "log-lost") : NULL;
    int removed = see_log_was_removed(p, text);
    char word[1100];

    while (lost && lost > text && lost[-1] != '\n')
        lost--;
    if (removed)
        found(c, STATE_RISK, "%s: its log was removed while its engine ran: lines are lost",
                p->name);
    else if (lost)
        found(c, STATE_RISK, "%s: its log has a gap: %.*s", p->name, (int)strcspn(lost, "\n"),
                lost);
    else
        found(c, STATE_OK, "%s: %s/%s/" HTH_RECORDS_DIR "/log", p->name, c->root, p->name);
    if (removed || lost)
        remedy(c, "hearth why --root %s %s     (the engine itself remembers its last saves)",
                c->shown, shell_word(p->name, word, sizeof(word)));
    free(text);
}

/* 1: its log is a file in its job's directory, as the engine reports it. */
static int see_logs_here(const struct patient *p)
{
    const char *path = json_string_value(json_object_get(p->status, "log"));
    const char *end = path ? strstr(path, "/" HTH_RECORDS_DIR "/log") : NULL;

    return !path || (end && !strcmp(end, "/" HTH_RECORDS_DIR "/log"));
}

void see_logs(struct checkup *c)
{
    for (unsigned i = 0; i < c->patients; i++)
        if (c->patient[i].status && see_logs_here(&c->patient[i]))
            see_log(c, &c->patient[i]);
}

/* ---- packets between engines ----------------------------------------------------------------- */

/* Where a member of the epoch listens, if that is TCP. */
static int see_member(const struct hth_member *m, struct hth_addrs *out)
{
    struct hth_addrs self = { .count = 1 };

    self.at[0].sa.sa_family = m->addr_len > 1 && m->addr[1] == 6 ? AF_INET6 : AF_INET;
    return m->addr_len && !hth_addrs_unpack(m->addr, m->addr_len, &self, out, NULL);
}

static int see_has_address(const struct hth_addrs *a, const union hth_addr *one, int port)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (sockets_same_ip(&a->at[i], one) && (!port || a->at[i].in.sin_port == one->in.sin_port))
            return 1;
    return 0;
}

/* One of this engine's to that member: either of the two has accepted it at its port. */
static int see_is_between(
        const struct socket_row *s, const struct hth_addrs *self, const struct hth_addrs *peer)
{
    return (see_has_address(peer, &s->there, 1) && see_has_address(self, &s->here, 0)) ||
           (see_has_address(peer, &s->there, 0) && see_has_address(self, &s->here, 1));
}

struct see_links {
    const struct socket_row *row; /* [count] of this node */
    size_t count;
    unsigned peers, bad;
};

/* 1: it can be compared, and *out_bytes is the largest packet that goes there. */
static int see_packet(
        const struct socket_row *s, const struct hth_interface *i, uint32_t *out_bytes)
{
    uint32_t bytes = s->mss + s->headers;

    if (!s->mss || !i || i->is_loopback || i->mtu <= 0)
        return 0;
    *out_bytes = s->path_mtu && s->path_mtu < bytes ? s->path_mtu : bytes;
    return 1;
}

/* The address alone: "10.0.0.1", "fd00::1". */
static const char *see_ip(const union hth_addr *a, char out[HTH_ADDR_LABEL])
{
    hth_addr_text(a, out);
    *strrchr(out, ':') = '\0';
    return out[0] == '[' ? strtok(out, "[]") : out;
}

static void see_small_packets(struct checkup *c, const struct patient *p, const char *node,
        const struct socket_row *s, const struct hth_interface *i, uint32_t bytes)
{
    int ping = s->there.sa.sa_family == AF_INET6 ? 48 : 28; /* bytes of its headers */
    char there[HTH_ADDR_LABEL];
    const char *ip = see_ip(&s->there, there);

    found(c, STATE_RISK,
            "%s: packets to node %s (%s) have at most %u bytes, and %s of this node has an MTU of "
            "%lld: that node, or a device on the way, has a smaller one",
            p->name, node, ip, bytes, i->name, (long long)i->mtu);
    remedy(c,
            "on node %s: ip link show     (the same MTU on all nodes and switches)\n"
            "ping -M do -s %lld -c 1 %s",
            node, (long long)i->mtu - ping, ip);
}

static void see_peer(struct checkup *c, const struct patient *p, struct see_links *l,
        const struct hth_addrs *self, const struct hth_member *m)
{
    struct hth_addrs peer;
    char here[HTH_ADDR_LABEL];
    int seen = 0;

    if (!see_member(m, &peer))
        return;
    for (size_t k = 0; k < l->count; k++) {
        const struct socket_row *s = &l->row[k];
        const struct hth_interface *i;
        uint32_t bytes;

        if (!see_is_between(s, self, &peer))
            continue;
        i = hth_machine_interface_of(&c->net.machine, see_ip(&s->here, here));
        if (!see_packet(s, i, &bytes))
            continue;
        l->peers += !seen++;
        if (bytes + TOLERATED >= (uint32_t)i->mtu)
            continue;
        if (l->bad++ < LINKS_MOST)
            see_small_packets(c, p, m->node, s, i, bytes);
        return;
    }
}

static void see_mtu_of(struct checkup *c, const struct patient *p, struct see_links *l)
{
    struct hth_epoch epoch = { 0 };
    struct hth_addrs self;
    void *bytes;
    size_t len;

    if (read_small(p->fd, HTH_RECORDS_DIR "/epoch", &bytes, &len, NULL))
        return;
    if (hth_epoch_decode(&epoch, bytes, len, NULL)) {
        free(bytes);
        return;
    }
    free(bytes);
    if (see_member(&epoch.member[epoch.self], &self))
        for (uint32_t i = 0; i < epoch.nodes; i++)
            if (i != epoch.self)
                see_peer(c, p, l, &self, &epoch.member[i]);
    hth_epoch_fini(&epoch);
}

void see_mtu(struct checkup *c)
{
    struct socket_row *row = NULL;
    struct see_links l = { 0 };
    int why = c->patients ? sockets_list(&row, &l.count) : 0;

    l.row = row;
    if (why) {
        found(c, STATE_UNKNOWN, "the kernel does not list connections: %s", strerrordesc_np(why));
        return;
    }
    for (unsigned i = 0; i < c->patients; i++)
        see_mtu_of(c, &c->patient[i], &l);
    if (l.peers && !l.bad)
        found(c, STATE_OK, "packets to %u peers are as large as the interface allows", l.peers);
    free(row);
}
