#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: the ways in: copied folder, add_subdirectory, find_package, single header; [COMPILER...]
#
# Also: two units with everything in them link, two versions in one program do, and the single headers
# serve the tests of both caches.
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

need cmake g++ make catch2
if [ $# -eq 0 ]; then
    set -- "$(compiler)"
    ! have clang++ || set -- g++ clang++
fi
consumer=$root/tests/consumer
version=$(sed -n 's/^#define KVSTEM_VERSION_.* //p' "$root/include/kvstem/version.hpp" | paste -sd.)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# strict ARGUMENT...: compiles with the warnings that a careful user has.
strict() {
    "$CXX" -std=c++20 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror "$@"
}

# What every way shares: the headers as they are, one minor version later, and both as single headers.
# Folders are laid out so that -I FOLDER makes "kvstem/kvstem.hpp" what is to be tested.
vendor=$work/vendor
minor=$(cut -d. -f2 <<<"$version")
mkdir -p "$vendor"/{now,later,single-now,single-later}
cp -r "$root/include/kvstem" "$vendor/now"
cp -r "$root/include/kvstem" "$vendor/later"
sed -i "s/^\(#define KVSTEM_VERSION_MINOR\) .*/\1 $((minor + 1))/" "$vendor/later/kvstem/version.hpp"
for which in now later; do
    "$root/tests/tools/single_header.sh" "$vendor/single-$which/kvstem" "$vendor/$which/kvstem"
done

# --- the ways in: each leaves its program at $1/consumer

copied() { strict -I "$vendor/now" "$consumer/main.cpp" -o "$1/consumer"; }

single() { strict -I "$vendor/single-now" "$consumer/main.cpp" -o "$1/consumer"; }

subdirectory() {
    cmake -S "$consumer/subdirectory" -B "$1" -DKVSTEM_SOURCE="$root" && cmake --build "$1"
}

# Catch2 and fmt are hidden: installing must need neither.
installed() {
    cmake -S "$root" -B "$1/kvstem" -DCMAKE_DISABLE_FIND_PACKAGE_Catch2=ON \
        -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON -DKVSTEM_EXAMPLES=OFF &&
        cmake --install "$1/kvstem" --prefix "$1/prefix" &&
        cmake -S "$consumer/installed" -B "$1" -DCMAKE_PREFIX_PATH="$1/prefix" \
            -DKVSTEM_VERSION="$version" &&
        cmake --build "$1"
}

# way NAME FOLDER
way() {
    mkdir -p "$2" && "$1" "$2" && [ "$("$2/consumer")" = "reused 2 of 3 tokens" ]
}

# --- two units in one program

# engines FOLDER FIRST SECOND: links two engines, each with the headers of one folder of $vendor.
engines() {
    mkdir -p "$1" &&
        strict -c -DENGINE=first_engine -I "$vendor/$2" "$consumer/two_engines/engine.cpp" -o "$1/first.o" &&
        strict -c -DENGINE=second_engine -I "$vendor/$3" "$consumer/two_engines/engine.cpp" -o "$1/second.o" &&
        strict "$consumer/two_engines/main.cpp" "$1/first.o" "$1/second.o" -o "$1/engines" &&
        [ "$("$1/engines")" = "first engine: 8, second engine: 8 tokens reused" ]
}

# symbols FILE: the names of the library's code in an object file.
symbols() { nm --defined-only "$1" | awk '$NF ~ /6kvstem/ { print $NF }' | sort -u; }

# Two versions must not only link: the linker keeps one of equal names, so there must be none.
versions() {
    local both
    engines "$@" || return
    both=$(comm -12 <(symbols "$1/first.o") <(symbols "$1/second.o"))
    if [ -z "$(symbols "$1/first.o")" ] || [ -n "$both" ]; then
        printf "two versions share:\n%s\n" "$both"
        return 1
    fi
}

# --- the single headers by themselves

# Each file alone, also where an editor or a linter compiles the header itself.
alone() {
    local file
    for file in "$vendor"/single-now/kvstem/kvstem*.hpp; do
        [[ $file != *_fmt.hpp ]] || have_header fmt/core.h || continue
        strict -fsyntax-only -x c++ "$file" || return
    done
}

# The tests of both caches, every header of theirs being a name for the single one.
tests() {
    local header
    while read -r header; do
        mkdir -p "$(dirname "$1/kvstem/$header")"
        printf '#include "%s"\n' "$vendor/single-now/kvstem/kvstem.hpp" >"$1/kvstem/$header"
    done < <(cd "$root/include/kvstem" && find . -name '*.hpp' ! -path './reference/*')
    strict -I "$1" -I "$root/tests" \
        "$root"/tests/{main,support/fail_allocation,unit/prefix_cache,unit/radix_cache}.cpp \
        -o "$1/tests" &&
        "$1/tests"
}

# refused FOLDER TEXT SCRIPT: a list that this sed script has spoilt writes nothing, and TEXT says why.
refused() {
    local list=$1/list output
    mkdir -p "$1" &&
        sed "$3" "$root/tests/tools/single_header.txt" >"$list" &&
        ! output=$("$root/tests/tools/single_header.sh" "$1/out" "$vendor/now/kvstem" "$list" 2>&1) &&
        [ ! -e "$1/out" ] && grep -F "$2" <<<"$output"
}

# --- all of it

# check NAME COMMAND...
check() {
    local name=$1
    shift
    if quietly "$@"; then printf 'ok      %s\n' "$name"; else printf 'FAILED  %s\n' "$name"; fi
}

checks_with() {
    local folder name
    export CXX=$1
    folder=$work/$(compiler_name)
    for name in copied subdirectory installed single; do
        check "$name, $CXX" way $name "$folder/$name"
    done
    check "each single header alone, $CXX" alone
    check "the single header in two units, $CXX" engines "$folder/two" single-now single-now
    check "folder and single header of one version, $CXX" engines "$folder/mixed" now single-now
    check "two versions, $CXX" versions "$folder/versions" now later
    check "two versions as single headers, $CXX" versions "$folder/single" single-now single-later
}

checks_of_the_list() {
    local spoilt=$work/spoilt
    check "a header that the list leaves out" refused "$spoilt/1" \
        "lease.hpp is missing from the list" '/^lease.hpp$/d'
    check "a listed header that does not exist" refused "$spoilt/2" \
        "no_such.hpp is listed, but" 's/^lease.hpp$/&\nno_such.hpp/'
    check "a header listed twice" refused "$spoilt/3" \
        "lease.hpp is listed twice" 's/^lease.hpp$/&\n&/'
    check "a header before what it includes" refused "$spoilt/4" \
        "config.hpp is listed before version.hpp" '/^version.hpp$/d; s/^config.hpp$/&\nversion.hpp/'
    check "a body before its class" refused "$spoilt/5" \
        "prefix_cache_bodies.hpp is listed before prefix_cache.hpp" \
        '/^detail.prefix_cache_bodies.hpp$/d; s/^prefix_cache.hpp$/detail\/prefix_cache_bodies.hpp\n&/'
    check "what is included, in a third file" refused "$spoilt/6" \
        "includes replay/json_line.hpp, which is in kvstem_reference.hpp" \
        '/^replay.json_line.hpp$/d; s/^reference.logits.hpp$/&\nreplay\/json_line.hpp/'
}

# Side by side; each group's lines come out together.
groups=()
for compiler in "$@"; do
    checks_with "$compiler" >"$work/log-${compiler//\//_}" &
    groups+=($!)
done
(
    export CXX=$1
    check "the tests of both caches on the single header, $1" tests "$work/tests"
) >"$work/log-tests" &
groups+=($!)
checks_of_the_list >"$work/log-list"
# A group that was killed half-way has said nothing of the rest.
for group in "${groups[@]}"; do
    wait "$group" || printf 'FAILED  a group of checks did not come to its end\n' >>"$work/log-list"
done
for name in "$@" tests list; do cat "$work/log-${name//\//_}"; done | tee "$work/all"
printf '%d passed, %d failed\n' "$(grep -c '^ok ' "$work/all")" "$(grep -c '^FAILED ' "$work/all")"
[ -s "$work/all" ] && ! grep -q '^FAILED ' "$work/all"
