/* SPDX-License-Identifier: Apache-2.0 */
/* What open refuses unless the network is trusted, and the sentences of these refusals. */
#include "check.h"
#include "engines.h"
#include "rank.h"
#include "secret.h"
#include "tmp_root.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct rank r;
static char key[128], address[INET_ADDRSTRLEN];
static const char *const transports[] = { "ofi", "ucx" }, *const jobs[] = { "a", "b", "c", "d" };

/* An address of this machine that others may reach; "": there is none. */
static void find_address(void)
{
    struct ifaddrs *all = NULL;

    must(getifaddrs(&all));
    for (struct ifaddrs *i = all; i && !address[0]; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
                !(i->ifa_flags & IFF_LOOPBACK))
            inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, address,
                    sizeof(address));
    freeifaddrs(all);
    if (!address[0])
        fprintf(stderr, "this machine has no address but loopback: not looked at\n");
}

static void start(void)
{
    static char hearthd[512];

    rank_start(&r);
    fake_stop(r.fake);
    r.fake = NULL;
    r.opts.start = HEARTH_START_AUTO;
    r.opts.transport = "tcp"; /* what auto would ask first takes time */
    r.opts.open_ms = 20000;
    r.opts.linger_s = 20;
    snprintf(hearthd, sizeof(hearthd), "%s/hearthd", getenv("HEARTH_TEST_BIN"));
    r.opts.engine = hearthd;
    snprintf(key, sizeof(key), "%s.key", r.root);
    must(secret_write(key));
    find_address();
}

static void end(void)
{
    cr_assert(ge(int, engines_signal(r.root, NULL, SIGKILL), 0));
    unlink(key);
    tmp_root_remove(r.root);
}

TestSuite(network, .init = start, .fini = end);

static void must_refuse(const char *part)
{
    struct hearth_error err = { 0 };

    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "network = trusted"), NULL), "%s", err.text);
    cr_assert(ne(ptr, strstr(err.text, part), NULL), "%s", err.text);
}

/* A key is asked for first; with one, the library that would listen is named. */
Test(network, a_librarys_listener_is_refused_off_loopback_with_a_key_and_without)
{
    static const char *const bind[] = { "192.0.2.77", "fd00::77", "::ffff:127.0.0.1", NULL };

    for (size_t i = 0; i < 8; i++) {
        r.opts.transport = transports[i % 2];
        r.opts.bind = bind[i / 2] ? bind[i / 2] : address;
        if (!r.opts.bind[0])
            continue;
        r.opts.key_file = NULL;
        must_refuse("key_file");
        r.opts.key_file = key;
        must_refuse(i % 2 ? "UCX's provider tcp" : "libfabric's provider tcp");
    }
    cr_assert(zero(int, engines_signal(r.root, NULL, 0)), "an engine was started");
}

static void save_and_close(void)
{
    float x = 1;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);

    rank_save(r.h, 1, &piece, 1, NULL, 0);
    hearth_close(r.h, HEARTH_DROP);
    cr_assert(ge(int, engines_signal(r.root, NULL, SIGKILL), 0));
}

/* `auto` leaves out a fabric whose library listens itself. Our own sockets require the key, and the
 * log does not warn of them. */
Test(network, auto_takes_no_librarys_listener_off_loopback)
{
    char text[1200];
    uint32_t level;
    int said = 0, warned = 0;

    if (!address[0]) {
        end(); /* Criterion runs no .fini after a skip */
        cr_skip_test("this machine has no address but loopback");
    }
    r.opts.transport = "auto";
    r.opts.bind = address;
    must_refuse("key_file");
    r.opts.key_file = key;
    rank_open(&r);
    while (hearth_log_poll(r.h, &level, text, sizeof(text))) {
        said += strstr(text, ": tcp is the best that any node has, and all have it") != NULL;
        warned += level == HEARTH_LOG_WARN && strstr(text, "network: ") != NULL;
    }
    cr_assert(eq(int, said, 1));
    cr_assert(zero(int, warned));
    save_and_close();
}

/* How many lines waiting speak of the network at level warn. */
static int warnings(void)
{
    char text[600];
    uint32_t level;
    int count = 0;

    while (hearth_log_poll(r.h, &level, text, sizeof(text)))
        count += level == HEARTH_LOG_WARN && strstr(text, "network: ") != NULL;
    return count;
}

