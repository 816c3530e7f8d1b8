/* SPDX-License-Identifier: Apache-2.0 */
/* Digests against published values, what a code covers, and which key files are refused. */
#include "check.h"

#include "core/base/auth.h"

#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const unsigned char key_a[HTH_KEY] = { 1 }, key_b[HTH_KEY] = { 2 };

Test(auth, digest_is_blake2b_256)
{
    static const unsigned char want[4] = { 0xbd, 0xdd, 0x81, 0x3c }; /* of "abc" */
    unsigned char out[HTH_DIGEST];

    must(hth_auth_init(NULL));
    hth_digest(out, "abc", 3);
    cr_assert(eq(int, memcmp(out, want, sizeof(want)), 0));
}

Test(auth, a_code_covers_key_both_pieces_and_where_they_part)
{
    unsigned char mac[HTH_MAC], other[HTH_MAC];

    must(hth_auth_init(NULL));
    hth_mac(mac, key_a, "head", 4, "body", 4);
    hth_mac(other, key_a, "head", 4, "body", 4);
    cr_assert(eq(int, hth_mac_equal(mac, other), 1));
    hth_mac(other, key_b, "head", 4, "body", 4);
    cr_assert(eq(int, hth_mac_equal(mac, other), 0));
    hth_mac(other, key_a, "heac", 4, "body", 4);
    cr_assert(eq(int, hth_mac_equal(mac, other), 0));
    hth_mac(other, key_a, "head", 4, "bodz", 4);
    cr_assert(eq(int, hth_mac_equal(mac, other), 0));
    hth_mac(other, key_a, "headb", 5, "ody", 3);
    cr_assert(eq(int, hth_mac_equal(mac, other), 0));
    hth_mac(other, key_a, "head", 4, NULL, 0);
    cr_assert(eq(int, hth_mac_equal(mac, other), 0));
}

Test(auth, a_key_for_one_purpose_tells_nothing_of_another)
{
    unsigned char out[HTH_KEY], other[HTH_KEY];

    must(hth_auth_init(NULL));
    hth_subkey(out, key_a, "hearth rendezvous 1");
    hth_subkey(other, key_a, "hearth rendezvous 1");
    cr_assert(eq(int, memcmp(out, other, HTH_KEY), 0));
    hth_subkey(other, key_b, "hearth rendezvous 1");
    cr_assert(ne(int, memcmp(out, other, HTH_KEY), 0));
    hth_subkey(other, key_a, "hearth rendezvous");
    cr_assert(ne(int, memcmp(out, other, HTH_KEY), 0));
    hth_subkey(out, key_a, "hearth session 1");
    hth_session_key(other, key_a, "", "x", 1);
    cr_assert(ne(int, memcmp(out, other, HTH_KEY), 0));
    hth_session_key(other, key_a, "", "", 0);
    cr_assert(eq(int, memcmp(out, other, HTH_KEY), 0)); /* which is why no purpose is two things */
}

Test(auth, a_session_key_depends_on_job_key_purpose_and_transcript)
{
    unsigned char a[HTH_KEY], b[HTH_KEY];

    must(hth_auth_init(NULL));
    hth_session_key(a, key_a, "prove", "hello", 5);
    hth_session_key(b, key_a, "prove", "hello", 5);
    cr_assert(eq(int, memcmp(a, b, HTH_KEY), 0));
    hth_session_key(b, key_b, "prove", "hello", 5);
    cr_assert(ne(int, memcmp(a, b, HTH_KEY), 0));
    hth_session_key(b, key_a, "prove", "hellp", 5);
    cr_assert(ne(int, memcmp(a, b, HTH_KEY), 0));
    hth_session_key(b, key_a, "proof", "hello", 5);
    cr_assert(ne(int, memcmp(a, b, HTH_KEY), 0));
    hth_session_key(b, key_a, "provehello", "", 0);
    cr_assert(ne(int, memcmp(a, b, HTH_KEY), 0));
}

