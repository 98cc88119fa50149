#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: sizes, comments, names and structure against the bars this project sets itself: [--compile-time]
#
# Each figure stands beside its bar. "argued" is beyond the bar for a reason that is stated below the
# table, and no further than that reason goes; "over" fails. Compile times are measured only when asked for, because that takes a while.
# shellcheck disable=SC2016 # what is in single quotes is for awk
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"
cd "$root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What an engine on one thread includes (the headers that kvstem.hpp names) is where contracts are read;
# the other headers are users' too, but mostly bodies: policies, texts, the shared form, traces.
find include/kvstem -name '*.hpp' | sort >"$work/all"
grep -v /detail/ "$work/all" >"$work/public"
grep /detail/ "$work/all" >"$work/detail"
grep /reference/ "$work/all" >"$work/reference"
sed -n 's|^#include "\(.*\)"$|include/kvstem/\1|p' include/kvstem/kvstem.hpp | sort >"$work/core"
grep -vxF -f "$work/core" "$work/public" | grep -v /reference/ >"$work/further"
cat "$work/public" "$work/detail" | grep -v /reference/ >"$work/library"
find tests examples -name '*.[ch]pp' | sort >"$work/tests"

failed=0
argued=()

# row NUMBER WHAT FIGURE BAR ok|over [REASON]
row() {
    local verdict=$5
    if [ "$verdict" = over ] && [ -n "${6:-}" ]; then
        verdict=argued
        argued+=("$1 $2: $6")
    elif [ "$verdict" = over ]; then
        failed=$((failed + 1))
    fi
    printf '%2s  %-42s %16s   %-14s %s\n' "$1" "$2" "$3" "$4" "$verdict"
}

# at_most NUMBER WHAT FIGURE BAR [REASON MOST]: the reason holds up to that figure.
at_most() {
    local verdict=ok reason=${5:-}
    [ "$3" -le "$4" ] || verdict=over
    [ "$3" -le "${6:-0}" ] || reason=
    row "$1" "$2" "$3" "≤ $4" $verdict "$reason"
}

# between NUMBER WHAT FIGURE LEAST MOST [REASON LEAST], in per cent: the reason holds down to that figure.
between() {
    local verdict=ok reason=${6:-}
    [ "$3" -ge "$4" ] && [ "$3" -le "$5" ] || verdict=over
    { [ "$3" -ge "${7:-0}" ] && [ "$3" -le "$5" ]; } || reason=
    row "$1" "$2" "$3 %" "$4 – $5 %" $verdict "$reason"
}

# holds NUMBER WHAT COMMAND...
holds() {
    local number=$1 what=$2
    shift 2
    if quietly "$@"; then row "$number" "$what" yes yes ok; else row "$number" "$what" no yes over; fi
}

# of LIST COMMAND...: the command over the files of a list.
of() {
    local list=$work/$1
    shift
    xargs -a "$list" "$@"
}

lines() { of "$1" cat | wc -l; }
# Lines with a comment, alone or beside code, among those that are not blank.
comment_share() { of "$1" cat | awk '/\/\// { ++n } /[^ ]/ { ++all } END { printf "%d", 100 * n / all + 0.5 }'; }
count() { "$@" | wc -l; }

# --- the figures

# Headers longer than a bar.
longer_than() {
    local bar=$1 list=$2
    of "$list" wc -l | awk -v bar="$bar" '$2 != "total" && $1 > bar { print $2 " (" $1 ")" }'
}

long_lines() {
    LC_ALL=C of all awk '{
        characters = gsub(/[^\200-\277]/, "")  # bytes that do not continue a character
        if (characters > 100) print FILENAME ":" FNR
    }'
}

# Public functions that take a bool, where a call would read `f(x, true)`; AuditReport::require(holds, …)
# states a condition, as an assertion does.
bool_parameters() {
    of public awk '
        / (private|protected):/ { private = 1 }
        / public:/ || /^}/ { private = 0 }
        !private && !/ for \(/ && !/bool holds,/ && /[(,] *(const )?bool [a-z_]+ *[,)=]/ {
            print FILENAME ":" FNR
        }'
}

# Sentences of a contract that stand in another order than in all the others.
contract_disorder() {
    of public awk '
        BEGIN {
            n = split("Choose it when|Template parameters|Invariants|Complexity|Invalidation|" \
                "Exceptions|Threads|Lifetime", names, "|")
        }
        !/^\/\/\// { last = 0; next }
        {
            for (i = 1; i <= n; ++i) {
                if (index($0, "/// " names[i]) != 1) continue
                if (i < last) print FILENAME ":" FNR ": " names[i]
                last = i
            }
        }'
}

# Headers with a class whose costs nobody tells; exceptions have none.
untold_headers() {
    local header
    while read -r header; do
        [[ $header != */errors.hpp ]] || continue
        grep -q '^class ' "$header" || continue
        grep -qiE 'complexity|O\(' "$header" || echo "$header"
    done <"$work/core"
}