Test(network, one_that_is_trusted_is_used_and_each_thing_left_out_is_said)
{
    for (size_t i = 0; i < 4 && address[0]; i++) {
        r.opts.job = jobs[i];
        r.opts.network = HEARTH_NETWORK_TRUSTED;
        r.opts.bind = address;
        r.opts.transport = transports[i % 2];
        r.opts.key_file = i < 2 ? key : NULL;
        rank_open(&r);
        cr_assert(eq(int, warnings(), i < 2 ? 2 : 3));
        save_and_close();
    }
}

/* Any user of the machine reaches a port there, and by UCX's can write the engine's memory. */
Test(network, a_librarys_listener_is_refused_on_loopback_with_a_key_and_without)
{
    for (size_t i = 0; i < 8; i++) {
        r.opts.transport = transports[i % 2];
        r.opts.bind = i & 2 ? "127.0.0.9" : NULL;
        r.opts.key_file = i & 4 ? key : NULL;
        must_refuse("is reached by every user of this machine, and");
    }
    r.opts.transport = "ofi";
    r.opts.provider = "shm";
    must_refuse("libfabric's provider shm takes the file");
    cr_assert(zero(int, engines_signal(r.root, NULL, 0)), "an engine was started");
}

Test(network, on_loopback_only_a_librarys_listener_is_said)
{
    static const char *const kinds[] = { "ofi", "ucx", "tcp", "tcp" };

    for (size_t i = 0; i < 4; i++) {
        r.opts.job = jobs[i];
        r.opts.network = i < 3 ? HEARTH_NETWORK_TRUSTED : HEARTH_NETWORK_HOSTILE;
        r.opts.transport = kinds[i];
        r.opts.bind = i ? "127.0.0.9" : NULL;
        rank_open(&r);
        cr_assert(eq(int, warnings(), i < 2));
        save_and_close();
    }
}

/* Rank and engine in one process: the engine's one copy, and none when it has ended. */
Test(network, the_key_lies_in_one_place_and_goes_with_the_engine)
{
#ifdef __SANITIZE_ADDRESS__
    end(); /* Criterion runs no .fini after a skip */
    cr_skip_test("a sanitizer's own memory cannot be searched");
#endif
    must(secret_write(key));
    r.opts.key_file = key;
    r.opts.start = HEARTH_START_IN_PROCESS;
    rank_open(&r);
    cr_assert(eq(int, secret_copies(), 1));
    hearth_close(r.h, HEARTH_KEEP);
    cr_assert(zero(int, secret_copies()));
}

Test(network, a_rank_that_says_otherwise_than_its_engine_is_told_so)
{
    struct hearth_error err = { 0 };

    rank_open(&r);
    hearth_close(r.h, HEARTH_KEEP);
    r.opts.network = HEARTH_NETWORK_TRUSTED;
    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EINVAL);
    cr_assert(
            ne(ptr, strstr(err.text, "engine runs with network = hostile"), NULL), "%s", err.text);
}

Test(network, a_rank_of_another_integrity_than_its_engine_is_told_so)
{
    struct hearth_error err = { 0 };

    r.opts.integrity = HEARTH_INTEGRITY_STRONG;
    rank_open(&r);
    hearth_close(r.h, HEARTH_KEEP);
    r.opts.integrity = HEARTH_INTEGRITY_CRC32C;
    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EINVAL);
    cr_assert(
            ne(ptr, strstr(err.text, "engine runs with integrity = strong, and rank 0 has crc32c"),
                    NULL),
            "%s", err.text);
}

Test(network, strong_integrity_without_libcrypto_is_refused_at_open_with_the_reason)
{
    struct hearth_error err = { 0 };
    char path[300];

    snprintf(path, sizeof(path), "%s/libcrypto.so.3", r.root);
    close(open(
            path, O_WRONLY | O_CREAT, 0600)); /* the engine's loader finds it first: no library */
    setenv("LD_LIBRARY_PATH", r.root, 1);
    r.opts.integrity = HEARTH_INTEGRITY_STRONG;
    cr_assert(ne(int, hearth_open(&r.opts, &r.h, &err), HEARTH_OK));
    cr_assert(ne(ptr, strstr(err.text, "libcrypto.so.3 does not load"), NULL), "%s", err.text);
}
