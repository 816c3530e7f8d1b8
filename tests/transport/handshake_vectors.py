#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The handshake of transport tcp, as docs/design/security.md describes it, and its test vectors.

    handshake_vectors.py FILE           the vectors in FILE are what this computes; exit status 1 if not
    handshake_vectors.py FILE --write   writes them

Written from docs/design/security.md and the RFCs alone, with hashlib and hmac of Python and nothing
of Hearth: X25519 of RFC 7748, HKDF of RFC 5869, ChaCha20-Poly1305 of RFC 8439.
"""

import hashlib
import hmac
import struct
import sys

P = 2**255 - 19


def x25519(secret, point):
    """RFC 7748, section 5: the Montgomery ladder."""
    k = bytearray(secret)
    k[0] &= 248
    k[31] = k[31] & 127 | 64
    k = int.from_bytes(k, "little")
    u = int.from_bytes(point, "little") & (2**255 - 1)
    x2, z2, x3, z3 = 1, 0, u, 1
    swap = 0
    for t in reversed(range(255)):
        bit = k >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a, b * b, d * a, c * b
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % P, u * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def public(secret):
    return x25519(secret, (9).to_bytes(32, "little"))


def mac(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def expand(key, info, length=32):
    """HKDF-Expand of RFC 5869."""
    out, block, n = b"", b"", 1
    while len(out) < length:
        block = mac(key, block, info, bytes([n]))
        out, n = out + block, n + 1
    return out[:length]


def chacha_block(key, counter, nonce):
    s = list(struct.unpack("<16I", b"expand 32-byte k" + key + struct.pack("<I", counter) + nonce))
    w = s[:]

    def quarter(a, b, c, d):
        for x, y, z, r in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            w[x] = w[x] + w[y] & 0xFFFFFFFF
            w[z] ^= w[x]
            w[z] = (w[z] << r | w[z] >> 32 - r) & 0xFFFFFFFF

    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *(x + y & 0xFFFFFFFF for x, y in zip(w, s)))


def chacha_seal(key, nonce, head, plain):
    """RFC 8439, section 2.8: the sealed bytes and their tag."""
    sealed = b""
    for i in range(0, len(plain), 64):
        block = chacha_block(key, 1 + i // 64, nonce)
        sealed += bytes(x ^ y for x, y in zip(plain[i : i + 64], block))
    once = chacha_block(key, 0, nonce)[:32]
    r = int.from_bytes(once[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    text = b"".join(x + bytes(-len(x) % 16) for x in (head, sealed))
    text += struct.pack("<QQ", len(head), len(sealed))
    a = 0
    for i in range(0, len(text), 16):
        a = (a + int.from_bytes(text[i : i + 16] + b"\1", "little")) * r % (2**130 - 5)
    return sealed, (a + int.from_bytes(once[16:], "little") & 2**128 - 1).to_bytes(16, "little")


VERSION, DIALS, ACCEPTS, MESSAGES, BULK, CHACHA = 2, 1, 2, 1, 2, 2


def hello(side, purpose, bond_id, nonce, public_key):
    return (
        b"HTCP"
        + bytes([VERSION, VERSION, side, purpose])
        + struct.pack("<II", CHACHA, 0)
        + bond_id
        + nonce
        + public_key
    )


def record(secret, number, plain):
    """Record `number` of a direction, counted from 0 under its first key."""
    nonce = expand(secret, b"nonce", 12)
    nonce = nonce[:4] + bytes(x ^ y for x, y in zip(nonce[4:], struct.pack("<Q", number)))
    head = struct.pack("<I", len(plain))
    return head + b"".join(chacha_seal(expand(secret, b"key"), nonce, head, plain))


def connection(name, purpose, job_key, bond_id, bond_secret, seed):
    def drawn(what):
        return hashlib.sha256(f"hearth test vector {seed} {what}".encode()).digest()

    v = {
        "job_key": job_key,
        "dialler_ephemeral": drawn("dialler ephemeral"),
        "acceptor_ephemeral": drawn("acceptor ephemeral"),
    }
    e_d, e_a = public(v["dialler_ephemeral"]), public(v["acceptor_ephemeral"])
    first = hello(DIALS, purpose, bond_id, drawn("dialler nonce"), e_d)
    v["dialler_hello"] = first + mac(expand(job_key, b"hello"), first)
    v["acceptor_hello"] = hello(ACCEPTS, purpose, bond_id, drawn("acceptor nonce"), e_a) + bytes(32)
    both = v["dialler_hello"] + v["acceptor_hello"]
    h = hashlib.sha256(both).digest()
    ee = x25519(v["dialler_ephemeral"], e_a)
    assert ee == x25519(v["acceptor_ephemeral"], e_d)
    v["secret"] = secret = mac(job_key, ee, bond_secret)
    v["dialler_proof"] = mac(expand(secret, b"dialler proves" + h), both)
    v["acceptor_proof"] = mac(expand(secret, b"acceptor proves" + h), both, v["dialler_proof"])
    v["dialler_seals"] = expand(secret, b"dialler seals" + h)
    v["acceptor_seals"] = expand(secret, b"acceptor seals" + h)
    v["bond_id"] = expand(secret, b"bond id" + h, 16)
    v["bond_secret"] = expand(secret, b"bond secret" + h)
    v["plain"] = bytes(range(100))
    v["dialler_record_0"] = record(v["dialler_seals"], 0, v["plain"])
    v["dialler_record_1"] = record(v["dialler_seals"], 1, v["plain"])
    v["acceptor_record_0"] = record(v["acceptor_seals"], 0, v["plain"])
    return {f"{name}.{key}": value for key, value in v.items()}


def published():
    """What the RFCs say comes out, so that a mistake here is not taken for one of Hearth."""
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    assert x25519(scalar, point).hex() == (
        "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    )
    sealed, tag = chacha_seal(
        bytes(range(0x80, 0xA0)),
        bytes.fromhex("070000004041424344454647"),
        bytes.fromhex("50515253c0c1c2c3c4c5c6c7"),
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the "
        b"future, sunscreen would be it.",
    )
    assert sealed[:16].hex() == "d31a8d34648e60db7b86afbc53ef7ec2"
    assert tag.hex() == "1ae10b594f09e26a7e902ecbd0600691"


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--write"]):
        sys.exit(__doc__)
    published()
    job_key = hashlib.sha256(b"hearth test vector job key").digest()
    v = connection("messages", MESSAGES, job_key, bytes(16), bytes(32), 1)
    bond = v["messages.bond_id"], v["messages.bond_secret"]
    v.update(connection("bulk", BULK, job_key, *bond, 2))
    text = "".join(f"{key}\t{value.hex()}\n" for key, value in v.items())
    if sys.argv[2:]:
        with open(sys.argv[1], "w") as f:
            f.write(text)
        return
    with open(sys.argv[1]) as f:
        if f.read() != text:
            sys.exit(f"{sys.argv[1]}: not what the handshake computes")


if __name__ == "__main__":
    main()
