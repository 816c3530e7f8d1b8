/* SPDX-License-Identifier: Apache-2.0 */
/* `hearth doctor`: faults planted in this process's own namespaces, cgroups and limits. Each is
 * found by its check, with its remedy, and no other check finds anything. */
#include "planted.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define MIB (1ull << 20)

TestSuite(checkup, .init = plant_start, .fini = plant_stop);

Test(checkup, a_healthy_node_has_no_finding)
{
    plant_root(64 * MIB, GOOD);
    nothing_is_found();
    cr_assert(zero(int, hearth("doctor", "--root", root)), "%s", out);
    cr_assert(
            eq(int, has(out, "ok        root           /mnt: 64.0 MiB, mode 0700"), 1), "%s", out);
}

Test(checkup, a_healthy_node_with_an_engine_has_no_finding)
{
    plant_root(64 * MIB, GOOD);
    plant_engine("train");
    nothing_is_found();
}

/* ---- the tmpfs ------------------------------------------------------------------------------- */

Test(checkup, a_tmpfs_without_huge_pages)
{
    plant_root(64 * MIB, "noswap");
    only("at risk", "huge-pages", "huge=never", "mount -o remount,huge=within_size /mnt");
}

Test(checkup, a_tmpfs_larger_than_the_memory)
{
    plant_root(1ull << 50, GOOD);
    only("at risk", "size", "before it is full, the kernel ends processes",
            "mount -o remount,size=");
}

Test(checkup, a_tmpfs_too_small_for_the_saves_of_its_jobs)
{
    plant_root(17 * MIB, GOOD);
    must(hth_store_close_made(make_store()));
    setenv("HEARTH_KEEP", "3", 1);
    only("broken", "need", "the saves of its jobs need at least 21.4 MiB, and /mnt has 17.0 MiB",
            "mount -o remount,size=");
}

Test(checkup, a_root_that_every_user_may_write_to)
{
    plant_root(64 * MIB, GOOD);
    cr_assert(zero(int, chmod(root, 0777)));
    only("broken", "root", "has mode 0777", "chmod 0700 /mnt");
}

Test(checkup, a_root_that_is_not_there)
{
    snprintf(root, sizeof(root), "/mnt/nowhere");
    only("broken", "root", "cannot open root '/mnt/nowhere'",
            "mkdir -p /mnt/nowhere && mount -t tmpfs -o size=");
}

Test(checkup, a_root_that_is_no_tmpfs)
{
    plant_disk();
    only("broken", "root", "is not on a tmpfs", "mount -t tmpfs -o size=");
}

Test(checkup, a_read_only_root)
{
    plant_root(64 * MIB, GOOD);
    cr_assert(zero(int, mount(NULL, root, NULL, MS_REMOUNT | MS_RDONLY, NULL)));
    only("broken", "root", "cannot write to /mnt: Read-only", "mount -o remount,rw /mnt");
}

Test(checkup, a_full_tmpfs)
{
    plant_root(64 * MIB, GOOD);
    plant_file("junk", 64 * MIB);
    only("broken", "use", "no room left", "mount -o remount,size=96m /mnt");
}

Test(checkup, a_tmpfs_in_which_other_files_take_the_room_for_records)
{
    plant_root(64 * MIB, GOOD);
    plant_file("junk", 63 * MIB);
    only("at risk", "use", "/mnt has 1.0 MiB left", "mount -o remount,size=");
}

Test(checkup, a_full_tmpfs_in_which_a_job_has_no_engine)
{
    plant_root(17 * MIB, GOOD);
    must(hth_store_close_made(make_store()));
    plant_file("junk", 17 * MIB);
    only("broken", "use", "no room left", "hearth clean --root /mnt train     (no engine runs on");
}

Test(checkup, a_tmpfs_without_inodes)
{
    char name[32];

    plant_root(64 * MIB, GOOD ",nr_inodes=40");
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "file%d", i);
        if (plant_empty(name))
            break;
    }
    finds("broken", "inodes", "/mnt has 0 of 40 inodes left", "mount -o remount,nr_inodes=1m /mnt");
    finds("broken", "use", "no inodes left", "mount -o remount,nr_inodes=1m /mnt");
    cr_expect(eq(int, findings, 2));
}

