/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake and its records come out as tests/transport/handshake_vectors.py computes them from
 * docs/design/security.md and the RFCs alone. Ephemeral keys are drawn here and nowhere told, so
 * those of the vectors are put in their place.
 */
#include "check.h"

#include "transport/tcp/seal.h"
#include "transport/tcp/seal_hello.h"

#include <stdio.h>
#include <stdlib.h>

#define VALUE_MOST 256

static char file[32768];

static void vectors_read(void)
{
    char path[512];
    FILE *f;

    must(hth_seal_init(NULL));
    snprintf(path, sizeof(path), "%s/handshake.tsv", getenv("HEARTH_TEST_DATA"));
    f = fopen(path, "re");
    cr_assert(ne(ptr, f, NULL), "%s", path);
    file[fread(file, 1, sizeof(file) - 1, f)] = '\0';
    fclose(f);
}

/* Of one connection; its bytes. */
static size_t vector(const char *connection, const char *name, unsigned char out[VALUE_MOST])
{
    char line[64];
    const char *at;
    size_t len = 0;
    unsigned byte;

    snprintf(line, sizeof(line), "%s.%s\t", connection, name);
    at = strstr(file, line);
    cr_assert(at != NULL, "%s", line);
    for (at += strlen(line); sscanf(at, "%2x", &byte) == 1 && *at != '\n'; at += 2) {
        cr_assert(lt(sz, len, VALUE_MOST));
        out[len++] = (unsigned char)byte;
    }
    return len;
}

static void must_be_vector(
        const char *connection, const char *name, const unsigned char *bytes, size_t len)
{
    unsigned char want[VALUE_MOST];

    cr_assert(eq(sz, vector(connection, name, want), len), "%s.%s", connection, name);
    cr_assert(zero(int, memcmp(want, bytes, len)), "%s.%s", connection, name);
}

struct both {
    struct hth_seal *dialler, *acceptor;
};

/* Both sides of it, as far as proofs and keys. */
static void shake(const char *name, enum hth_purpose purpose, const struct hth_seal_bond *bond,
        struct both *out)
{
    unsigned char key[VALUE_MOST], hello_d[VALUE_MOST], hello_a[VALUE_MOST], got[HTH_SEAL_HELLO];
    unsigned char secret[VALUE_MOST], proof[HTH_SEAL_PROOF];
    struct hth_seal_opts o = {
        .key = key, .suites = HTH_SUITE_CHACHA20_POLY1305, .purpose = purpose, .bond = bond
    };
    struct hth_seal_hand d, a;

    vector(name, "job_key", key);
    vector(name, "dialler_hello", hello_d);
    vector(name, "acceptor_hello", hello_a);
    cr_assert(hth_seal_knows(key, hello_d), "%s: another mac", name);

    must(hth_seal_dial(&d, &o, got, NULL));
    vector(name, "dialler_ephemeral", secret);
    memcpy(d.secret, secret, HTH_KEY);
    memcpy(d.transcript, hello_d, HTH_SEAL_HELLO);
    must(hth_seal_accept(&a, &o, hello_d, got, NULL));
    cr_assert(zero(int, memcmp(got, hello_a, 32)), "%s: another head", name);
    vector(name, "acceptor_ephemeral", secret);
    memcpy(a.secret, secret, HTH_KEY);
    memcpy(a.transcript + HTH_SEAL_HELLO, hello_a, HTH_SEAL_HELLO);

    must(hth_seal_answer(&d, hello_a, proof, NULL));
    must_be_vector(name, "dialler_proof", proof, sizeof(proof));
    must_be_vector(name, "secret", d.secret, HTH_KEY);
    must(hth_seal_admit(&a, proof, proof, &out->acceptor, NULL));
    must_be_vector(name, "acceptor_proof", proof, sizeof(proof));
    must(hth_seal_finish(&d, proof, &out->dialler, NULL));
}

static void must_seal(
        const char *name, const char *record, struct hth_seal *from, struct hth_seal *to)
{
    unsigned char plain[VALUE_MOST], out[VALUE_MOST], back[VALUE_MOST];
    size_t len = vector(name, "plain", plain);

    must(hth_seal_put(from, out, plain, len));
    must_be_vector(name, record, out, len + HTH_SEAL_MORE);
    must(hth_seal_take(to, back, out, out + HTH_SEAL_HEAD, out + HTH_SEAL_HEAD + len));
    cr_assert(zero(int, memcmp(plain, back, len)));
}

static void must_be_as_computed(const char *name, struct both *b)
{
    struct hth_seal_bond bond;

    hth_seal_bond(b->acceptor, &bond);
    must_be_vector(name, "bond_id", bond.id, sizeof(bond.id));
    must_be_vector(name, "bond_secret", bond.secret, sizeof(bond.secret));
    must_seal(name, "dialler_record_0", b->dialler, b->acceptor);
    must_seal(name, "dialler_record_1", b->dialler, b->acceptor);
    must_seal(name, "acceptor_record_0", b->acceptor, b->dialler);
}

Test(seal_vectors, both_connections_come_out_as_an_outsider_computes_them, .init = vectors_read)
{
    struct both messages, bulk;
    struct hth_seal_bond bond;

    shake("messages", HTH_PURPOSE_MESSAGES, NULL, &messages);
    must_be_as_computed("messages", &messages);
    hth_seal_bond(messages.dialler, &bond);
    shake("bulk", HTH_PURPOSE_BULK, &bond, &bulk);
    must_be_as_computed("bulk", &bulk);
    hth_seal_close(messages.dialler);
    hth_seal_close(messages.acceptor);
    hth_seal_close(bulk.dialler);
    hth_seal_close(bulk.acceptor);
}
