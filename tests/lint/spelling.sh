#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# spelling.sh ROOT: codespell finds no misspelled word in any text, code included.
set -eu
cd "$1"
command -v codespell >/dev/null || { echo "skip: no codespell"; exit 77; }
# Names in code, and bytes that are cut on purpose.
names=aways,datas,whos,lates,copys,tabl,statics,ody,nd,hsa
others='tests/data/|tests/fuzz/corpus/|LICENSE$|tests/lint/(hearth\.abi|spelling_test\.sh)$'
git ls-files | grep -vE "^($others)" |
	tr '\n' '\0' | xargs -0 codespell --ignore-words-list "$names"
