/* SPDX-License-Identifier: Apache-2.0 */
/* Digests against published values, what a code covers, and which key files are refused. */
#include "check.h"

#include <hearth/internal/core/auth.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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
    hth_session_key(other, key_a, "x", 1);
    cr_assert(ne(int, memcmp(out, other, HTH_KEY), 0));
    hth_session_key(other, key_a, "", 0);
    cr_assert(eq(int, memcmp(out, other, HTH_KEY), 0)); /* which is why no purpose is two things */
}

Test(auth, a_session_key_depends_on_job_key_and_transcript)
{
    unsigned char a[HTH_KEY], b[HTH_KEY];

    must(hth_auth_init(NULL));
    hth_session_key(a, key_a, "hello", 5);
    hth_session_key(b, key_a, "hello", 5);
    cr_assert(eq(int, memcmp(a, b, HTH_KEY), 0));
    hth_session_key(b, key_b, "hello", 5);
    cr_assert(ne(int, memcmp(a, b, HTH_KEY), 0));
    hth_session_key(b, key_a, "hellp", 5);
    cr_assert(ne(int, memcmp(a, b, HTH_KEY), 0));
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

static const char hex[] = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F\n";

Test(auth, a_key_is_32_bytes_or_64_hex_digits, .init = setup, .fini = teardown)
{
    unsigned char want[HTH_KEY], out[HTH_KEY];

    for (size_t i = 0; i < sizeof(want); i++)
        want[i] = (unsigned char)i;
    write_key(want, sizeof(want), 0600);
    must(hth_key_load(path, out, NULL));
    cr_assert(eq(int, memcmp(out, want, HTH_KEY), 0));
    write_key(hex, 65, 0400);
    memset(out, 0, sizeof(out));
    must(hth_key_load(path, out, NULL));
    cr_assert(eq(int, memcmp(out, want, HTH_KEY), 0));
    unlink(path);
    write_key(hex, 64, 0600);
    must(hth_key_load(path, out, NULL));
}

Test(auth, a_key_of_another_length_is_refused, .init = setup, .fini = teardown)
{
    static const size_t lengths[] = { 0, 1, 31, 33, 63, 66 };
    struct hearth_error err;
    unsigned char out[HTH_KEY];
    char bytes[66];

    memset(bytes, '1', sizeof(bytes));
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        write_key(bytes, lengths[i], 0600);
        must_fail(hth_key_load(path, out, &err), HEARTH_EINVAL);
        cr_assert(ne(ptr, strstr(err.text, "32 random bytes"), NULL));
    }
    memset(bytes, 'g', sizeof(bytes));
    write_key(bytes, 64, 0600);
    must_fail(hth_key_load(path, out, NULL), HEARTH_EINVAL);
    memcpy(bytes, hex, 64);
    bytes[64] = '1'; /* one digit too many where the newline may be */
    write_key(bytes, 65, 0600);
    must_fail(hth_key_load(path, out, NULL), HEARTH_EINVAL);
}

Test(auth, a_key_that_others_can_reach_is_refused, .init = setup, .fini = teardown)
{
    static const mode_t modes[] = { 0640, 0604, 0660, 0602, 0700, 04600 };
    struct hearth_error err;
    unsigned char out[HTH_KEY];

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        write_key(hex, 65, modes[i]);
        must_fail(hth_key_load(path, out, &err), HEARTH_EINVAL);
        cr_assert(ne(ptr, strstr(err.text, "chmod 600"), NULL));
    }
}

Test(auth, a_link_a_directory_and_nothing_are_refused, .init = setup, .fini = teardown)
{
    struct hearth_error err;
    unsigned char out[HTH_KEY];

    write_key(hex, 65, 0600);
    cr_assert(eq(int, symlink(path, link_path), 0));
    must_fail(hth_key_load(link_path, out, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "symbolic link"), NULL));
    must_fail(hth_key_load(dir, out, &err), HEARTH_EINVAL);
    unlink(path);
    must_fail(hth_key_load(path, out, &err), HEARTH_EINVAL);
    cr_assert(eq(int, mkfifo(path, 0600), 0));
    must_fail(hth_key_load(path, out, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "regular file"), NULL));
}

Test(auth, a_key_of_another_user_is_refused, .init = setup, .fini = teardown)
{
    struct hearth_error err;
    unsigned char out[HTH_KEY];

    write_key(hex, 65, 0600);
    if (geteuid() != 0 || chown(path, 12345, 0) != 0)
        return; /* only root can give a file away */
    must_fail(hth_key_load(path, out, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "chown"), NULL));
}
