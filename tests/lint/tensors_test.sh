#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tensors_test.sh ROOT: tensors.py sees a tensor that is made without device or dtype, and nothing else, in a tree of its own.
set -eu
root=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/adapters/pytorch/hearth_checkpoint/torch"
file=$tmp/adapters/pytorch/hearth_checkpoint/torch/a.py
echo 'x = torch.zeros(1, dtype=d, device="cpu")' >"$tmp/adapters/pytorch/hearth_checkpoint/b.py"
bad=0

lint() { "$root/tests/lint/tensors.py" "$tmp" >"$tmp/said" 2>&1; }

# shellcheck source=noticed.sh
. "$root/tests/lint/noticed.sh"

# takes TEXT: nothing is said of it.
takes() {
    printf '%s\n' "$1" >"$file"
    lint || { echo "refused: $1"; cat "$tmp/said"; bad=1; }
}

# refuses WHAT TEXT: it is named, with its line.
refuses() {
    printf '\n%s\n' "$2" >"$file"
    says "hearth_checkpoint/torch/a.py:2: $1"
}

takes 'x = torch.empty(shape, dtype=dtype, device="cpu")'
takes 'x = torch.empty_like(y), y.new_empty(3), torch.frombuffer(b, dtype=d), numpy.zeros(3)'
takes '"""torch.empty(3)"""'
refuses "torch's empty() without device" 'x = torch.empty(shape, dtype=dtype)'
refuses "torch's zeros() without dtype" 'x = torch.zeros(3, device="cpu")'
refuses "torch's tensor() without dtype and device" 'x = torch.tensor([1])'
refuses "torch's frombuffer() without dtype" 'x = torch.frombuffer(b)'
refuses "torch's _make_wrapper_subclass() without device" 'x = torch.Tensor._make_wrapper_subclass(K, s, dtype=d)'
refuses "from torch import empty" 'from torch import empty'
exit $bad