Test(auth, an_engine_proves_its_key_anew_to_each_who_asks)
{
    unsigned char a[HTH_MAC], b[HTH_MAC];
    const unsigned char one[HTH_LOCAL_CHALLENGE] = { 1 }, two[HTH_LOCAL_CHALLENGE] = { 2 };

    must(hth_auth_init(NULL));
    hth_local_proof(a, key_a, one);
    hth_local_proof(b, key_a, one);
    cr_assert(eq(int, hth_mac_equal(a, b), 1));
    hth_local_proof(b, key_a, two);
    cr_assert(eq(int, hth_mac_equal(a, b), 0));
    hth_local_proof(b, key_b, one);
    cr_assert(eq(int, hth_mac_equal(a, b), 0));
}

/* --- key files --- */

static char dir[] = "/tmp/hearth-key-XXXXXX";
static char path[64], link_path[64];

static void setup(void)
{
    alarm(30);
    cr_assert(ne(ptr, mkdtemp(dir), NULL));
    snprintf(path, sizeof(path), "%s/key", dir);
    snprintf(link_path, sizeof(link_path), "%s/link", dir);
}

static void teardown(void)
{
    unlink(path);
    unlink(link_path);
    rmdir(dir);
}

static void write_key(const void *bytes, size_t n, mode_t mode)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

    cr_assert(ge(int, fd, 0));
    cr_assert(eq(long, (long)write(fd, bytes, n), (long)n));
    cr_assert(eq(int, fchmod(fd, mode), 0));
    close(fd);
}

static const char hex[] = "00e1c8a39b7446550c9f13d2a8b7e6315a2cfe0190847763D5B2194E3FA86D1F\n";

Test(auth, a_key_is_32_bytes_or_64_hex_digits, .init = setup, .fini = teardown)
{
    unsigned char want[HTH_KEY];
    struct hth_key key;

    for (size_t i = 0; i < sizeof(want); i++)
        cr_assert(eq(int, sscanf(hex + 2 * i, "%2hhx", &want[i]), 1));
    write_key(want, sizeof(want), 0600);
    must(hth_key_open(path, &key, NULL));
    cr_assert(eq(int, memcmp(key.bytes, want, HTH_KEY), 0));
    hth_key_close(&key);
    write_key(hex, 65, 0400);
    must(hth_key_open(path, &key, NULL));
    cr_assert(eq(int, memcmp(key.bytes, want, HTH_KEY), 0));
    hth_key_close(&key);
    unlink(path);
    write_key(hex, 64, 0600);
    must(hth_key_open(path, &key, NULL));
    hth_key_close(&key);
}

Test(auth, a_key_of_another_length_is_refused, .init = setup, .fini = teardown)
{
    static const size_t lengths[] = { 0, 1, 31, 33, 63, 66 };
    struct hearth_error err;
    struct hth_key key;
    char bytes[66];

    memset(bytes, '1', sizeof(bytes));
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        write_key(bytes, lengths[i], 0600);
        must_fail(hth_key_open(path, &key, &err), HEARTH_EINVAL);
        cr_assert(ne(ptr, strstr(err.text, "32 random bytes"), NULL));
    }
    memset(bytes, 'g', sizeof(bytes));
    write_key(bytes, 64, 0600);
    must_fail(hth_key_open(path, &key, NULL), HEARTH_EINVAL);
    memcpy(bytes, hex, 64);
    bytes[64] = '1'; /* one digit too many where the newline may be */
    write_key(bytes, 65, 0600);
    must_fail(hth_key_open(path, &key, NULL), HEARTH_EINVAL);
}

