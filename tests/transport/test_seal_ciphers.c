/* SPDX-License-Identifier: Apache-2.0 */
/* What sealed connections are made of, against published vectors, by each library that is there. */
#include "check.h"

#include "transport/tcp/seal.h"
#include "transport/tcp/seal_cipher.h"

#include <sodium.h>
#include <stdio.h>

static const enum hth_cipher_lib libs[] = { HTH_CIPHER_LIBCRYPTO, HTH_CIPHER_LIBSODIUM };

static void seal_setup(void)
{
    must(hth_seal_init(NULL));
}

static size_t hex(unsigned char *out, const char *text)
{
    size_t n = strlen(text) / 2;

    for (size_t i = 0; i < n; i++) {
        unsigned byte;

        cr_assert(eq(int, sscanf(text + 2 * i, "%2x", &byte), 1));
        out[i] = (unsigned char)byte;
    }
    return n;
}

static void must_be(const unsigned char *bytes, const char *text)
{
    unsigned char want[256];
    size_t n = hex(want, text);

    cr_assert(zero(int, memcmp(bytes, want, n)), "not %s", text);
}

Test(seal_ciphers, x25519_is_that_of_rfc_7748, .init = seal_setup)
{
    unsigned char a[HTH_KEY], b[HTH_KEY], out[HTH_KEY];

    hex(a, "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4");
    hex(b, "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c");
    must(hth_exchange(out, a, b));
    must_be(out, "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552");
    hex(a, "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"); /* 6.1 */
    hth_exchange_public(out, a);
    must_be(out, "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
    hex(b, "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
    must(hth_exchange(out, a, b));
    must_be(out, "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
}

Test(seal_ciphers, a_public_key_that_makes_all_secrets_alike_is_refused, .init = seal_setup)
{
    unsigned char secret[HTH_KEY] = { 9 }, out[HTH_KEY], weak[HTH_KEY] = { 0 };

    must_fail(hth_exchange(out, secret, weak), HEARTH_EAUTH);
    weak[0] = 1;
    must_fail(hth_exchange(out, secret, weak), HEARTH_EAUTH);
    hex(weak, "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800");
    must_fail(hth_exchange(out, secret, weak), HEARTH_EAUTH);
}

Test(seal_ciphers, hkdf_is_that_of_rfc_5869, .init = seal_setup)
{
    unsigned char ikm[22], salt[13], info[10], out[82];
    unsigned char key[HTH_SHA256];

    memset(ikm, 0x0b, sizeof(ikm));
    hex(salt, "000102030405060708090a0b0c");
    hex(info, "f0f1f2f3f4f5f6f7f8f9");
    hth_hmac(key, salt, sizeof(salt), ikm, 7, ikm + 7, sizeof(ikm) - 7);
    must_be(key, "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
    hth_hkdf_expand(out, 42, key, info, sizeof(info));
    must_be(out,
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
    hth_hmac(key, "", 0, ikm, sizeof(ikm), "", 0); /* its third: neither salt nor info */
    must_be(key, "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04");
    hth_hkdf_expand(out, 42, key, "", 0);
    must_be(out,
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
}

static const struct vector {
    enum hth_suite suite;
    const char *key, *nonce, *head, *plain, *sealed, *tag;
} vectors[] = {
    { HTH_SUITE_CHACHA20_POLY1305, /* RFC 8439, 2.8.2 */
            "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
            "070000004041424344454647", "50515253c0c1c2c3c4c5c6c7",
            "4c616469657320616e642047656e746c656d656e206f662074686520636c617373206f66202739393a20496620"
            "4920636f756c64206f6666657220796f75206f6e6c79206f6e652074697020666f7220746865206675747572"
            "652c2073756e73637265656e20776f756c642062652069742e",
            "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69"
            "da92728b1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad67594"
            "5585808b4831d7bc3ff4def08e4b7a9de576d26586cec64b6116",
            "1ae10b594f09e26a7e902ecbd0600691" },
    { HTH_SUITE_AES_256_GCM, /* McGrew and Viega, test case 16 */
            "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
            "cafebabefacedbaddecaf888", "feedfacedeadbeeffeedfacedeadbeefabaddad2",
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e24"
            "49a6b525b16aedf5aa0de657ba637b39",
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b10"
            "56828838c5f61e6393ba7a0abcc9f662",
            "76fc6ece0f4e1768cddf8853bb2d551b" },
};

static void vector_holds(const struct vector *v, enum hth_cipher_lib lib)
{
    unsigned char key[HTH_KEY], nonce[HTH_AEAD_NONCE], head[32], plain[128], out[128],
            tag[HTH_AEAD_TAG];
    size_t head_len = hex(head, v->head), len = hex(plain, v->plain);
    struct hth_cipher *c = hth_cipher_new(v->suite, lib, 1);

    cr_assert(ne(ptr, c, NULL));
    hex(key, v->key);
    hex(nonce, v->nonce);
    must(hth_cipher_key(c, key));
    must(hth_cipher_seal(c, nonce, head, head_len, out, plain, len, tag));
    must_be(out, v->sealed);
    must_be(tag, v->tag);
    hth_cipher_free(c);
    c = hth_cipher_new(v->suite, lib, 0);
    cr_assert(ne(ptr, c, NULL));
    must(hth_cipher_key(c, key));
    must(hth_cipher_open(c, nonce, head, head_len, out, out, len, tag));
    must_be(out, v->plain);
    hth_cipher_free(c);
}

Test(seal_ciphers, ciphers_are_those_of_rfc_8439_and_of_gcm, .init = seal_setup)
{
    unsigned held = 0;

    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        for (size_t k = 0; k < 2; k++)
            if (hth_cipher_suites(libs[k]) & vectors[i].suite) {
                vector_holds(&vectors[i], libs[k]);
                held++;
            }
    cr_assert(ge(uint, held, 1)); /* libsodium's is there always */
}

Test(seal_ciphers, gcm_is_libsodiums_too, .init = seal_setup)
{
    unsigned char key[HTH_KEY] = { 5 }, nonce[HTH_AEAD_NONCE] = { 6 }, in[1000], a[1000], b[1000];
    unsigned char tag_a[HTH_AEAD_TAG], tag_b[HTH_AEAD_TAG];
    struct hth_cipher *c = hth_cipher_new(HTH_SUITE_AES_256_GCM, HTH_CIPHER_LIBCRYPTO, 1);

    if (!c || !crypto_aead_aes256gcm_is_available())
        cr_skip_test("no libcrypto, or no AES in this processor");
    memset(in, 7, sizeof(in));
    must(hth_cipher_key(c, key));
    must(hth_cipher_seal(c, nonce, "head", 4, a, in, sizeof(in), tag_a));
    crypto_aead_aes256gcm_encrypt_detached(
            b, tag_b, NULL, in, sizeof(in), (const unsigned char *)"head", 4, NULL, nonce, key);
    cr_assert(zero(int, memcmp(a, b, sizeof(a))));
    cr_assert(zero(int, memcmp(tag_a, tag_b, sizeof(tag_a))));
    hth_cipher_free(c);
}

Test(seal_ciphers, each_suite_has_a_rate_and_no_suite_has_none, .init = seal_setup)
{
    uint32_t suites = hth_seal_suites();

    for (uint32_t suite = 1; suite <= suites; suite <<= 1)
        if (suites & suite)
            cr_assert(gt(dbl, hth_seal_rate((enum hth_suite)suite), 0), "suite %u", suite);
    cr_assert(le(dbl, hth_seal_rate((enum hth_suite)0), 0));
}
