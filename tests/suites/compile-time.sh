#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: what each public header costs to compile, with g++ and clang++: [--check] [HEADER...]
#
# The front end alone (-fsyntax-only) on a file of one include, the median of several runs that take
# turns over all headers; processor time, so that what else runs matters little. Budgets are a guide;
# --check fails where one is exceeded by half with either compiler.
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

check=false
if [ "${1:-}" = --check ]; then
    check=true
    shift
fi
need g++ clang
repetitions=5
# Milliseconds, of the slower compiler.
declare -A budget=([kv_traits.hpp]=90 [radix_cache.hpp]=450 [prefix_cache.hpp]=550 [kvstem.hpp]=650)

if [ $# -eq 0 ]; then
    mapfile -t headers < <(cd "$root/include/kvstem" && find . -path ./detail -prune -o -name '*.hpp' -print |
        sed 's|^\./||' | sort)
    # fmt is not this project's own, and need not be installed.
    have_header fmt/core.h || mapfile -t headers < <(printf '%s\n' "${headers[@]}" | grep -vx fmt.hpp)
    set -- "${headers[@]}"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# front_end COMPILER HEADER: adds one run's user and system time in milliseconds to the pair's list.
front_end() {
    local user system TIMEFORMAT='%U %S'
    printf '#include "kvstem/%s"\n' "$2" >"$work/one.cpp"
    { time "$1" -std=c++20 -fsyntax-only -I "$root/include" "$work/one.cpp" 2>"$work/errors"; } 2>"$work/time" || {
        cat "$work/errors" >&2
        die "$2 does not compile with $1"
    }
    read -r user system <"$work/time"
    awk "BEGIN { printf \"%d\\n\", ($user + $system) * 1000 }" >>"$work/$1-${2//\//-}"
}

median() { sort -n "$1" | sed -n "$((repetitions / 2 + 1))p"; }

for ((repetition = 0; repetition < repetitions; ++repetition)); do
    for header in "$@"; do
        for compiler in g++ clang++; do
            front_end $compiler "$header"
        done
    done
done

failed=0
printf '%-34s %9s %9s %9s\n' header 'g++ ms' 'clang ms' budget
for header in "$@"; do
    gcc=$(median "$work/g++-${header//\//-}")
    clang=$(median "$work/clang++-${header//\//-}")
    limit=${budget[$header]:-}
    verdict=
    if [ -n "$limit" ]; then
        slower=$((gcc > clang ? gcc : clang))
        verdict=ok
        if [ $slower -gt $((limit * 3 / 2)) ]; then
            verdict='TOO SLOW'
            failed=$((failed + 1))
        elif [ $slower -gt "$limit" ]; then
            verdict=over
        fi
    fi
    printf '%-34s %9d %9d %9s  %s\n' "kvstem/$header" "$gcc" "$clang" "${limit:--}" "$verdict"
done
if [ $failed -gt 0 ]; then
    printf '%d of %d budgets exceeded by more than half\n' $failed ${#budget[@]}
    [ $check = false ] || exit 1
fi
