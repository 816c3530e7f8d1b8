#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts.sh ROOT: shellcheck has nothing to say about any script, by whatever name.
set -eu
cd "$1"
command -v shellcheck >/dev/null || { echo "skip: no shellcheck"; exit 77; }
find . \( -type d -name build -o -name .git \
	-o -path ./tests/data -o -path ./tests/fuzz/corpus \) -prune \
	-o -type f -print | sort | while read -r file; do
	head -n 1 "$file" | tr -d '\0' | grep -qE '^#!.*[/ ](ba)?sh' && echo "$file"
done | xargs shellcheck -x -P SCRIPTDIR -e SC1091
