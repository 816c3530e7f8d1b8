#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# decoders_test.sh ROOT: decoders.py names a decoder without a target, and what else is wrong, in a tree of its own.
set -eu
root=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/core" "$tmp/tests/fuzz/corpus/a"
cat >"$tmp/core/a.c" <<'C'
int hth_a_decode_as(int versions, struct a *out, const void *bytes, size_t len)
{
}

int hth_a_decode(struct a *out, const void *bytes, size_t len)
{
}

static int own_decode(const unsigned char *bytes)
{
}

int hth_tally_parse(struct tally *t)
{
}
C
echo 'hth_a_decode a' >"$tmp/tests/fuzz/decoders"
touch "$tmp/tests/fuzz/fuzz_a.c"
echo x >"$tmp/tests/fuzz/corpus/a/one"
cp -r "$tmp" "$tmp.kept"
trap 'rm -rf "$tmp" "$tmp.kept"' EXIT
bad=0

# says WORDS COMMAND...: with that done in the tree the lint fails, and says so.
says() {
    local words=$1
    shift
    (cd "$tmp" && "$@")
    if "$root/tests/lint/decoders.py" "$tmp" >"$tmp.said" 2>&1; then
        echo "not noticed: $words"
        bad=1
    elif ! grep -qF "$words" "$tmp.said"; then
        echo "noticed for the wrong reason: $words"
        cat "$tmp.said"
        bad=1
    fi
    rm -rf "$tmp" "$tmp.said"
    cp -r "$tmp.kept" "$tmp"
}

"$root/tests/lint/decoders.py" "$tmp" || { echo "refused: as it is"; bad=1; }
says 'core/a.c: hth_a_decode() takes foreign bytes apart' sed -i d tests/fuzz/decoders
says 'hth_b_message() takes foreign bytes apart' sed -i 's/^static int own_decode/int hth_b_message/' core/a.c
says 'there is no hth_a_decode()' sed -i 's/hth_a_decode/hth_a_decipher/' core/a.c
says 'there is no fuzz_a.c' rm tests/fuzz/fuzz_a.c
says 'fuzz_b.c: of no decoder' touch tests/fuzz/fuzz_b.c
says 'corpus/a: nothing to replay' rm tests/fuzz/corpus/a/one
says 'decoders:1: FUNCTION TARGET' sed -i 's/ a$/ -/' tests/fuzz/decoders
says 'decoders:2: FUNCTION TARGET' sed -i p tests/fuzz/decoders
exit $bad