# Headers without a test of their name and without a test that includes them.
untested_headers() {
    local header stem
    while read -r header; do
        stem=${header#include/kvstem/}
        stem=${stem%.hpp}
        [ -f "tests/unit/${stem//\//_}.cpp" ] || [ -f "tests/unit/${stem##*/}.cpp" ] ||
            grep -rqF "#include \"${header#include/}\"" tests --include='*.cpp' || echo "$header"
    done <"$work/public"
}

macros() { of all grep -hoE '^ *# *define +[A-Za-z_]+' | awk '{ print $NF }' | sort -u; }

readme_line() { grep -nm 1 -- "$1" README.md | cut -d: -f1; }
badges() { head -n 60 README.md | grep -cE '\[!\[|<img ' || true; }

of all awk -f tests/tools/function_sizes.awk | sort -n >"$work/functions"
function_lines() { awk -v share="$1" '{ n[NR] = $1 } END { i = int(NR * share + 0.5); print n[i < 1 ? 1 : i] }' "$work/functions"; }

# --- the table

printf '%2s  %-42s %16s   %-14s %s\n' '' 'what' 'figure' 'bar' ''
holds 1 "includes in an order without cycles" tests/tools/single_header.sh "$work/single"
at_most 2 "public headers of more than 400 lines" "$(count longer_than 400 public)" 0 \
    "radix_tree.hpp is one class with its bodies, to be read in one go; no function in it is longer than a
screen" 1
at_most 2 "detail headers of more than 500 lines" "$(count longer_than 500 detail)" 0 \
    "bodies of one cache each, in sections with rulers, and no function longer than a screen" 3
at_most 2 "lines, without the reference decoder" "$(lines library)" 3500 \
    "the bar was for two caches; windows, waiting, ten policies, a learned order, ghosts, an engine
wrapper, pictures, two text formats and trace replay came on top, each in headers of its own" 12500
at_most 2 "lines wider than 100 columns" "$(count long_lines)" 0
at_most 3 "function size, median" "$(function_lines 0.5)" 5
at_most 3 "function size, 90th percentile" "$(function_lines 0.9)" 25
at_most 3 "function size, most" "$(function_lines 1)" 60
between 4 "comment share, headers of kvstem.hpp" "$(comment_share core)" 35 55 \
    "radix_tree.hpp and page_pool.hpp, three tenths of these lines, hold their bodies" 32
between 4 "comment share, further public headers" "$(comment_share further)" 10 25
between 4 "comment share, detail headers" "$(comment_share detail)" 10 20
between 4 "comment share, reference decoder" "$(comment_share reference)" 20 25
between 4 "comment share, tests and examples" "$(comment_share tests)" 5 15
at_most 5 "contracts out of order" "$(count contract_disorder)" 0
at_most 6 "caches whose costs are not told" "$(count untold_headers)" 0
at_most 8 "macros" "$(count macros)" 12
at_most 8 "… of them in other files than two" "$(of all grep -lE '^ *# *define' | grep -cvE '/(config|version)\.hpp$' || true)" 0
at_most 8 "… without the prefix KVSTEM_" "$(macros | grep -cv '^KVSTEM_' || true)" 0
at_most 11 "bool parameters of public functions" "$(count bool_parameters)" 0
at_most 11 "friends that are tests" "$(of all grep -iE 'friend .*test' | wc -l)" 0
at_most 12 "public headers that no test includes" "$(count untested_headers)" 0 \
    "audit.hpp is what every audit returns, engine_concepts.hpp what the engine wrapper refuses; the others
are parts of the decoder and the batcher, and tested through them" 8
at_most 15 "README: line of the first code" "$(readme_line '^```cpp')" 12
at_most 15 "README: line of the limits" "$(readme_line '^## What it is not')" 45
at_most 15 "README: badges" "$(badges)" 3
holds 15 "README: snippets are compiled examples" tests/tools/readme_snippets.sh
cat <<'END'

Told elsewhere: 7 by radix_cache.hpp, page_pool.hpp and prefix_cache.hpp (their tables), 9 by tests/run
contracts, 10 by tests/run compile-time, 13 by tests/run bugs, 14 by tests/run consumer.
END
for reason in "${argued[@]}"; do printf '\n%s\n' "$reason"; done
echo
for list in "longer_than 400 public" "longer_than 500 detail" long_lines contract_disorder untold_headers \
    untested_headers bool_parameters; do
    # shellcheck disable=SC2086 # a function and its arguments
    $list | sed "s/^/${list%% *}: /"
done
if [ "${1:-}" = --compile-time ]; then "$root/tests/run" compile-time --check; fi
printf '%d over their bars without a reason\n' $failed
[ $failed = 0 ]
