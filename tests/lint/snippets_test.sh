#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# snippets_test.sh ROOT CC BIN: snippets.py passes a page whose blocks are right, and names each
# fault that is planted.
# shellcheck disable=SC2016 # backquotes, as they stand in a page
set -eu
root=$1 compiler=$2 programs=$3
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
git init -q "$tmp/tree"
cd "$tmp/tree"
mkdir include
cp -r "$root/include/hearth" include
bad=0

page() {
    cat >page.md <<'P'
# A page

```c
hearth_recover(h, NULL, &ckpt, &err);
if (ckpt)
    hearth_checkpoint_close(ckpt);
```

```c
#include <stdio.h>

int main(void)
{
    return puts("alone") < 0;
}
```

```python
for step in range(first, last):
    ...
```

```python run
import sys
```

```sh run
twice() { echo $(($1 * 2)); }
twice 21         # prints: 42
hearth --version >version
test -s version
```

```sh
rm -rf /nowhere  # not run
```

    indented (is not read
P
    git add -A
}

lint() { "$root/tests/lint/snippets.py" . "$compiler" "$programs" >"$tmp/said" 2>&1; }

# shellcheck source=noticed.sh
. "$root/tests/lint/noticed.sh"

page
lint || { echo "refused: blocks without a fault"; cat "$tmp/said"; bad=1; }
grep -qx '5 blocks' "$tmp/said" || { echo "not five blocks"; cat "$tmp/said"; bad=1; }
page; sed -i 's/&ckpt, &err/\&ckpt, err/' page.md; says 'page.md:4:'
page; sed -i 's/hearth_recover(/hearth_gone(/' page.md; says "hearth_gone"
page; sed -i 's/HEARTH\|hearth_checkpoint_close(ckpt)/hearth_checkpoint_close(h)/' page.md
says 'page.md:6:'
page; sed -i 's/    return puts/    turn puts/' page.md; says 'page.md:14:'
page; sed -i 's/^    \.\.\.$/...(/' page.md; says 'page.md:20:'
page; sed -i 's/import sys/import/' page.md; says 'page.md:24:'
page; sed -i 's/prints: 42/prints: 43/' page.md; says 'page.md:29: prints 42, not 43'
page; sed -i 's/test -s version/test -s gone/' page.md; says 'page.md:28: exit status 1'
page; sed -i 's/^```python run/```python ran/' page.md; says "page.md:23: 'python ran' is no mark"
exit $bad
