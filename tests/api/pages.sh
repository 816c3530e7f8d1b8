#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pages.sh PROGRAM: the blocks of C in the pages run, with an engine of their own.
set -eu
tmp=$(mktemp -d /dev/shm/hearth-pages-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
"$1" "$tmp"
