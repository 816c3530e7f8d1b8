/* SPDX-License-Identifier: Apache-2.0 */
/* `hearth doctor net`: each of its lines, on machines that are made up of files; once on this
 * one. */
#include "command.h"
#include "made_up.h"

#include <hearth/hearth.h>
#include <jansson.h>
#include <sys/stat.h>

#define OFI                                                            \
    "libfabric 9.9\n"                                                  \
    "verbs|InfiniBand, RoCE v2|connected|mlx5_0|1|1|1|\n"              \
    "cxi|Slingshot (HPE Cray)|datagram||0|0|1|there is no /dev/cxi*\n" \
    "tcp|any Ethernet|connected|eth0, lo|-1|1|0|"
#define TCP "Hearth's own sockets\ntcp|Ethernet|connected||-1|1|0|"
#define UCX "UCX 9.9\nrc_mlx5|InfiniBand, RoCE v2|connected|mlx5_0:1|1|1|1|Hearth does not use it"

static char node[64];

/* A machine with InfiniBand and two libraries; nothing of this one's environment. */
static void doctor_start(void)
{
    static const char *const cleared[] = { "HEARTH_TRANSPORT", "HEARTH_PROVIDER", "HEARTH_BIND",
        "HEARTH_NETWORK", "HEARTH_INTEGRITY", "HEARTH_KEY_FILE", "HEARTH_FABRIC_LIBRARY",
        "HEARTH_JOB", "HEARTH_NODE" };
    char to[512], at[128];

    make_root();
    for (size_t i = 0; i < sizeof(cleared) / sizeof(cleared[0]); i++)
        unsetenv(cleared[i]);
    made_up_begin(node);
    made_up_node(node);
    made_up_file(node, "/offers.ofi", OFI);
    made_up_file(node, "/offers.ucx", UCX);
    made_up_file(node, "/offers.tcp", TCP);
    made_up_file(node, "/proc/self/mounts",
            "none / ext4 rw 0 0\nnone /mnt/hearth tmpfs rw,huge=within_size,size=9g 0 0\n"
            "none /mnt/small tmpfs rw 0 0\nnone /mnt/pages hugetlbfs rw 0 0");
    snprintf(to, sizeof(to), "%s/made-up", getenv("HEARTH_TEST_LIB"));
    snprintf(at, sizeof(at), "%s/modules", node);
    cr_assert(zero(int, symlink(to, at)));
    setenv("HEARTH_DOCTOR_ROOT", node, 1);
}

static void doctor_stop(void)
{
    made_up_end(node);
    remove_root();
}

TestSuite(doctor, .init = doctor_start, .fini = doctor_stop);

/* One that hearth_open() takes. */
static const char *key_file(void)
{
    static char path[96];

    snprintf(path, sizeof(path), "%s/key", root);
    if (access(path, F_OK))
        cr_assert(zero(int, hearth("key", "new", path)), "%s", err_text);
    return path;
}

/* As on a node where hearth-tcp.so has nothing to say. */
static void without_own(void)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/offers.tcp", node);
    cr_assert(zero(int, unlink(path)));
}

/* This line is printed, blanks counted as one. */
static void must_print(const char *line)
{
    char plain[OUT_MAX / 256];
    size_t n = 0;

    for (size_t i = 0; i < out_len && n + 1 < sizeof(plain); i++)
        if (out[i] != ' ' || (n && plain[n - 1] != ' '))
            plain[n++] = out[i];
    plain[n] = '\0';
    cr_assert(eq(int, has(plain, line), 1), "no line '%s' in:\n%s", line, out);
}

Test(doctor, adapters_have_link_rate_numa_node_and_interface)
{
    cr_assert(zero(int, hearth("doctor", "net")), "%s%s", out, err_text);
    must_print("ADAPTER PORT LINK RATE LAYER NUMA INTERFACE\n"
               "mlx5_0 1 ACTIVE 400 Gb/sec (4X NDR) InfiniBand 0 ib0\n");
}

Test(doctor, interfaces_have_link_speed_mtu_numa_node_and_addresses)
{
    cr_assert(zero(int, hearth("doctor", "net")), "%s%s", out, err_text);
    must_print("INTERFACE LINK MBIT/S MTU NUMA RDMA ADDRESSES\n");
    must_print("eth0 up 25000 9000 1 - 10.0.0.7\n");
    must_print("ib0 up 400000 4092 0 yes 10.1.0.7\n");
    must_print("lo unknown - 65536 - - 127.0.0.1, ::1\n");
}

