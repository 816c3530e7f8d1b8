#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# headers.sh INCLUDE: callers can compile the public headers below INCLUDE, with gcc and clang, as C11 to
# C23 and C++11 to C++23, without a warning: each header alone, all together, and a program that begins
# every struct in every way, and runs. Every struct has its size first and an initialiser, or is a
# plain value that will not grow. 77: a compiler is missing. It ends at the first that complains.
set -eu
include=$1
plain='hearth_error hearth_text hearth_metadata_step hearth_place hearth_ticket hearth_save_id'
flags='-Wall -Wextra -Wpedantic -Werror'
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

# ---- the structs ----

for header in "$include"/hearth/*.h; do
	name=$(basename "$header" .h)
	printf '#include <hearth/%s.h>\ntypedef int not_empty;\n' "$name" >"$tmp/$name.c"
	echo "#include <hearth/$name.h>" >>"$tmp/every.c"
	# "NAME" of each struct that is defined, "NAME sized" where its first field is struct_size
	awk '/^struct [a-z_]+ \{/ { name = $2; getline; print name, ($0 ~ /size_t struct_size;/ ? "sized" : "") }' \
		"$header"
done >"$tmp/structs"
sed '1!G;h;$!d' "$tmp/every.c" >"$tmp/backwards.c" # no header needs one before it
[ -s "$tmp/structs" ] || { echo "no structs are found"; exit 1; }

cat >"$tmp/begin.c" <<'C'
#include <hearth/hearth.h>
#include <stdio.h>
#include <string.h>
#if HEARTH_VERSION_NUMBER < 1000 || HEARTH_VERSION_NUMBER > 999999999
#error "no version to compare"
#endif
static int wrong;
static void begun(const char *how, const void *s, size_t size)
{
    size_t said, i;
    memcpy(&said, s, sizeof(said));
    for (i = sizeof(said); i < size && !((const unsigned char *)s)[i]; i++)
        continue;
    if (said != size || i != size)
        wrong = printf("%s does not begin with its size and zeros\n", how);
}
static void same_version(long n)
{
    char text[64];
    snprintf(text, sizeof(text), "%ld.%ld.%ld", n / 1000000, n / 1000 % 1000, n % 1000);
    if (strcmp(text, HEARTH_VERSION) != 0)
        wrong = printf("HEARTH_VERSION is %s, HEARTH_VERSION_NUMBER %s\n", HEARTH_VERSION, text);
}
C
while read -r name sized; do
	init=$(echo "${name}_init" | tr '[:lower:]' '[:upper:]')
	if [ -z "$sized" ]; then
		case " $plain " in *" $name "*) continue ;; esac
		echo "struct $name does not begin with struct_size and is no plain value"
		bad=1
		continue
	fi
	cat >>"$tmp/begin.c" <<-C
		static struct $name of_$name = $init;
		static void begin_$name(void)
		{
		    struct $name one = $init, two[2] = { $init, $init }, other = ${name}_init();
		    begun("static $init", &of_$name, sizeof(of_$name));
		    begun("$init", &one, sizeof(one));
		    begun("$init", &two[1], sizeof(two[1]));
		    begun("${name}_init", &other, sizeof(other));
		    one = ${name}_init();
		    begun("${name}_init", &one, sizeof(one));
		}
	C
done <"$tmp/structs"
{
	printf 'int main(void)\n{\n    same_version(HEARTH_VERSION_NUMBER);\n'
	awk '$2 { print "    begin_" $1 "();" }' "$tmp/structs"
	printf '    return wrong != 0;\n}\n'
} >>"$tmp/begin.c"

# ---- the compilers ----

# compile COMPILER LANGUAGE STANDARD
compile() {
	# shellcheck disable=SC2086 # the flags are words
	if ! "$1" -x "$2" -std="$3" $flags -I"$include" -fsyntax-only "$tmp"/*.c 2>"$tmp/said" ||
		! "$1" -x "$2" -std="$3" $flags -I"$include" -o "$tmp/begin" "$tmp/begin.c" 2>"$tmp/said" ||
		! "$tmp/begin" >"$tmp/said"; then
		echo "$1 -std=$3:"
		head -n 12 "$tmp/said"
		exit 1
	fi
}

[ $bad = 0 ] || exit 1
missing=
for one in gcc clang; do
	command -v $one >/dev/null || { missing="$missing $one"; continue; }
	for std in c11 c17 c2x; do compile $one c $std; done
	for std in c++11 c++17 c++20 c++2b; do compile $one c++ $std; done
done
[ -z "$missing" ] || { echo "skip: no$missing"; exit 77; }
