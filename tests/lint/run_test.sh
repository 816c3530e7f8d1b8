#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_test.sh ROOT BUILD: tests/run of a small tree with planted tests. A failure, a hang, a test that fails
# one time in three, an engine that crashes, a copy that differs and a scenario that goes wrong while its world is closed each
# make it end with another status than 0, and are named; without them it passes.
set -u
root=$1 build=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tree=$tmp/tree
mkdir -p "$tree/tests/cluster" "$tree/deploy"
cp "$root/tests/run" "$root/tests/build" "$root/tests/allowed-skips" "$tree/tests"
echo 'packages_test=; hearth_packages() { :; }' >"$tree/deploy/packages"
cat >"$tree/CMakePresets.json" <<'P'
{ "version": 3, "configurePresets": [ { "name": "debug", "generator": "Ninja", "binaryDir": "build/debug" } ],
  "buildPresets": [ { "name": "debug", "configurePreset": "debug" } ] }
P
bad=0

# planted WHAT STAGE NAMED TEST: TEST is what add_test() calls, or what tests/cluster/run does.
planted() {
    local what=$1 stage=$2 named=$3 test=$4 rc
    printf '#!/usr/bin/env bash\n%s\n' "$([ "$stage" = cluster ] && echo "$test")" >"$tree/tests/cluster/run"
    chmod +x "$tree/tests/cluster/run"
    printf 'cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES NONE)\nenable_testing()\nadd_test(NAME good COMMAND true)\n%s\n' \
        "$([ "$stage" = debug ] && echo "$test")" >"$tree/CMakeLists.txt"
    rm -rf "$tree/build" "$tmp/count"
    timeout 100 "$tree/tests/run" --only "$stage" >"$tmp/said" 2>&1
    rc=$?
    if [ "$what" = nothing ] && [ $rc = 0 ]; then
        return
    elif [ "$what" != nothing ] && [ $rc != 0 ] && [ $rc != 124 ] && grep -qE "$named" "$tmp/said" && tail -n 1 "$tmp/said" | grep -qE ' [1-9][0-9]* failed'; then
        return
    fi
    echo "planted $what: status $rc"
    tail -n 30 "$tmp/said"
    bad=1
}

planted nothing debug '' ''
planted 'a failure' debug 'debug: wrong: Failed' 'add_test(NAME wrong COMMAND false)'
planted 'a hang' debug 'debug: hangs: .*Timeout' 'add_test(NAME hangs COMMAND sleep 1000)
set_tests_properties(hangs PROPERTIES TIMEOUT 2)'
for third in 1 2 0; do
    planted "a flake, at its run $third of 3" debug 'debug: (flake|again)' \
        "add_test(NAME flake COMMAND bash -c \"echo >>$tmp/count; [ \$(( \$(wc -l <$tmp/count) % 3 )) != $third ]\")"
done
planted 'a crash' debug 'debug: crash: ' 'add_test(NAME crash COMMAND bash -c "kill -SEGV $$")'
scenario="exec '$build/bin/cluster' --bin '$build/bin' --logs $tmp/logs --transport ofi --limit 3 --planted --only"
planted nothing cluster '' "${scenario/--limit 3/--limit 60} planted-passes"
planted 'a scenario that fails' cluster 'cluster: planted-fails/ofi' "$scenario planted-fails"
planted 'a scenario that hangs' cluster 'cluster: planted-hangs/ofi' "$scenario planted-hangs"
planted 'a hang in closing' cluster 'cluster: planted-hangs-closing/ofi' "$scenario planted-hangs-closing"
planted 'a crash in closing' cluster 'cluster: planted-crashes-closing/ofi' "$scenario planted-crashes-closing"
planted 'an engine that crashes' cluster 'planted-engine-crashes/ofi: an engine ended .*: error engine-crashed hearthd ends of SIGSEGV' \
    "${scenario/--limit 3/--limit 60} planted-engine-crashes"
planted 'a copy that differs' cluster 'planted-copy-differs/ofi: the object of rank 0 in step 1 is not on ' \
    "${scenario/--limit 3/--limit 60} planted-copy-differs"
planted 'a runner that dies' cluster 'cluster: cluster.run' 'echo "cluster: one/ofi passed"; kill -9 $$'
exit $bad