/* A CNI's interfaces come before the interface that counts, which has many addresses; the test
 * binds to its last. */
Test(doctor, all_interfaces_and_addresses_are_looked_at_and_compared_as_addresses)
{
    static const char *const forms[] = { "10.55.0.1", "FD00::AB", "fd00:0:0:0:0:0:0:ab" };
    char path[64], lines[1024] = "";
    size_t n = 0;

    for (int i = 0; i < 70; i++) {
        snprintf(path, sizeof(path), "/sys/class/net/cali%04d/mtu", i);
        made_up_file(node, path, "1500");
    }
    for (int i = 10; i < 24; i++)
        n += (size_t)snprintf(lines + n, sizeof(lines) - n, "eth0 10.100.100.1%d\n", i);
    snprintf(lines + n, sizeof(lines) - n, "eth0 10.55.0.1\neth0 fd00::ab");
    made_up_file(node, "/addresses", lines);
    setenv("HEARTH_NETWORK", "trusted", 1);
    setenv("HEARTH_TRANSPORT", "auto", 1);
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        setenv("HEARTH_BIND", forms[i], 1);
        hearth("doctor", "net");
        cr_expect(zero(int, has(out, "no interface of this machine")), "%s: %s", forms[i], out);
        cr_expect(eq(int, has(out, "10.100.100.123, 10.55.0.1, fd00::ab"), 1), "%s", out);
    }
}

Test(doctor, libraries_have_their_providers)
{
    cr_assert(zero(int, hearth("doctor", "net")), "%s%s", out, err_text);
    must_print("transport ofi: libfabric 9.9\nPROVIDER USABLE ENDPOINTS KEYS DEVICES FABRIC\n");
    must_print("verbs yes connected checked mlx5_0 InfiniBand, RoCE v2\n");
    must_print("cxi no hardware datagram checked - Slingshot (HPE Cray)\n");
    must_print("tcp yes connected - eth0, lo any Ethernet\n");
    must_print("transport ucx: UCX 9.9\n");
    must_print("transport tcp: Hearth's own sockets\n");
    must_print("tcp yes connected - - Ethernet\n");
    must_print("rc_mlx5 no connected checked mlx5_0:1 InfiniBand, RoCE v2\n");
}

Test(doctor, a_library_that_crashes_or_is_not_there_is_said_to)
{
    char path[128];

    made_up_file(node, "/offers.ucx", "crash");
    cr_assert(zero(int, hearth("doctor", "net")), "%s%s", out, err_text);
    must_print("transport ucx: its library crashed: Aborted\n");
    snprintf(path, sizeof(path), "%s/offers.ofi", node);
    cr_assert(zero(int, unlink(path)));
    setenv("HEARTH_FABRIC_LIBRARY", "/opt/site/libfabric.so.1", 1);
    cr_assert(zero(int, hearth("doctor", "net")), "our own sockets need none: %s", out);
    must_print("transport ofi: there is no /opt/site/libfabric.so.1\n");
    without_own();
    cr_assert(eq(int, hearth("doctor", "net"), 1));
    must_print("does not open tcp: there is no library; ofi tcp: there is no "
               "/opt/site/libfabric.so.1; ucx tcp: its library crashed: Aborted\n");
    snprintf(path, sizeof(path), "%s/modules", node);
    cr_assert(zero(int, unlink(path)));
    cr_assert(eq(int, hearth("doctor", "net"), 1));
    must_print("transport ofi: transport ofi: hearth-ofi.so cannot be loaded; "
               "install it (package hearth-ofi), or choose another transport");
}

Test(doctor, a_library_that_hangs_is_given_up)
{
    made_up_file(node, "/offers.ucx", "hang");
    cr_assert(zero(int, hearth("doctor", "net")), "%s%s", out, err_text);
    must_print("transport ucx: its library did not answer in 10 s\n");
}

