#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# here.sh: builds what the conformance suite needs, on a bare
# Debian 12 or 13, and runs the suite against the libfabric and the UCX of that release. The last
# line has both versions and the result.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=../../deploy/packages
. deploy/packages
# shellcheck disable=SC2086,SC2154 # a list of words, from deploy/packages
hearth_packages $packages_test
cmake --preset debug >/dev/null
cmake --build --preset debug -j "${JOBS:-2}" --target conformance strictfi hearth_tcp_module hearth_ofi_module hearth_ucx hearth_ucx_impl |
    tail -n 1
rc=0
ctest --test-dir build/debug -R '^conformance\.' -j "${JOBS:-2}" --output-on-failure || rc=$?
echo "here: libfabric $(dpkg-query -W -f='${Version}' libfabric-dev), UCX $(dpkg-query -W -f='${Version}' libucx-dev)," \
    "$(sed -nE 's/^PRETTY_NAME="(.*)"/\1/p' /etc/os-release): exit status $rc"
exit $rc
