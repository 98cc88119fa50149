#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: without exceptions, without RTTI, without assertions, in 32 bits; compilers: g++ clang++
#
# Of each profile: every header but fmt.hpp compiles without a warning, and a program that uses every
# part of the library does what it should. Without exceptions a caller's mistake has to end the program
# with a message that names it. In 32 bits, where size_t and uint64_t are two types, the unit tests, the
# contracts and the tests of failing allocations pass as well.
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

if [ $# = 0 ]; then
    set -- g++
    if have clang++; then set -- g++ clang++; fi
fi
work=$(build_root)/profiles
mkdir -p "$work"
jobs=$(nproc 2>/dev/null || echo 2)
# -msse2: the x87 unit keeps more bits of a sum than a float has, and the answers' bits are compared.
in_32_bits=(-m32 -msse2 -mfpmath=sse)
warnings=(-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
flags=(-std=c++20 -O0 -ffp-contract=off -pthread "-I$root/include" "-I$root/tests")

passed=0
failed=0
# check NAME COMMAND...
check() {
    local name=$1
    shift
    if quietly "$@"; then
        printf 'ok      %s\n' "$name"
        passed=$((passed + 1))
    else
        printf 'FAILED  %s\n' "$name"
        failed=$((failed + 1))
    fi
}

if [ "$1" != --one ]; then
    (cd "$root/include" && find kvstem -name '*.hpp' ! -path kvstem/fmt.hpp | sort |
        sed 's|.*|#include "&"|') >"$work/headers.cpp"
fi

can_run=yes # whether what is built for the profile at hand runs on this machine
# profile COMPILER NAME FLAG...
profile() {
    local compiler=$1 name="$1, $2"
    shift 2
    check "$name: headers" "$compiler" "${flags[@]}" "${warnings[@]}" "$@" -fsyntax-only "$work/headers.cpp"
    check "$name: program" "$compiler" "${flags[@]}" "${warnings[@]}" "$@" \
        "$root/tests/profiles/everything.cpp" -o "$work/everything"
    [ $can_run = no ] || check "$name: runs" "$work/everything"
}

# Whether a caller's mistake ends the program, and is named.
mistake_is_named() {
    local output status=0
    output=$(
        ulimit -c 0
        "$work/everything" mistake 2>&1
    ) || status=$?
    printf '%s\n' "$output"
    [ $status = 134 ] && [[ $output == *"page 3 is retained but nobody holds it"* ]]
}

# Whether the compiler can make a program of 32 bits; not every kernel runs it.
makes_32_bits() {
    printf '#include <vector>\nstatic_assert(sizeof(void*) == 4);\nint main() {}\n' >"$work/bits.cpp"
    "$1" -std=c++20 -m32 "$work/bits.cpp" -o "$work/bits" >/dev/null 2>&1
}

# compile_in_32_bits COMPILER TEST
compile_in_32_bits() {
    local forced=(-include "$work/32/all.hpp")
    [ "$2" != main.cpp ] || forced=() # it has to be the first to include Catch2
    "$1" "${flags[@]}" "${in_32_bits[@]}" "${forced[@]}" -c "$root/tests/$2" -o "$work/32/${2//\//-}.o"
}

# build_in_32_bits COMPILER: the tests that need no more than the library and Catch2. What fmt needs is
# there in 64 bits only, and version.cpp is given the version by CMake.
build_in_32_bits() {
    local tests
    mapfile -t tests < <(cd "$root/tests" &&
        grep -LE 'fmt/|fmt\.hpp' unit/*.cpp faults/*.cpp contract/*.cpp | grep -v unit/version.cpp)
    rm -rf "$work/32"
    mkdir -p "$work/32"
    printf '#include "catch.hpp"\n' >"$work/32/all.hpp"
    "$1" "${flags[@]}" "${in_32_bits[@]}" -x c++-header "$work/32/all.hpp" -o "$work/32/all.hpp.gch" || return
    printf '%s\0' main.cpp support/fail_allocation.cpp "${tests[@]}" |
        xargs -0 -P "$jobs" -n 1 bash "${BASH_SOURCE[0]}" --one "$1" || return
    "$1" "${flags[@]}" "${in_32_bits[@]}" "$work"/32/*.o -o "$work/32/tests"
}

if [ "${1:-}" = --one ]; then
    compile_in_32_bits "$2" "$3"
    exit
fi

need g++ catch2
for compiler in "$@"; do
    have "$compiler" || die "there is no compiler '$compiler'"
    profile "$compiler" "-fno-rtti" -fno-rtti
    profile "$compiler" "-fno-exceptions -fno-rtti" -fno-exceptions -fno-rtti
    check "$compiler, -fno-exceptions: a mistake is named" mistake_is_named
    profile "$compiler" "-DNDEBUG" -DNDEBUG
done

compiler=${!#} # the last one; of the usual two it is the faster one
if ! makes_32_bits "$compiler" && [ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ]; then
    (apt_install g++-multilib) || true
fi
if ! makes_32_bits "$compiler"; then
    printf 'skipped: 32 bits: %s cannot make programs of 32 bits here (on amd64: g++-multilib)\n' "$compiler"
else
    if ! "$work/bits" 2>/dev/null; then
        can_run=no
        printf 'skipped: running programs of 32 bits, which this machine does not; they are only built\n'
    fi
    profile "$compiler" "32 bits" "${in_32_bits[@]}"
    if ! have_header catch2/catch.hpp; then
        printf 'skipped: the tests in 32 bits: Catch2 3 is a library, and there is one in 64 bits only\n'
    else
        check "$compiler, 32 bits: the tests compile" build_in_32_bits "$compiler"
        [ $can_run = no ] || check "$compiler, 32 bits: the tests pass" "$work/32/tests"
    fi
fi
printf '%d passed, %d failed\n' $passed $failed
[ $failed = 0 ]