Test(doctor, the_limit_on_locked_memory_is_weighed)
{
    cr_assert(zero(int, hearth("doctor", "net")));
    must_print("locked memory unlimited\n");
    made_up_memlock(node, "8388608");
    cr_assert(zero(int, hearth("doctor", "net")));
    must_print("locked memory 8.0 MiB: too little for an RDMA adapter");
    made_up_memlock(node, "17179869184");
    cr_assert(zero(int, hearth("doctor", "net")));
    must_print("locked memory 16.0 GiB: with an RDMA adapter all slots are locked, and must fit\n");
    made_up_file(node, "/proc/self/status", "CapEff:\t0000000000004000");
    cr_assert(zero(int, hearth("doctor", "net")));
    must_print("locked memory any, by the capability IPC_LOCK (the limit is 16.0 GiB)\n");
}

/* This machine has none of these roots, and open would say so. */
Test(doctor, pages_are_those_of_the_roots_mount)
{
    static const char *const rows[][2] = {
        { "/mnt/hearth", "huge pages /mnt/hearth is mounted with huge=within_size\n" },
        { "/mnt/hearth/job", "huge pages /mnt/hearth is mounted with huge=within_size\n" },
        { "/mnt/small", "huge pages /mnt/small is mounted with huge=never: its pages are small" },
        { "/mnt/pages", "huge pages /mnt/pages is hugetlbfs: all its pages are huge\n" },
        { "/mnt/smaller", "huge pages / is ext4: Hearth requires a tmpfs" },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cr_assert(eq(int, hearth("doctor", "net", "--root", rows[i][0]), 1), "%s", err_text);
        must_print(rows[i][1]);
    }
    cr_assert(zero(int, hearth("doctor", "net")));
    must_print("huge pages no root is named: give --root or HEARTH_ROOT");
    made_up_file(node, "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
            "always within_size advise never deny [force]");
    cr_assert(eq(int, hearth("doctor", "net", "--root", "/mnt/small"), 1));
    must_print("huge pages the kernel has force for all mounts");
    made_up_file(node, "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
            "always within_size advise never [deny] force");
    cr_assert(eq(int, hearth("doctor", "net", "--root", "/mnt/hearth"), 1));
    must_print("huge pages the kernel has deny for all mounts");
    must_print("echo never > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
    made_up_file(node, "/sys/kernel/mm/transparent_hugepage/shmem_enabled", "[never] deny force");
    made_up_file(node, "/proc/self/mounts", "none /mnt/asked tmpfs rw,huge=advise 0 0");
    cr_assert(eq(int, hearth("doctor", "net", "--root", "/mnt/asked"), 1));
    must_print("huge pages /mnt/asked is mounted with huge=advise: slots ask for huge pages");
    made_up_file(node, "/proc/self/mounts", "none /mnt/hearth tmpfs rw 0 0");
    cr_assert(eq(int, hearth("doctor", "net", "--root", "/elsewhere"), 1));
    must_print("huge pages the mount of /elsewhere is not found\n");
}

Test(doctor, congestion_control_is_named)
{
    cr_assert(zero(int, hearth("doctor", "net")));
    must_print("TCP congestion control bbr: over loopback half as fast");
    made_up_file(node, "/proc/sys/net/ipv4/tcp_congestion_control", "cubic");
    cr_assert(zero(int, hearth("doctor", "net")));
    must_print("TCP congestion control cubic\n");
}

Test(doctor, what_is_chosen_has_its_source_and_what_is_better_its_settings)
{
    cr_assert(zero(int, hearth("doctor", "net")));
    must_print("chosen transport tcp (auto), provider tcp (auto), address 127.0.0.1 (default)\n"
               "opens nothing that can be seen stands against it; no root is named, so none is "
               "checked\n"
               "why tcp is the best that this node has; a job takes the best that all of its nodes "
               "have\n"
               "note 127.0.0.1 is loopback: only ranks of this node take part");
    must_print("better verbs (InfiniBand, RoCE v2): set HEARTH_TRANSPORT=ofi HEARTH_PROVIDER=verbs "
               "HEARTH_BIND=10.1.0.7\n");
    setenv("HEARTH_PROVIDER", "verbs", 1);
    setenv("HEARTH_BIND", "10.1.0.7", 1);
    setenv("HEARTH_INTEGRITY", "strong", 1);
    setenv("HEARTH_KEY_FILE", key_file(), 1);
    cr_assert(zero(int, hearth("doctor", "net")), "%s", out);
    must_print("chosen transport ofi (default), provider verbs (HEARTH_PROVIDER), address 10.1.0.7 "
               "(HEARTH_BIND)\nopens nothing");
    must_print("better nothing: no other provider's hardware is here\n");
}

/* As an engine takes it: the best that nothing stands against on this address. */
Test(doctor, auto_takes_the_best_that_may_listen_there)
{
    setenv("HEARTH_KEY_FILE", key_file(), 1);
    setenv("HEARTH_BIND", "10.1.0.7", 1);
    setenv("HEARTH_INTEGRITY", "strong", 1);
    cr_assert(zero(int, hearth("doctor", "net")), "%s", out);
    must_print(
            "chosen transport ofi (auto), provider verbs (auto), address 10.1.0.7 (HEARTH_BIND)\n");
    must_print("why ofi verbs is the best that this node has, 400 Gb/sec (4X NDR); a job takes");
    must_print("AUTO PROVIDER RATE USABLE\nofi verbs 400 Gb/sec (4X NDR) yes\n");
    must_print("ofi cxi - there is no /dev/cxi*\n");
    must_print(
            "ucx rc_mlx5 400 Gb/sec (4X NDR) 10.1.0.7 is no loopback address, and UCX's provider "
            "rc_mlx5 obeys");
    must_print("better nothing");
    setenv("HEARTH_BIND", "10.0.0.7", 1);
    cr_assert(zero(int, hearth("doctor", "net")), "%s", out);
    must_print(
            "chosen transport tcp (auto), provider tcp (auto), address 10.0.0.7 (HEARTH_BIND)\n");
    must_print("why tcp is the best that this node has, 25000 Mbit/s; a job takes");
    must_print("tcp tcp 25000 Mbit/s yes\n");
    must_print("ofi tcp 25000 Mbit/s 10.0.0.7 is no loopback address, and libfabric's provider tcp "
               "obeys");
    setenv("HEARTH_NETWORK", "trusted", 1);
    cr_assert(zero(int, hearth("doctor", "net")), "%s", out);
    must_print("tcp tcp 25000 Mbit/s yes\nofi tcp 25000 Mbit/s yes\n");
    must_print("why tcp is the best that this node has, 25000 Mbit/s; a job takes");
    without_own();
    cr_assert(zero(int, hearth("doctor", "net")), "%s", out);
    must_print("tcp tcp - there is no library\nofi tcp 25000 Mbit/s yes\n");
    must_print("why ofi tcp is the best that this node has, 25000 Mbit/s; a job takes");
    must_print(
            "ofi verbs 400 Gb/sec (4X NDR) 10.0.0.7 is no address of an RDMA adapter's interface");
    must_print(
            "better verbs (InfiniBand, RoCE v2): set HEARTH_TRANSPORT=ofi HEARTH_PROVIDER=verbs");
}

Test(doctor, auto_passes_over_what_does_not_encrypt_unless_a_digest_proves_payload)
{
    setenv("HEARTH_KEY_FILE", key_file(), 1);
    setenv("HEARTH_BIND", "10.1.0.7", 1);
    cr_assert(zero(int, hearth("doctor", "net")), "%s", out);
    must_print(
            "chosen transport tcp (auto), provider tcp (auto), address 10.1.0.7 (HEARTH_BIND)\n");
    must_print("ofi verbs 400 Gb/sec (4X NDR) 10.1.0.7 is no loopback address, and libfabric's "
               "provider verbs does not encrypt");
    setenv("HEARTH_PROVIDER", "verbs", 1);
    cr_assert(eq(int, hearth("doctor", "net"), 1));
    must_print("does not open 10.1.0.7 is no loopback address, and libfabric's provider verbs does "
               "not encrypt");
    setenv("HEARTH_INTEGRITY", "strong", 1);
    cr_assert(zero(int, hearth("doctor", "net")), "%s", out);
}

Test(doctor, what_an_engine_would_refuse_is_said_before_it_does)
{
    setenv("HEARTH_BIND", "10.0.0.7", 1);
    cr_assert(eq(int, hearth("doctor", "net"), 1));
    must_print("does not open 10.0.0.7 is no loopback address, and there is no job key");
    setenv("HEARTH_KEY_FILE", key_file(), 1);
    cr_assert(zero(int, hearth("doctor", "net")), "%s", out);
    without_own();
    cr_assert(eq(int, hearth("doctor", "net"), 1));
    must_print("does not open tcp: there is no library; TCP of libfabric and UCX is taken on "
               "10.0.0.7 only where no stranger reaches it (set network = trusted");
    made_up_file(node, "/offers.tcp", TCP);
    setenv("HEARTH_PROVIDER", "tcp", 1);
    cr_assert(eq(int, hearth("doctor", "net"), 1));
    must_print("does not open 10.0.0.7 is no loopback address, and libfabric's provider tcp obeys");
    unsetenv("HEARTH_PROVIDER");
    setenv("HEARTH_NETWORK", "trusted", 1);
    cr_assert(zero(int, hearth("doctor", "net")), "%s", out);
    setenv("HEARTH_BIND", "10.9.9.9", 1);
    cr_assert(eq(int, hearth("doctor", "net"), 1));
    must_print("does not open tcp: no interface of this machine has the address 10.9.9.9\n");
    setenv("HEARTH_BIND", "10.0.0.7", 1);
    setenv("HEARTH_PROVIDER", "cxi", 1);
    cr_assert(eq(int, hearth("doctor", "net"), 1));
    must_print("does not open there is no /dev/cxi*\n");
    made_up_file(node, "/sys/class/net/eth0/operstate", "down");
    cr_assert(eq(int, hearth("doctor", "net"), 1));
    must_print("note interface eth0 of 10.0.0.7 is down\n");
}

/* Settings of ranks that hearth_open() refuses before it looks for an engine. */
static const struct {
    const char *variable, *value, *other, *other_value;
} refused[] = {
    { "HEARTH_TRANSPORT", "zap", NULL, NULL },
    { "HEARTH_BIND", "0.0.0.0", "HEARTH_NETWORK", "trusted" },
    { "HEARTH_BIND", "eth0", NULL, NULL },
    { "HEARTH_BIND", "10.0.0.7", NULL, NULL },
    { "HEARTH_KEY_FILE", "/nowhere/key", NULL, NULL },
    { "HEARTH_KEY_FILE", "/etc/passwd", NULL, NULL },
    { "HEARTH_DEVICE", "nodev0", NULL, NULL },
    { "HEARTH_HEARTBEAT_MS", "1000", "HEARTH_DEAD_MS", "1000" },
    { "HEARTH_MIN_COPIES", "2", "HEARTH_COPIES", "1" },
    { "HEARTH_ROOT", "mnt/hearth", NULL, NULL },
    { "HEARTH_ROOT", "/nowhere/hearth", NULL, NULL },
    { "HEARTH_ROOT", "/proc", NULL, NULL },
    { "HEARTH_JOB", ".train", NULL, NULL },
    { "HEARTH_NODE", "no de", NULL, NULL },
};

/* The error of hearth_open() with these variables, after "open: ". */
static const char *said_at_open(struct hearth_error *err)
{
    struct hearth_opts opts = HEARTH_OPTS_INIT;
    struct hearth *h = NULL;

    must(hearth_opts_from_env(&opts, err));
    opts.root = opts.root ? opts.root : root;
    opts.job = opts.job ? opts.job : "job";
    opts.world = 1;
    must_fail(hearth_open(&opts, &h, err), err->code);
    cr_assert(zero(int, strncmp(err->text, "open: ", 6)), "%s", err->text);
    return err->text + 6;
}

Test(doctor, says_of_settings_what_open_says_of_them)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct hearth_error err = { 0 };
        const char *said;
        char line[HEARTH_ERROR_TEXT + 32];

        setenv(refused[i].variable, refused[i].value, 1);
        if (refused[i].other)
            setenv(refused[i].other, refused[i].other_value, 1);
        said = said_at_open(&err);
        cr_assert(eq(int, hearth("doctor", "net"), 1), "%s: %s", refused[i].variable, out);
        snprintf(line, sizeof(line), "does not open %s\n", said);
        must_print(line);
        unsetenv(refused[i].variable);
        if (refused[i].other)
            unsetenv(refused[i].other);
    }
}

