#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: every planted bug of tests/bugs is caught by some test: [NAME... | --part K/N]
#
# Each entry of the catalogue is one line of include/ that somebody could have written wrongly
# (tests/bugs/README.md has the form). It is planted in a copy of the headers; of the tests that it
# names some must fail, by an assertion, a crash or a time-out. A copy that does not compile proves
# nothing and fails the suite, as does an entry whose place is not there exactly once.
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

export CXX=${CXX:-clang++} # which is done in half the time of g++
work=$(build_root)/bugs-$(compiler_name)
# Not optimised: compiling takes longer than running.
compile=("$(compiler)" -std=c++20 -O0 -ffp-contract=off -pthread "-I$root/tests")
seconds=${KVSTEM_BUG_SECONDS:-30} # who is not done then is caught in a loop; see below

# entries: the catalogue, an entry a line: NAME, RULES, what it says, FILE, PLACE, IS, BECOMES, TESTS,
# separated by tabs.
entries() {
    awk '
        function value(line) { sub(/^ *[a-z]+ */, "", line); return line }
        function finish() {
            if (name == "") return
            if (file == "" || is == "" || tests == "") complain(name " is not complete")
            printf "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, rules, says, file, place, is, becomes, tests
            name = file = place = is = becomes = tests = ""
        }
        function complain(what) { print FILENAME ": " what > "/dev/stderr"; exit 1 }
        FNR == 1 { finish() }
        /^#/ || /^ *$/ { next }
        /^[a-z0-9-]+ +\[.*\] / {
            finish()
            name = $1
            match($0, /(\[[A-Z0-9]+\])+/)
            rules = substr($0, RSTART, RLENGTH)
            says = substr($0, RSTART + RLENGTH + 1)
            if (name in seen) complain(name " stands there twice")
            seen[name] = 1
            next
        }
        name == "" { complain("line " FNR ": no entry begins here: " $0) }
        $1 == "file" { file = value($0); next }
        $1 == "in" { place = value($0); next }
        $1 == "is" { is = value($0); next }
        $1 == "becomes" { becomes = value($0); next }
        $1 == "tests" { tests = value($0); next }
        { complain("line " FNR ": neither file, in, is, becomes nor tests: " $0) }
        END { finish() }' "$root"/tests/bugs/*.bugs
}

# plant FILE PLACE IS BECOMES: prints the file with the bug in it. PLACE is a line, found by a part of
# it, and all up to the brace that closes what begins there; without one it is the whole file.
plant() {
    FILE=$1 PLACE=$2 IS=$3 BECOMES=$4 awk '
        function complain(what) { print ENVIRON["FILE"] ": " what > "/dev/stderr"; failed = 1; exit 1 }
        function indent(line) { match(line, /^ */); return RLENGTH }
        { lines[NR] = $0; if (index($0, ENVIRON["PLACE"])) { ++places; first = NR } }
        END {
            if (failed) exit 1
            last = NR
            if (ENVIRON["PLACE"] == "") {
                first = 1
            } else if (places != 1) {
                complain("\"" ENVIRON["PLACE"] "\" is on " places + 0 " lines, not on one")
            } else {
                for (last = first + 1; last < NR; ++last)
                    if (lines[last] ~ /^ *}/ && indent(lines[last]) <= indent(lines[first])) break
            }
            for (i = first; i <= last; ++i) {
                for (rest = lines[i]; at = index(rest, ENVIRON["IS"]); rest = substr(rest, at + 1)) {
                    ++found
                    line = i
                }
            }
            if (found != 1) complain("\"" ENVIRON["IS"] "\" stands there " found + 0 " times, not once")
            at = index(lines[line], ENVIRON["IS"])
            lines[line] = substr(lines[line], 1, at - 1) ENVIRON["BECOMES"] \
                substr(lines[line], at + length(ENVIRON["IS"]))
            for (i = 1; i <= NR; ++i) print lines[i]
        }' "$root/include/kvstem/$1"
}

# compile_test FOLDER TEST: against FOLDER/include.
compile_test() {
    "${compile[@]}" -include "$work/all.hpp" "-I$1/include" -c "$root/tests/$2" -o "$1/${2//\//-}.o"
}

# link_tests FOLDER TEST...: what was compiled there becomes FOLDER/tests.
link_tests() {
    local folder=$1
    shift
    local objects=("${@//\//-}")
    objects=("${objects[@]/#/$folder/}")
    objects=("${objects[@]/%/.o}")
    "${compile[@]}" "$work/main.o" "$work/fail_allocation.o" "${objects[@]}" -lfmt -o "$folder/tests"
}

# run_tests FOLDER SECONDS: ends with the first failure, or then. Where models are is not told: what is proved here is
# proved without them.
run_tests() {
    (
        unset KVSTEM_TEST_DATA
        ulimit -c 0 -v 8000000
        timeout "$2" "$1/tests" --abort >"$1/log" 2>&1
    ) 2>>"$1/log"
}

