#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: every test under clang++, and which branches of include/ they take: fails below 95 %: [--html FOLDER]
#
# Counted are both ways of every condition, by clang's source-based coverage, which knows no branches
# that only an exception takes. What is written once counts once: a branch of a template counts as taken
# if it is in some instantiation. (Counted by instantiation the figure would say how many types the
# tests happen to use a template with: a policy without one hook has branches that it can never take.
# `llvm-cov report`, which lets the best instantiation of each function stand for it, comes to about
# one point less.) Not counted are conditions that the compiler decides, such as those of `if
# constexpr`, and those inside KVSTEM_ASSERT: their failing is a fault of the library itself. Their
# number is printed. A function of which no test makes an instantiation is not seen at all; for that
# there are the planted bugs.
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

floor=95
html=
if [ "${1:-}" = --html ]; then
    html=${2:?--html needs a folder}
    shift 2
fi
[ $# = 0 ] || die "tests/run coverage: what is '$1'?"

export CXX=${CXX:-clang++}
need g++ clang cmake make catch2 libfmt-dev
version=$("$CXX" -dumpversion | cut -d. -f1)
need "llvm-$version"

work=$(build_root)/coverage
mkdir -p "$work"
# Only our own headers are counted, so nothing else is made slower by counting.
printf 'src:%s/include/*\n' "$root" >"$work/counted"
export CXXFLAGS="${CXXFLAGS:-} -fprofile-instr-generate -fcoverage-mapping -fprofile-list='$work/counted'"
export KVSTEM_BUILD_DIR=$work
say "building the tests to be counted…"
folder=$(configure_tests)
build "$folder" --target kvstem_tests
rm -rf "$work/profiles"
LLVM_PROFILE_FILE=$work/profiles/%p "$folder/tests/kvstem_tests"

"llvm-profdata-$version" merge -sparse "$work"/profiles/* -o "$work/profile"
show=("llvm-cov-$version" show -show-branches=count -show-instantiations=false
    -instr-profile "$work/profile" "$folder/tests/kvstem_tests" "$root/include")
[ -z "$html" ] || quietly "${show[@]}" -format=html -output-dir "$html"

# The lines "|  Branch (LINE:COLUMN): [True: 3, False: 0]" come once for each instantiation.
"${show[@]}" >"$work/lines"
asserted=$(grep -rho 'KVSTEM_ASSERT(' "$root"/include --include='*.hpp' | wc -l)
awk -v floor=$floor -v asserted=$((asserted - 2)) -v missed="$work/missed" '
    /^\/.*:$/ { file = substr($0, 1, length($0) - 1); sub(/.*\/include\//, "", file); next }
    !/^ *\| +Branch \(/ { next }
    /Folded/ { ++decided; next }
    {
        match($0, /\([0-9]+:[0-9]+\)/)
        place = file ":" substr($0, RSTART + 1, RLENGTH - 2)
        split($0, part, /True: |, False: |\]/)
        if (!(place in file_of)) file_of[place] = file
        if (part[2] != "0") yes[place] = 1
        if (part[3] != "0") no[place] = 1
    }
    END {
        printf "" >missed
        for (place in file_of) {
            of = file_of[place]
            all[of] += 2
            taken[of] += (place in yes) + (place in no)
            if (!(place in yes)) print place ": never true" >missed
            if (!(place in no)) print place ": never false" >missed
        }
        sort = "sort -n"
        for (of in all) {
            printf "%6.1f %%  %4d of %4d  %s\n", 100 * taken[of] / all[of], taken[of], all[of], of | sort
            total += all[of]
            covered += taken[of]
        }
        close(sort)
        if (total == 0) { print "no branch was counted"; exit 1 }
        printf "not counted: %d assertions\n", asserted
        share = 100 * covered / total
        printf "%6.2f %%  %4d of %4d branches of include/ are taken (at least %d %%)\n", share, covered,
            total, floor
        exit share < floor
    }' "$work/lines" || { status=$?; say "not taken: $work/missed"; exit $status; }
