#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# layers_test.sh ROOT: layers.sh names each wrong include planted in a copy of the tree, and has
# nothing to say about a right one.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$1"
lint=$PWD/tests/lint/layers.sh
bad=0

mkdir "$tmp/tree"
git ls-files 'include/*' '*.h' CMakeLists.txt | grep -v '^tests/' | tar -cT - | tar -xC "$tmp/tree"
cd "$tmp/tree"

# planted FILE LINE: a file with that line, or an existing header with the line on top.
planted() {
    mkdir -p "$(dirname "$1")"
    if [ -e "$1" ]; then cp "$1" "$tmp/saved"; else : >"$tmp/saved"; fi
    { echo "$2"; cat "$tmp/saved"; } >"$1"
    "$lint" . "$1" >"$tmp/said" 2>&1 && rc=0 || rc=1
    if [ -s "$tmp/saved" ]; then cp "$tmp/saved" "$1"; else rm "$1"; fi
}

# plant FILE LINE NAMED: the lint must name the header.
plant() {
    planted "$1" "$2"
    if [ "$rc" = 0 ]; then
        echo "not noticed: $1: $2"
        bad=1
    elif ! grep -q "^$1 may not include .*$3" "$tmp/said"; then
        echo "noticed for the wrong reason: $1: $2"
        cat "$tmp/said"
        bad=1
    fi
}

# fine FILE LINE: the lint must say nothing.
fine() {
    planted "$1" "$2"
    [ "$rc" = 0 ] || { echo "refused: $1: $2"; cat "$tmp/said"; bad=1; }
}

plant core/base/a.c '#include "transport/transport.h"' transport/transport.h
plant core/base/a.c '#  include   "transport/loop/loop.h"' transport/loop/loop.h
plant core/base/a.c '#include "replication/fetch.h"' replication/fetch.h
plant core/base/a.c '#include "../engine/driver/driver.h"' engine/driver/driver.h
plant core/base/a.c '#include <ucp/api/ucp.h>' ucp/api/ucp.h
plant core/base/a.c '#include <isa-l/crc.h>' isa-l/crc.h
plant core/base/a.c '#include <sodium.h>' sodium.h
plant core/base/a.c '#include "core/format/block.h"' core/format/block.h
plant core/torch/a.c '#include "core/store/room.h"' core/store/room.h
plant core/store/a.c '#include "core/torch/zip.h"' core/torch/zip.h
plant core/foreign/a.c '#include "core/torch/metadata_parts.h"' core/torch/metadata_parts.h
plant transport/a.c '#include "replication/pull.h"' replication/pull.h
plant transport/a.c '#include <isa-l/crc.h>' isa-l/crc.h
plant transport/a.c '#include <rdma/fabric.h>' rdma/fabric.h
plant transport/ofi/a.c '#include <ucp/api/ucp.h>' ucp/api/ucp.h
plant transport/ucx/a.c '#include <rdma/fabric.h>' rdma/fabric.h
for folder in replication/held loader; do
    plant $folder/a.c '#include <time.h>' time.h
    plant $folder/a.c '#include <pthread.h>' pthread.h
    plant $folder/a.c '#include <sys/socket.h>' sys/socket.h
    plant $folder/a.c '#include <unistd.h>' unistd.h
    plant $folder/a.c '#include "engine/driver/driver.h"' engine/driver/driver.h
done
plant replication/commit/a.c '#include "loader/plan/plan.h"' loader/plan/plan.h
plant replication/held/a.c '#include "replication/transfer/transfer.h"' replication/transfer/transfer.h
plant replication/tree/a.c '#include "replication/held/jobs.h"' replication/held/jobs.h
plant engine/state/a.c '#include "client/link/a.h"' client/link/a.h
plant engine/state/a.c '#include <jansson.h>' jansson.h
plant client/link/a.c '#include "engine/engine.h"' engine/engine.h
plant client/link/a.c '#include "transport/transport.h"' transport/transport.h
plant cli/a.c '#include "loader/plan/plan.h"' loader/plan/plan.h
plant examples/a.c '#include "core/base/fail.h"' core/base/fail.h
plant include/hearth/hearth.h '#include "core/base/env.h"' core/base/env.h
plant include/hearth/hearth.h '#include <unistd.h>' unistd.h
plant core/base/env.h '#include "transport/loop/loop.h"' transport/loop/loop.h

mkdir -p core/deep
echo >core/deep/new.c
"$lint" . core/deep/new.c >"$tmp/said" && { echo "not noticed: a folder that CMakeLists.txt does not know"; bad=1; }
grep -q 'lies in no folder' "$tmp/said" || { cat "$tmp/said"; bad=1; }

fine core/base/crc.c '#include <isa-l/crc.h>'
fine core/base/auth.c '#include <sodium.h>'
fine transport/ofi/a.c '#include <rdma/fabric.h>'
fine transport/ucx/a.c '#include <ucp/api/ucp.h>'
fine replication/held/a.c '#include "transport/session/session.h"'
fine core/torch/a.c '#include "core/torch/metadata_parts.h"'
fine core/foreign/a.c '#include "core/torch/zip.h"'
fine engine/state/a.c '#include <sys/socket.h>'
fine examples/a.c '#include <hearth/hearth.h>'
fine examples/a.c '#include <mpi.h>'
exit $bad
