#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_test.sh BUILD: tests/gpu/run over the driver of the tests has each row in the table and
# in its JSON, and ends with 77 where there is no GPU.
set -eu
here=$(dirname "$0")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

"$here"/run --fake --build "$1" --rounds 2 --json "$tmp"/rows >"$tmp"/table
python3 - "$tmp"/rows "$tmp"/table <<'P'
import json, sys

rows = json.load(open(sys.argv[1]))
table = open(sys.argv[2]).read()
wanted = ["strided and host pieces in one save", "order before and behind, registered slots",
          "order before and behind, the buffers", "add, fence, commit of 8 MiB",
          "save of 40 tensors of 128 KiB", "save through the buffers, 20 MiB",
          "  host memory beside the state", "training step beside a save",
          "load into GPU memory, 4 MiB", "save into a registered slot, 1 MiB",
          "save into a registered slot, 4 MiB", "pinning a slot",
          "  longest cuMemGetInfo of another process"]
names = [row["case"] for row in rows]
assert names == wanted, names
for row in rows:
    assert row["case"] in table, row
    assert "skipped" not in row, row
    if row["limit_name"]:
        assert row["ratio"] > 0 and row["rounds"] >= 2, row
    assert row.get("wanted", 0) == 0, row
P

# A library of another name is none, and the tests' own is none without --fake.
LD_LIBRARY_PATH=$1/lib/fakegpu "$1"/bin/gpu_rows --root "$tmp" >"$tmp"/none && exit 1 || rc=$?
[ "$rc" = 77 ] && grep -q "^no GPU: .*the tests' own" "$tmp"/none
ls /dev/nvidia[0-9]* >/dev/null 2>&1 || {
    "$here"/run >"$tmp"/none && exit 1 || rc=$?
    [ "$rc" = 77 ] && grep -q 'no GPU' "$tmp"/none
}
