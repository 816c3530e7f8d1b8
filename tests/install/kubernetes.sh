#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The manifests of deploy/kubernetes, checked by kubernetes.py beside this file:
#
#   tests/install/kubernetes.sh [BIN]    BIN: the folder with hearth and hearthd
#
# kubernetes-validate is installed once, in build/kubernetes-venv.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
bin=$(realpath "${1:-build/debug/bin}")
venv=build/kubernetes-venv

if ! "$venv/bin/python" -c 'import kubernetes_validate' 2>/dev/null; then
    if ! { python3 -m venv --clear $venv && $venv/bin/pip install -q --disable-pip-version-check \
        'kubernetes-validate>=1.31'; } >build/kubernetes-venv.log 2>&1; then
        why=$(tail -n 1 build/kubernetes-venv.log)
        echo "skip kubernetes: kubernetes-validate cannot be installed: $why"
        exit 0
    fi
fi

failed=0
$venv/bin/python tests/install/kubernetes.py "$bin" deploy/kubernetes/*.yaml || failed=1

# Each check can fail: a mistake in the manifests that it has to report.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missed=''
while IFS= read -r mistake; do
    rm -rf "$work/m" && cp -r deploy/kubernetes "$work/m"
    sed -i "$mistake" "$work"/m/*.yaml
    said=$($venv/bin/python tests/install/kubernetes.py --no-run "$bin" "$work"/m/*.yaml 2>&1)
    grep -q '^FAIL' <<<"$said" || missed+=" $mistake"
done <<'M'
s/enableDNSHostnames/enableDnsHostnames/
s/backoffLimit: 1000/backofLimit: 1000/
s/spec.nodeName/spec.nodename/
s/{ name: HEARTH_BIND/{ name: HEARTH_BINDS/
s/"--alive", //
s/minAvailable: 3/minAvaliable: 3/
s/matchLabels: { hearth-metrics: "true" }/matchLabels: { hearth-metrics: "yes" }/
s/port: metrics$/port: metric/
s/name: key, mountPath/name: keys, mountPath/
s/allowPrivilegeEscalation: false/allowPrivilegeEscalation: true/
s/  # No failurePolicy.*/  failurePolicy: { maxRestarts: 3 }/
s/mountPropagation: Bidirectional/mountPropagation: bidirectional/
s/honorLabels: true/honorLabels: "true"/
s/completions: 2/completions: two/
s/matchLabels: { hearth-job: train7 }/matchLabels: { hearth-job: train9 }/
s/medium: Memory, sizeLimit: 351Gi/sizeLimit: 351Gi/
s/"hearthd", "--root"/"hearth", "--root"/
M
if [ -n "$missed" ]; then
    echo "FAIL kubernetes.can_fail: not reported:$missed"
    failed=1
else
    echo "ok kubernetes.can_fail"
fi
exit $failed
