# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# For tests of lints, which source it. They have a folder $tmp, and a function `lint` that writes
# what it prints to $tmp/said. bad=1: there is a planted fault that the lint does not notice.

# says WORDS: the lint fails, with these words
# shellcheck disable=SC2154 # tmp is of the test
says() {
    if lint || ! grep -qF -- "$1" "$tmp/said"; then
        echo "not noticed: $1"
        cat "$tmp/said"
        # shellcheck disable=SC2034 # of the test
        bad=1
    fi
}