Test(auth, a_key_that_is_not_random_is_refused_with_the_reason, .init = setup, .fini = teardown)
{
    static const char texts[][33] = { "01234567890123456789012345678901",
        "correct horse battery staple !!!", "passwordpasswordpasswordpassword" };
    unsigned char bytes[HTH_KEY] = { 0 };
    struct hearth_error err;
    struct hth_key key;
    char two[131];

    for (unsigned i = 0; i < 6; i++) {
        for (unsigned k = 0; k < HTH_KEY && i > 2; k++)
            bytes[k] = (unsigned char)(i == 3 ? 255 : i == 4 ? 100 + k : k % 11 * 23);
        if (i < 3)
            memcpy(bytes, texts[i], HTH_KEY);
        write_key(bytes, HTH_KEY, 0600);
        must_fail(hth_key_open(path, &key, &err), HEARTH_EINVAL);
        cr_assert(ne(ptr, strstr(err.text, i < 3 ? "holds a text" : "holds a few bytes"), NULL),
                "%u: %s", i, err.text);
        cr_assert(ne(ptr, strstr(err.text, "hearth key new"), NULL), "%s", err.text);
    }
    memset(bytes, 0, sizeof(bytes));
    write_key(bytes, HTH_KEY, 0600);
    must_fail(hth_key_open(path, &key, &err), HEARTH_EINVAL);
    memset(two, '0', sizeof(two));
    write_key(two, 64, 0600); /* the same as digits */
    must_fail(hth_key_open(path, &key, &err), HEARTH_EINVAL);
    memcpy(two, hex, 65); /* and as the second one */
    write_key(two, 129, 0600);
    must_fail(hth_key_open(path, &key, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "holds a few bytes"), NULL), "%s", err.text);
}

/* 2^14 draws: one that is refused would be found in a job's lifetime of keys. */
Test(auth, a_random_key_is_never_called_weak)
{
    unsigned char key[HTH_KEY];

    must(hth_auth_init(NULL));
    for (unsigned i = 0; i < 1u << 14; i++) {
        hth_random_bytes(key, sizeof(key));
        cr_assert(eq(ptr, (void *)(uintptr_t)hth_key_weak(key), NULL));
    }
}

Test(auth, a_key_that_others_can_reach_is_refused, .init = setup, .fini = teardown)
{
    static const mode_t modes[] = { 0640, 0604, 0660, 0602, 0700, 04600 };
    struct hearth_error err;
    struct hth_key key;

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        write_key(hex, 65, modes[i]);
        must_fail(hth_key_open(path, &key, &err), HEARTH_EINVAL);
        cr_assert(ne(ptr, strstr(err.text, "chmod 600"), NULL));
    }
}

/* As user 61234, with group 61300. 0: the key is taken. */
static int key_as_user(void)
{
    static const gid_t groups[] = { 61300 };
    struct hth_key key;
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        if (setgroups(1, groups) || setgid(61234) || setuid(61234))
            _exit(2);
        _exit(hth_key_open(path, &key, NULL) != HEARTH_OK);
    }
    cr_assert(eq(int, waitpid(pid, &status, 0), pid));
    cr_assert(ne(int, status, 2 << 8), "user 61234 cannot be had");
    return status;
}

Test(auth, a_key_of_roots_that_one_group_of_ours_reads_is_taken, .init = setup, .fini = teardown)
{
    static const struct {
        mode_t mode;
        uid_t user;
        gid_t group;
        int taken;
    } rows[] = { { 0440, 0, 61300, 1 }, { 0040, 0, 61300, 1 }, { 0440, 0, 61234, 1 },
        { 0440, 0, 61301, 0 }, { 0444, 0, 61300, 0 }, { 0640, 0, 61300, 0 }, { 0460, 0, 61300, 0 },
        { 04440, 0, 61300, 0 }, { 0440, 61235, 61300, 0 }, { 0440, 61234, 61300, 0 } };

    if (geteuid() != 0)
        cr_skip_test("only root can be another user");
    cr_assert(eq(int, chmod(dir, 0755), 0));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unlink(path);
        write_key(hex, 65, 0600);
        cr_assert(eq(int, chown(path, rows[i].user, rows[i].group), 0));
        cr_assert(eq(int, chmod(path, rows[i].mode), 0));
        cr_expect(eq(int, key_as_user() == 0, rows[i].taken), "row %zu", i);
    }
}

Test(auth, a_link_a_directory_and_nothing_are_refused, .init = setup, .fini = teardown)
{
    struct hearth_error err;
    struct hth_key key;

    write_key(hex, 65, 0600);
    cr_assert(eq(int, symlink(path, link_path), 0));
    must_fail(hth_key_open(link_path, &key, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "symbolic link"), NULL));
    must_fail(hth_key_open(dir, &key, &err), HEARTH_EINVAL);
    unlink(path);
    must_fail(hth_key_open(path, &key, &err), HEARTH_EINVAL);
    cr_assert(eq(int, mkfifo(path, 0600), 0));
    must_fail(hth_key_open(path, &key, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "regular file"), NULL));
}

