#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# decoders_test.sh ROOT: decoders.py names a decoder without a target, and what else is wrong, in a tree of its own.
set -eu
root=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tree=$tmp/tree
mkdir -p "$tree/core" "$tree/tests/fuzz/corpus/a"
cat >"$tree/core/a.c" <<'C'
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
echo 'hth_a_decode a' >"$tree/tests/fuzz/decoders"
touch "$tree/tests/fuzz/fuzz_a.c"
echo x >"$tree/tests/fuzz/corpus/a/one"
cp -r "$tree" "$tmp/kept"
bad=0

lint() { "$root/tests/lint/decoders.py" "$tree" >"$tmp/said" 2>&1; }

# shellcheck source=noticed.sh
. "$root/tests/lint/noticed.sh"

# planted WORDS COMMAND...: with that done in the tree the lint fails, with these words.
planted() {
    local words=$1
    shift
    (cd "$tree" && "$@")
    says "$words"
    rm -rf "$tree"
    cp -r "$tmp/kept" "$tree"
}

lint || { echo "refused: as it is"; cat "$tmp/said"; bad=1; }
planted 'core/a.c: hth_a_decode() takes foreign bytes apart' sed -i d tests/fuzz/decoders
planted 'hth_b_message() takes foreign bytes apart' sed -i \
    's/^static int own_decode/int hth_b_message/' core/a.c
planted 'there is no hth_a_decode()' sed -i 's/hth_a_decode/hth_a_decipher/' core/a.c
planted 'there is no fuzz_a.c' rm tests/fuzz/fuzz_a.c
planted 'fuzz_b.c: of no decoder' touch tests/fuzz/fuzz_b.c
planted 'corpus/a: nothing to replay' rm tests/fuzz/corpus/a/one
planted 'decoders:1: FUNCTION TARGET' sed -i 's/ a$/ -/' tests/fuzz/decoders
planted 'decoders:2: FUNCTION TARGET' sed -i p tests/fuzz/decoders
exit $bad
