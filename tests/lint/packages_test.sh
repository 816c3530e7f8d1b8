#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# packages_test.sh ROOT: packages.sh finds each kind of disagreement.
set -eu
root=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# must WHAT SAYS COMMAND...: after COMMAND in a copy, packages.sh fails and says SAYS.
must() {
	what=$1 says=$2
	shift 2
	rm -rf "$tmp/r"
	mkdir -p "$tmp/r/deploy"
	cp -r "$root/debian" "$root/include" "$tmp/r/"
	[ ! -d "$root/deploy/rpm" ] || cp -r "$root/deploy/rpm" "$tmp/r/deploy/"
	(cd "$tmp/r" && "$@")
	if "$root/tests/lint/packages.sh" "$tmp/r" >"$tmp/log" 2>&1 || ! grep -qF "$says" "$tmp/log"; then
		echo "packages_test: $what is not found:"
		cat "$tmp/log"
		exit 1
	fi
}

must "an older changelog" "debian/changelog begins with 0.0.9" \
	sed -i '1s/([^)]*)/(0.0.9)/' debian/changelog
must "a new ABI" "debian/control has no package libhearth7" \
	sed -i 's/\(define HEARTH_VERSION  *"\)[0-9.]*/\17.0.0/' include/hearth/version.h
must "a call that is not listed" "has no hearth_wait, which" \
	sh -c 'sed -i "/ hearth_wait@/d" debian/*.symbols'
must "a call that is gone" "has hearth_gone, which" \
	sh -c 'sed -i "s/ hearth_wait@/ hearth_gone@/" debian/*.symbols'
[ ! -d "$root/deploy/rpm" ] || must "an older spec" "deploy/rpm/hearth.spec says 0.0.9" \
	sed -i 's/^Version:.*/Version: 0.0.9/' deploy/rpm/hearth.spec