Test(auth, a_key_of_another_user_is_refused, .init = setup, .fini = teardown)
{
    struct hearth_error err;
    struct hth_key key;

    write_key(hex, 65, 0600);
    if (geteuid() != 0 || chown(path, 12345, 0) != 0)
        return; /* only root can give a file away */
    must_fail(hth_key_open(path, &key, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "chown"), NULL));
}

/* --- two keys: while the job's is changed --- */

static const char second[] = "ffe1c8a39b7446550c9f13d2a8b7e6315a2cfe0190847763d5b2194e3fa86d1f\n";

static void write_two(const char *first, const char *other)
{
    char text[131];

    snprintf(text, sizeof(text), "%.65s%.65s", first, other);
    unlink(path);
    write_key(text, strlen(text), 0600);
}

Test(auth, a_file_of_two_keys_has_one_to_prove_and_one_to_take, .init = setup, .fini = teardown)
{
    struct hth_key key;

    for (int newline = 0; newline < 2; newline++) {
        write_two(hex, second);
        if (!newline)
            cr_assert(zero(int, truncate(path, 129)));
        must(hth_key_open(path, &key, NULL));
        cr_assert(eq(int, key.bytes[0], 0));
        cr_assert(eq(int, key.other[0], 0xff));
        cr_assert(eq(u32, key.id, hth_key_id(key.bytes)));
        cr_assert(eq(u32, key.other_id, hth_key_id(key.other)));
        cr_assert(ne(u32, key.id, key.other_id));
        cr_assert(hth_key_of(&key, 0) == key.bytes && hth_key_of(&key, key.id) == key.bytes);
        cr_assert(hth_key_of(&key, key.other_id) == key.other);
        cr_assert(hth_key_of(&key, key.id ^ key.other_id) == NULL);
        hth_key_close(&key);
    }
}

Test(auth, two_keys_that_are_one_and_what_is_no_second_line_are_refused, .init = setup,
        .fini = teardown)
{
    static const char *const odd[] = { "f", "\n",
        "gg0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n" };
    struct hearth_error err;
    struct hth_key key;

    write_two(hex, hex);
    must_fail(hth_key_open(path, &key, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "twice"), NULL));
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        write_two(hex, odd[i]);
        must_fail(hth_key_open(path, &key, &err), HEARTH_EINVAL);
    }
    write_two(hex, second);
    cr_assert(eq(int, truncate(path, 128), 0));
    must_fail(hth_key_open(path, &key, &err), HEARTH_EINVAL);
}

/* A handshake that is under way has a pointer to its key. */
Test(auth, a_key_that_stays_does_not_move_and_one_that_goes_becomes_nobodys, .init = setup,
        .fini = teardown)
{
    static const unsigned char zeros[HTH_KEY];
    const unsigned char *old, *next;
    unsigned char was[HTH_KEY];
    struct hth_key key;
    int changed;

    write_key(hex, 65, 0600);
    must(hth_key_open(path, &key, NULL));
    old = key.bytes;
    memcpy(was, old, HTH_KEY);
    must(hth_key_reload(&key, NULL, path, &changed, NULL));
    cr_assert(zero(int, changed));
    write_two(hex, second);
    must(hth_key_reload(&key, NULL, path, &changed, NULL));
    next = key.other;
    cr_assert(changed && key.bytes == old && next && next != old);
    write_two(second, hex);
    must(hth_key_reload(&key, NULL, path, &changed, NULL));
    cr_assert(changed && key.bytes == next && key.other == old);
    cr_assert(eq(int, memcmp(old, was, HTH_KEY), 0));
    write_two(second, "");
    must(hth_key_reload(&key, NULL, path, &changed, NULL));
    cr_assert(changed && key.bytes == next && !key.other);
    cr_assert(ne(int, memcmp(old, was, HTH_KEY), 0), "the key that went is still there");
    cr_assert(ne(int, memcmp(old, zeros, HTH_KEY), 0), "anybody can prove with zeros");
    unlink(path);
    must_fail(hth_key_reload(&key, NULL, path, &changed, NULL), HEARTH_EINVAL);
    cr_assert(key.bytes == next && next[0] == 0xff, "the key went with its file");
    hth_key_close(&key);
}