Test(checkup, files_of_another_user)
{
    plant_root(64 * MIB, GOOD);
    cr_assert(zero(int, plant_empty("it's; touch x")));
    cr_assert(zero(int, chown("/mnt/it's; touch x", 61235, 61235)));
    only("at risk", "owners", "belongs to user 61235, and the root to user 0",
            "chown -hR 0 /mnt/'it'\\''s; touch x' ");
}

Test(checkup, swap_behind_a_tmpfs_that_may_be_swapped)
{
    plant_root(64 * MIB, "huge=within_size");
    plant_swap("none /mnt tmpfs rw,huge=within_size 0 0");
    finds("at risk", "swap", "is not mounted with noswap", "swapoff -a");
    plant_swap("none /mnt tmpfs rw,huge=within_size,noswap 0 0");
    finds("ok", "swap", "/mnt is mounted with noswap", NULL);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void limit(int what, rlim_t soft, rlim_t hard)
{
    const struct rlimit l = { soft, hard };

    cr_assert(zero(int, setrlimit((__rlimit_resource_t)what, &l)));
}

/* The verbs of this environment need no adapter to have the limit weighed; root may lock any
 * memory by its capability. */
Test(checkup, little_memory_that_can_be_locked_for_an_adapter)
{
    plant_root(64 * MIB, GOOD);
    prctl(PR_CAPBSET_DROP, 14 /* CAP_IPC_LOCK */, 0, 0, 0);
    limit(RLIMIT_MEMLOCK, 64 << 10, 64 << 10);
    nothing_is_found();
    setenv("HEARTH_PROVIDER", "verbs", 1);
    finds("broken", "locked-memory", "may lock 64.0 KiB of memory", "ulimit -l unlimited");
}

Test(checkup, a_key_whose_page_cannot_be_locked)
{
    static char key[128];

#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("a sanitizer locks no memory");
#endif
    plant_root(64 * MIB, GOOD);
    snprintf(key, sizeof(key), "%s.key", out_path);
    cr_assert(zero(int, hearth("key", "new", key)), "%s", err_text);
    setenv("HEARTH_KEY_FILE", key, 1);
    prctl(PR_CAPBSET_DROP, 14 /* CAP_IPC_LOCK */, 0, 0, 0);
    nothing_is_found();
    limit(RLIMIT_MEMLOCK, 0, 0);
    only("at risk", "locked-memory", "the page of the job's key cannot be locked", "ulimit -l 64");
}

Test(checkup, few_files)
{
    plant_root(64 * MIB, GOOD);
    limit(RLIMIT_NOFILE, 64, 64);
    only("at risk", "open-files", "may open 64 files", "ulimit -Hn 65536");
    limit(RLIMIT_NOFILE, 40, 40);
    only("broken", "open-files", "may open 40 files", "LimitNOFILE=65536");
}

Test(checkup, a_limit_on_the_size_of_files)
{
    plant_root(64 * MIB, GOOD);
    limit(RLIMIT_FSIZE, 1 << 20, 1 << 20);
    only("broken", "file-size", "may make files of 1.0 MiB at most", "ulimit -f unlimited");
}

Test(checkup, a_call_that_a_sandbox_refuses)
{
    plant_root(64 * MIB, GOOD);
    plant_refusal(SYS_memfd_create, ENOSYS);
    only("broken", "use", "memfd_create on /mnt: Function not implemented; allow that call",
            "with a FILE that allows memfd_create");
}

/* The limits of the engine that runs, which its starter had. */
Test(checkup, few_files_of_a_running_engine)
{
    struct rlimit all, few = { 512, 512 };
    char text[64];

    plant_root(64 * MIB, GOOD);
    plant_engine("train");
    cr_assert(zero(int, prlimit(planted_engine, RLIMIT_NOFILE, &few, &all)));
    snprintf(text, sizeof(text), "the engine of train, pid %d, may open 512", (int)planted_engine);
    only("at risk", "open-files", text, "ulimit -Hn 65536");
}

Test(checkup, few_threads)
{
    plant_root(64 * MIB, GOOD);
    plant_group("pids", "pids.max", "30");
    only("broken", "threads", "threads can be started, and an engine may need 64", "pids.max");
}

Test(checkup, a_memory_limit_below_the_pool)
{
    plant_root(1024 * MIB, GOOD);
    plant_group("memory", "memory.limit_in_bytes", "536870912");
    only("at risk", "memory-limit", "may take 512.0 MiB in all (/sys/fs/cgroup/memory",
            "memory.limit_in_bytes     (in a pod: resources.limits.memory)");
}

Test(checkup, a_small_dev_shm)
{
    plant_root(64 * MIB, GOOD);
    cr_assert(zero(int, mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64m,mode=1777")));
    look();
    umount("/dev/shm");
    is_found("at risk", "shm", "/dev/shm has 64.0 MiB, as containers have by default",
            "docker run --shm-size=8g");
    cr_expect(eq(int, findings, 1));
}

Test(checkup, a_clock_that_is_not_synchronised)
{
    plant_root(64 * MIB, GOOD);
    setenv("FAKE_CLOCK", "unsynchronised", 1);
    only("at risk", "clock", "no time service has synchronised the clock",
            "timedatectl set-ntp true");
}

/* ---- the network ----------------------------------------------------------------------------- */

Test(checkup, a_loopback_interface_that_is_down)
{
    plant_root(64 * MIB, GOOD);
    plant_network(0);
    only("broken", "listening", "does not reach a port of its own at 127.0.0.1",
            "ip link set lo up");
}

Test(checkup, an_interface_that_is_down_and_an_address_that_no_interface_has)
{
    plant_root(64 * MIB, GOOD);
    plant_network(1);
    ip("link add e0 type veth peer name e1");
    ip("addr add 10.77.0.1/24 dev e0");
    setenv("HEARTH_NETWORK", "trusted", 1);
    setenv("HEARTH_BIND", "10.77.0.1", 1);
    finds("broken", "interface", "e0, which has 10.77.0.1, is down", "ip link set e0 up");
    setenv("HEARTH_BIND", "10.99.0.1", 1);
    finds("broken", "interface", "no interface of this node has 10.99.0.1", "ip -br addr");
}

Test(checkup, an_interface_with_a_small_mtu)
{
    plant_root(64 * MIB, GOOD);
    plant_network(1);
    plant_cable(1280, 1280);
    setenv("HEARTH_NETWORK", "trusted", 1);
    setenv("HEARTH_BIND", "10.77.0.1", 1);
    only("at risk", "interface", "e0 has an MTU of 1280 bytes", "ip link set e0 mtu 1500");
}

Test(checkup, an_mtu_that_differs_between_two_nodes)
{
    plant_root(64 * MIB, GOOD);
    plant_network(1);
    plant_cable(9000, 1400);
    plant_peers("train", AF_INET);
    only("at risk", "mtu", "packets to node n1 (10.77.0.2) have at most 1400 bytes, and e0",
            "ping -M do -s 8972 -c 1 10.77.0.2");
}

Test(checkup, an_mtu_that_differs_over_ipv6)
{
    plant_root(64 * MIB, GOOD);
    plant_network(1);
    plant_cable(9000, 1400);
    plant_peers("train", AF_INET6);
    only("at risk", "mtu", "packets to node n1 (fd77::2) have at most 1400 bytes, and e0",
            "ping -M do -s 8952 -c 1 fd77::2");
}

Test(checkup, the_same_mtu_on_two_nodes_is_no_finding)
{
    plant_root(64 * MIB, GOOD);
    plant_network(1);
    plant_cable(9000, 9000);
    plant_peers("train", AF_INET);
    nothing_is_found();
    is_found("ok", "mtu", "packets to 1 peers", NULL);
}

Test(checkup, a_port_that_the_kernel_may_give_away)
{
    plant_root(64 * MIB, GOOD);
    plant_network(1);
    setenv("HEARTH_ENGINE_PORT", "40000", 1);
    only("at risk", "port", "HEARTH_ENGINE_PORT=40000 lies in the range",
            "sysctl -w net.ipv4.ip_local_reserved_ports=40000");
    plant_line("/proc/sys/net/ipv4/ip_local_reserved_ports", "39999-40001");
    nothing_is_found();
}

Test(checkup, settings_that_an_engine_refuses)
{
    plant_root(64 * MIB, GOOD);
    setenv("HEARTH_MIN_COPIES", "2", 1);
    only("broken", "settings", "min_copies is 2, more than the 1 copies", "hearth doctor net");
}

/* ---- jobs ------------------------------------------------------------------------------------ */

Test(checkup, a_job_whose_engine_was_killed)
{
    plant_root(64 * MIB, GOOD);
    plant_engine("train");
    plant_signal(SIGKILL);
    only("at risk", "engine", "train: no engine runs, and the last one left its socket",
            "hearth clean --root /mnt train");
}

Test(checkup, a_job_whose_engine_ended_in_order_is_no_finding)
{
    plant_root(64 * MIB, GOOD);
    plant_engine("train");
    plant_signal(SIGTERM);
    nothing_is_found();
}

Test(checkup, a_lock_that_is_no_file)
{
    plant_root(64 * MIB, GOOD);
    plant_engine("train");
    plant_signal(SIGTERM);
    cr_assert(zero(int, unlink("/mnt/train/.hearth/lock")));
    cr_assert(zero(int, mkdir("/mnt/train/.hearth/lock", 0700)));
    only("broken", "engine", "its lock is not a file", "ls -la /mnt/train/.hearth");
}

Test(checkup, an_engine_that_is_stopped)
{
    plant_root(64 * MIB, GOOD);
    plant_engine("train");
    plant_signal(SIGSTOP);
    finds("broken", "engine", "is stopped", "kill -CONT ");
}

Test(checkup, a_log_that_was_removed_under_its_engine)
{
    plant_root(64 * MIB, GOOD);
    plant_engine("train");
    cr_assert(zero(int, unlink("/mnt/train/.hearth/log")));
    only("at risk", "log", "its log was removed while its engine ran",
            "hearth why --root /mnt train");
}

Test(checkup, a_log_that_is_kept_elsewhere_is_no_finding)
{
    plant_root(64 * MIB, GOOD);
    plant_answer("train", "{\"version\": \"" HEARTH_VERSION "\", \"log\": \"\"}");
    cr_assert(zero(int, unlink("/mnt/train/.hearth/log")));
    nothing_is_found();
}

Test(checkup, a_gap_in_the_log)
{
    FILE *f;

    plant_root(64 * MIB, GOOD);
    plant_engine("train");
    f = fopen("/mnt/train/.hearth/log", "a");
    cr_assert(ne(ptr, f, NULL));
    fputs("2026-01-01T00:00:00.000Z warn log-lost 3 lines before this one are lost\n", f);
    fclose(f);
    only("at risk", "log", "train: its log has a gap: 2026-01-01T00:00:00.000Z warn log-lost 3",
            "hearth why");
}

Test(checkup, an_engine_of_another_version)
{
    plant_root(64 * MIB, GOOD);
    plant_answer("train", "{\"version\": \"0.0.9\", \"state\": \"\"}");
    only("at risk", "version", "train: its engine is of version 0.0.9", "start it again");
    plant_answer(
            "train", "{\"version\": \"" HEARTH_VERSION "\", \"health\": {\"state\": \"well\"}}");
    nothing_is_found();
}

#define CHECKS(name, level)                                                             \
    "{\"version\": \"" HEARTH_VERSION "\", \"health\": {\"state\": \"\", \"checks\": [" \
    "{\"name\": \"not_running\", \"level\": 1, \"text\": \"no epoch\"}, "               \
    "{\"name\": \"" name "\", \"level\": " level ", \"text\": \"as it says\"}]}}"

Test(checkup, what_an_engine_reports_of_itself)
{
    plant_root(64 * MIB, GOOD);
    plant_answer("train", CHECKS("no_room", "1"));
    only("at risk", "engine", "train: its engine reports no_room: as it says",
            "hearth status --root /mnt train");
    plant_answer("train", CHECKS("object_lost", "2"));
    only("broken", "engine", "train: its engine reports object_lost: as it says", "hearth status");
}

/* ---- arguments ------------------------------------------------------------------------------- */

Test(checkup, a_job_that_is_not_there_is_status_3)
{
    plant_root(64 * MIB, GOOD);
    cr_assert(eq(int, hearth("doctor", "--root", root, "other"), 3), "%s", err_text);
    cr_assert(eq(int, has(err_text, "there is no job 'other' in /mnt"), 1), "%s", err_text);
}

Test(checkup, without_a_root_its_checks_say_that_they_know_nothing)
{
    cr_assert(zero(int, hearth("doctor")), "%s", out);
    cr_assert(eq(int, has(out, "not known root           no root is named"), 1), "%s", out);
    cr_assert(zero(int, has(out, "inodes")), "%s", out);
}

/* Findings are first, in the order of what they damage; a command is one line. */
Test(checkup, the_worst_is_first_and_lines_fit_a_terminal)
{
    const char *broken, *risk, *ok;

    plant_root(64 * MIB, "noswap");
    plant_file("junk", 64 * MIB);
    cr_assert(eq(int, hearth("doctor", "--root", root), 1), "%s", out);
    broken = strstr(out, "broken    use");
    risk = strstr(out, "at risk   huge-pages");
    ok = strstr(out, "ok        root");
    cr_assert(zero(int, broken != out), "%s", out);
    cr_assert(eq(int, broken &&risk &&ok &&broken < risk && risk < ok, 1), "%s", out);
    cr_assert(eq(int, has(out, "\n                    do:  mount -o remount,size=96m /mnt\n"), 1),
            "%s", out);
    for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n"))
        if (!has(line, "  do:  "))
            cr_expect(le(sz, strlen(line), 80), "%s", line);
}

/* ---- --pairs --------------------------------------------------------------------------------- */

#define PEER(node, mib, ms)                                                    \
    "{\"node\": \"" node "\", \"pulled_bytes\": " mib "000000, \"pulls\": 9, " \
    "\"retries\": 2, \"bad\": 0, \"pull_ms\": " ms "}"
#define PEERS(list)                                                                       \
    "{\"node\": \"n0\", \"coordinator\": \"n0\", \"peers_ms\": 600000, \"peers\": [" list \
    "], \"saves\": []}"

static int pairs(const char *answer)
{
    plant_answer("train", answer);
    return hearth("doctor", "--root", root, "--pairs", "train");
}

Test(checkup, the_slow_peer_is_named)
{
    plant_root(64 * MIB, GOOD);
    cr_assert(eq(int,
                      pairs(PEERS(PEER("n1", "4000", "4000") ", " PEER(
                              "n2", "4000", "40000") ", " PEER("n3", "4000", "4100"))),
                      1),
            "%s%s", out, err_text);
    cr_expect(
            eq(int, has(out, "node n0, pulls from each peer since its epoch began, 10 min ago"), 1),
            "%s", out);
    cr_expect(eq(int, has(out, "n2    3.7 GiB  40.0 s   95.4 MiB/s        2    0  slow"), 1), "%s",
            out);
    cr_expect(eq(int, has(out, "at risk: pulls from n2 have less than half of the median"), 1),
            "%s", out);
    cr_expect(eq(int, has(out, "do:  on n2: hearth doctor"), 1), "%s", out);
    cr_expect(zero(int, has(out, "pulls from n1")), "%s", out);
}

Test(checkup, peers_that_are_alike_are_no_finding)
{
    plant_root(64 * MIB, GOOD);
    cr_assert(zero(int, pairs(PEERS(PEER("n1", "4000", "4000") ", " PEER("n2", "4000", "7000")))),
            "%s%s", out, err_text);
    cr_expect(eq(int, has(out, "ok: no peer has less than half of the median"), 1), "%s", out);
}

Test(checkup, of_two_peers_the_faster_one_is_the_measure)
{
    plant_root(64 * MIB, GOOD);
    cr_assert(eq(int, pairs(PEERS(PEER("n1", "4000", "4000") ", " PEER("n2", "4000", "9000"))), 1));
    cr_expect(eq(int, has(out, "pulls from n2 have less"), 1), "%s", out);
}

Test(checkup, what_was_not_measured_is_not_known)
{
    plant_root(64 * MIB, GOOD);
    cr_assert(zero(int, pairs(PEERS(PEER("n1", "4000", "4000") ", " PEER("n2", "4000", "3")))),
            "%s", out);
    cr_expect(eq(int, has(out, "not known: fewer than two peers have given enough"), 1), "%s", out);
    cr_assert(zero(int, pairs(PEERS(""))), "%s", out);
    cr_expect(eq(int, has(out, "not known: nothing was pulled in this epoch"), 1), "%s", out);
}

Test(checkup, pairs_of_a_job_without_an_engine_are_status_3)
{
    plant_root(64 * MIB, GOOD);
    must(hth_store_close_made(make_store()));
    cr_assert(eq(int, hearth("doctor", "--root", root, "--pairs", "train"), 3), "%s", err_text);
    cr_assert(eq(int, hearth("doctor", "--root", root, "--pairs", "trainn"), 3), "%s", err_text);
    cr_assert(eq(int, has(err_text, "there is no job 'trainn' in /mnt; did you mean 'train'?"), 1),
            "%s", err_text);
    cr_assert(eq(int, hearth("doctor", "--root", root, "trainn"), 3), "%s", err_text);
    cr_assert(eq(int, has(err_text, "did you mean 'train'?"), 1), "%s", err_text);
    cr_assert(eq(int, hearth("doctor", "--root", root, "--pairs"), 2), "%s", err_text);
}