Test(doctor, an_address_of_another_interface_is_no_adapters)
{
    setenv("HEARTH_PROVIDER", "verbs", 1);
    cr_assert(eq(int, hearth("doctor", "net"), 1));
    must_print(
            "does not open 127.0.0.1 is no address of an RDMA adapter's interface, by which verbs "
            "finds its peers: set HEARTH_BIND=10.1.0.7\n");
    setenv("HEARTH_KEY_FILE", key_file(), 1);
    setenv("HEARTH_BIND", "10.0.0.7", 1);
    setenv("HEARTH_INTEGRITY", "strong", 1);
    cr_assert(eq(int, hearth("doctor", "net"), 1));
    must_print("does not open 10.0.0.7 is no address of an RDMA");
}

Test(doctor, what_stands_against_a_better_one_is_said)
{
    made_up_file(node, "/offers.ofi",
            "libfabric 9.9\nverbs|InfiniBand|connected||1|0|1|the limit is small\n"
            "tcp|any Ethernet|connected|eth0|-1|1|0|");
    cr_assert(zero(int, hearth("doctor", "net")));
    must_print("not better yet verbs (InfiniBand): the limit is small\n");
}

Test(doctor, a_machine_with_nothing_is_described_as_one)
{
    made_up_end(node);
    cr_assert(zero(int, mkdir(node, 0700)));
    hearth("doctor", "net");
    must_print("RDMA adapters: none");
    must_print("TCP congestion control not known\n");
    must_print("transport ofi: transport ofi: hearth-ofi.so cannot be loaded");
}

