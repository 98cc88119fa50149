#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# must_not_compile.sh [CXX]: compiles each file of tests/must_not_compile twice. As it is, it must
# compile without a warning, or the second answer would prove nothing; with MUST_NOT_COMPILE defined it
# must be refused, in few lines, by an error that names what the file's line "// expect: NAME" says.
set -euo pipefail

tests=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cxx=${1:-${CXX:-c++}}
most_lines=30
compile=("$cxx" -std=c++20 -Wall -Wextra -Wpedantic -Werror -fsyntax-only
    -fno-diagnostics-color "-I$tests/../include")
export LC_ALL=C

passed=0
failed=0
fail() {
    printf 'FAILED  %s: %s\n%s\n' "$name" "$1" "$(head -n 30 <<<"$output")"
    failed=$((failed + 1))
}

for file in "$tests"/must_not_compile/*.cpp; do
    name=$(basename "$file" .cpp)
    expected=$(sed -n 's|^// expect: ||p' "$file")
    output=
    if [ -z "$expected" ]; then
        fail "has no line '// expect: NAME'"
    elif ! output=$("${compile[@]}" "$file" 2>&1); then
        fail "does not compile without MUST_NOT_COMPILE"
    elif output=$("${compile[@]}" -DMUST_NOT_COMPILE "$file" 2>&1); then
        fail "compiles with MUST_NOT_COMPILE"
    elif ! grep -qw -- "$expected" <<<"$output"; then
        fail "is refused, but not for $expected"
    elif [ "$(wc -l <<<"$output")" -gt $most_lines ]; then
        fail "is refused in more than $most_lines lines"
    else
        passed=$((passed + 1))
    fi
done
printf '%d passed, %d failed\n' $passed $failed
[ $failed = 0 ] && [ $passed != 0 ]
