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
cp -r include "$tmp/tree"
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

plant core/a.c '#include <hearth/internal/transport/transport.h>' transport/transport.h
plant core/a.c '#  include   <hearth/internal/transport/loop.h>' transport/loop.h
plant core/a.c '#include "replication/fetch.h"' replication/fetch.h
plant core/a.c '#include "../engine/driver.h"' engine/driver.h
plant core/a.c '#include <ucp/api/ucp.h>' ucp/api/ucp.h
plant core/a.c '#include <isa-l/crc.h>' isa-l/crc.h
plant core/a.c '#include <sodium.h>' sodium.h
plant core/deep/er/new.c '#include <hearth/internal/transport/loop.h>' transport/loop.h
plant transport/a.c '#include <hearth/internal/replication/pull.h>' replication/pull.h
plant transport/a.c '#include <isa-l/crc.h>' isa-l/crc.h
plant transport/a.c '#include <rdma/fabric.h>' rdma/fabric.h
plant transport/ofi/a.c '#include <ucp/api/ucp.h>' ucp/api/ucp.h
plant transport/ucx/a.c '#include <rdma/fabric.h>' rdma/fabric.h
for folder in replication loader; do
    plant $folder/a.c '#include <time.h>' time.h
    plant $folder/a.c '#include <pthread.h>' pthread.h
    plant $folder/a.c '#include <sys/socket.h>' sys/socket.h
    plant $folder/a.c '#include <unistd.h>' unistd.h
    plant $folder/a.c '#include "../engine/driver.h"' engine/driver.h
done
plant replication/a.c '#include <hearth/internal/loader/plan.h>' loader/plan.h
plant engine/a.c '#include <hearth/internal/client/a.h>' client/a.h
plant engine/a.c '#include <jansson.h>' jansson.h
plant client/a.c '#include <hearth/internal/engine/engine.h>' engine/engine.h
plant client/a.c '#include <hearth/internal/transport/transport.h>' transport/transport.h
plant cli/a.c '#include <hearth/internal/loader/plan.h>' loader/plan.h
plant examples/a.c '#include <hearth/internal/core/fail.h>' core/fail.h
plant include/hearth/hearth.h '#include <hearth/internal/core/env.h>' core/env.h
plant include/hearth/hearth.h '#include <unistd.h>' unistd.h
plant include/hearth/internal/core/env.h '#include <hearth/internal/transport/loop.h>' transport/loop.h

fine core/crc.c '#include <isa-l/crc.h>'
fine core/auth.c '#include <sodium.h>'
fine transport/ofi/a.c '#include <rdma/fabric.h>'
fine transport/ucx/a.c '#include <ucp/api/ucp.h>'
fine replication/a.c '#include <hearth/internal/transport/session.h>'
fine engine/a.c '#include <sys/socket.h>'
fine examples/a.c '#include <hearth/hearth.h>'
fine examples/a.c '#include <mpi.h>'
exit $bad