# The name of the test that failed, from the reporter's output: the first line after a ruler.
failed_test() { awk '/^-----/ { getline; print; exit }' "$1"; }

# try_bug ENTRY: plants it, and prints one line that begins with caught, SURVIVED or INVALID.
try_bug() {
    local name rules says file place is becomes tests test folder status=0
    # Tabs are white space to `read`, and two of them would count as one.
    IFS=$'\x1f' read -r name rules says file place is becomes tests <<<"${1//$'\t'/$'\x1f'}"
    folder=$work/$name
    rm -rf "$folder"
    mkdir -p "$folder"
    cp -R "$root/include" "$folder/include"
    if ! plant "$file" "$place" "$is" "$becomes" >"$folder/planted" 2>"$folder/log"; then
        verdict INVALID "$(cat "$folder/log")"
        return
    fi
    cp "$folder/planted" "$folder/include/kvstem/$file"
    for test in $tests; do
        compile_test "$folder" "$test" 2>"$folder/log" || status=1
        [ $status = 0 ] || break
    done
    if [ $status != 0 ]; then
        # Only what a contract says is for the compiler to find.
        if [[ $test == contract/* ]] && grep -qE 'static.assert' "$folder/log"; then
            verdict caught "by a static assertion of $test"
        else
            verdict INVALID "$test does not compile: $(grep -m 1 error "$folder/log")"
        fi
        return
    fi
    if [[ $tests == contract/* ]]; then
        verdict SURVIVED "$says"
        return
    fi
    # shellcheck disable=SC2086 # several tests
    link_tests "$folder" $tests
    run_tests "$folder" "$seconds" || status=$?
    case $status in
    0) verdict SURVIVED "$says" ;;
    124) verdict caught "by a test that does not end" ;;
    *) verdict caught "$(failed_test "$folder/log")" ;;
    esac
}

# verdict WORD TEXT: one line, and the copy is done with.
verdict() {
    printf '%-9s %-26s %-10s %s\n' "$1" "$name" "$rules" "$2"
    rm -rf "$folder"
}

if [ "${1:-}" = --one ]; then
    try_bug "$2"
    exit
fi
if [ "${1:-}" = --clean ]; then
    compile_test "$work/clean" "$2"
    exit
fi

need g++ clang catch2 libfmt-dev
mkdir -p "$work"
catalogue=$(entries)
chosen=$catalogue
if [ "${1:-}" = --part ]; then
    # Every Nth entry, from the Kth on: a part that has something of every rule.
    [[ ${2:-} =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ ]] || die "a part is K/N, like 2/5, not '${2:-}'"
    chosen=$(awk -v k="${BASH_REMATCH[1]}" -v n="${BASH_REMATCH[2]}" 'NR % n == k % n' <<<"$catalogue")
elif [ $# -gt 0 ]; then
    chosen=
    for name in "$@"; do
        entry=$(grep "^$name"$'\t' <<<"$catalogue") || die "tests/bugs has no entry '$name'"
        chosen+=$entry$'\n'
    done
    chosen=${chosen%$'\n'}
fi
mapfile -t bugs <<<"$chosen"
jobs=$(nproc 2>/dev/null || echo 2)

say "building what all of them share…"
# Catch2 is a large part of what a test costs. The forced header is one of our own, because catch.hpp
# itself is included by the tests under its own path.
printf '#include "catch.hpp"\n' >"$work/all.hpp"
"${compile[@]}" -x c++-header "$work/all.hpp" -o "$work/all.hpp.gch"
"${compile[@]}" -c "$root/tests/main.cpp" -o "$work/main.o"
"${compile[@]}" -c "$root/tests/support/fail_allocation.cpp" -o "$work/fail_allocation.o"

say "the tests against headers without a bug…"
clean=$work/clean
rm -rf "$clean"
mkdir -p "$clean"
cp -R "$root/include" "$clean/include"
mapfile -t tests < <(cut -f 8 <<<"$chosen" | tr ' ' '\n' | sort -u)
printf '%s\0' "${tests[@]}" | xargs -0 -P "$jobs" -n 1 bash "${BASH_SOURCE[0]}" --clean
link_tests "$clean" "${tests[@]}"
start=$SECONDS
if ! run_tests "$clean" 600; then
    cat "$clean/log"
    die "the tests fail without any bug"
fi
# No bug has more tests than all of them together; beside another one they may take twice as long.
export KVSTEM_BUG_SECONDS=$((30 + 3 * (SECONDS - start)))
printf 'ok        %d test files pass without a bug\n' ${#tests[@]}

verdicts=$work/verdicts
printf '%s\0' "${bugs[@]}" | xargs -0 -P "$jobs" -n 1 bash "${BASH_SOURCE[0]}" --one | tee "$verdicts"
caught=$(grep -c '^caught' "$verdicts" || true)
printf '%d of %d caught\n' "$caught" ${#bugs[@]}
[ "$caught" = ${#bugs[@]} ]
