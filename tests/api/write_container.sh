#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# write_container.sh PROGRAM: a checkpoint written by the C API alone says, in a .metadata that
# Python's pickle loads, where its items lie; and there they are.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null || { echo "skip: no python3"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
said=$(HEARTH_START=in_process HEARTH_ANY_ROOT=1 "$1" "$tmp" job)
[ "$said" = "$tmp/job/step-1_ckpt" ] || { echo "said: $said"; exit 1; }
python3 -B "$here/read_container.py" "$said"