Test(doctor, json_has_the_same)
{
    json_t *j, *one;
    char mount[128];

    setenv("HEARTH_ROOT", root, 1);
    snprintf(mount, sizeof(mount), "none %s tmpfs rw,huge=within_size,size=9g 0 0", root);
    made_up_file(node, "/proc/self/mounts", mount);
    made_up_memlock(node, "8388608");
    cr_assert(zero(int, hearth("doctor", "net", "--json")), "%s", err_text);
    j = json_loads(out, 0, NULL);
    cr_assert(ne(ptr, j, NULL), "%s", out);
    one = json_array_get(json_object_get(j, "adapters"), 0);
    must_say(json_string_value(json_object_get(one, "interface")), "ib0");
    one = json_array_get(json_object_get(j, "interfaces"), 1);
    must_say(json_string_value(json_object_get(one, "addresses")), "10.1.0.7");
    one = json_array_get(json_object_get(j, "libraries"), 0);
    must_say(json_string_value(json_object_get(one, "library")), "libfabric 9.9");
    one = json_array_get(json_object_get(one, "providers"), 1);
    must_say(json_string_value(json_object_get(one, "against")), "there is no /dev/cxi*");
    cr_assert(eq(long, (long)json_integer_value(json_object_get(j, "memlock_bytes")), 8388608));
    cr_assert(eq(int, json_is_true(json_object_get(j, "huge_pages")), 1));
    must_say(json_string_value(json_object_get(j, "congestion_control")), "bbr");
    one = json_object_get(j, "choice");
    must_say(json_string_value(json_object_get(one, "provider_by")), "auto");
    must_say(json_string_value(json_object_get(
                     json_array_get(json_object_get(one, "candidates"), 0), "rate")),
            "400 Gb/sec (4X NDR)");
    cr_assert(eq(int, json_is_null(json_object_get(one, "refused")), 1));
    cr_assert(eq(sz, json_array_size(json_object_get(one, "better")), 1));
    json_decref(j);
}

Test(doctor, this_machine_is_looked_at_without_harm)
{
    unsetenv("HEARTH_DOCTOR_ROOT");
    cr_assert(zero(int, hearth("doctor", "net", "--root", root)), "%s%s", out, err_text);
    must_print("opens nothing that can be seen stands against it\n");
    must_print("chosen transport tcp (auto), provider tcp (auto)");
    must_print("lo ");
    cr_assert(zero(int, hearth("doctor", "net", "--json")), "%s", err_text);
}

/* A shell that finds a program by PATH gives it its bare name, which a file here has too. */
Test(doctor, modules_do_not_come_from_the_current_directory)
{
    char command[1024];

    unsetenv("HEARTH_DOCTOR_ROOT");
    snprintf(command, sizeof(command),
            "cd %s && touch hearth && cp %s/made-up/hearth-tcp.so . && PATH=%s:$PATH && hearth doctor net "
            "> %s 2>&1",
            root, getenv("HEARTH_TEST_LIB"), getenv("HEARTH_TEST_BIN"), out_path);
    cr_assert(ge(int, system(command), 0));
    out_len = slurp(out_path, out, OUT_MAX);
    cr_assert(eq(int, has(out, "Hearth's own sockets"), 1), "%s", out);
}