Test(auth, a_key_comes_by_a_descriptor_too, .init = setup, .fini = teardown)
{
    int fd = memfd_create("key", MFD_CLOEXEC), ends[2];
    struct hth_key key;
    char name[32];

    cr_assert(eq(long, (long)write(fd, hex, 65), 65L));
    snprintf(name, sizeof(name), "fd:%d", fd);
    for (int i = 0; i < 2; i++) { /* it can be read again */
        must(hth_key_open(name, &key, NULL));
        cr_assert(eq(int, key.bytes[31], 0x1f));
        hth_key_close(&key);
    }
    close(fd);
    must_fail(hth_key_open(name, &key, NULL), HEARTH_EINVAL);
    must_fail(hth_key_open("fd:x", &key, NULL), HEARTH_EINVAL);
    cr_assert(zero(int, pipe(ends)));
    snprintf(name, sizeof(name), "fd:%d", ends[0]);
    must_fail(hth_key_open(name, &key, NULL), HEARTH_EINVAL);
    write_key(hex, 65, 0644);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(name, sizeof(name), "fd:%d", fd);
    must_fail(hth_key_open(name, &key, NULL), HEARTH_EINVAL);
    close(fd);
}

/* --- where a key lies --- */

/* Flags of the mapping that has this address, as /proc/self/smaps writes them. */
static const char *flags_of(const void *at)
{
    static char line[512];
    uintptr_t from = 0, to = 0, want = (uintptr_t)at;
    FILE *f = fopen("/proc/self/smaps", "re");

    while (fgets(line, sizeof(line), f)) {
        sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to);
        if (want >= from && want < to && !strncmp(line, "VmFlags:", 8))
            break;
    }
    fclose(f);
    return line;
}

Test(auth, a_key_is_locked_and_neither_dumped_nor_inherited, .init = setup, .fini = teardown)
{
    struct hth_key key;
    const unsigned char *bytes;
    unsigned char there;
    uintptr_t page;

#ifdef __SANITIZE_ADDRESS__
    teardown(); /* a skipped test has no .fini */
    cr_skip_test("a sanitizer locks no memory");
#endif
    write_key(hex, 65, 0600);
    must(hth_key_open(path, &key, NULL));
    bytes = key.bytes;
    page = (uintptr_t)bytes / 4096 * 4096;
    for (int i = 0; i < 3; i++)
        cr_assert(
                ne(ptr, strstr(flags_of(bytes), (const char *[]){ " lo", " dd", " dc" }[i]), NULL),
                "%s", flags_of(bytes));
    cr_assert(eq(int, key.locked, 1));
    hth_key_close(&key);
    hth_key_close(&key); /* nothing is left to do */
    cr_assert(eq(ptr, key.place, NULL));
    cr_assert(ne(int, mincore((void *)page, 4096, &there), 0));
}

/* Only a process with a limit on locked memory can fail to lock it. */
Test(auth, a_key_that_cannot_be_locked_is_used_and_says_so, .init = setup, .fini = teardown)
{
#ifdef __SANITIZE_ADDRESS__
    teardown(); /* a skipped test has no .fini */
    cr_skip_test("a sanitizer locks no memory");
#endif
    struct rlimit none = { 0, 0 };
    struct hth_key key;
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        write_key(hex, 65, 0600);
        if (chmod(dir, 0777) || (!geteuid() && (chown(path, 65534, 65534) || setuid(65534))))
            _exit(77);
        if (setrlimit(RLIMIT_MEMLOCK, &none) || hth_key_open(path, &key, NULL))
            _exit(1);
        _exit(key.locked ? 2 : key.bytes[31] == 0x1f ? 0 : 3);
    }
    waitpid(child, &status, 0);
    cr_assert(zero(int, status), "%x", (unsigned)status);
}
