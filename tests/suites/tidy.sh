#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: clang-tidy 19 over every header, with the checks of .clang-tidy
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

need g++ clang-tidy-19
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A header is looked at through a unit that includes only it, because as the main file it would be
# read twice where two headers include each other. What another header says is reported there.
tidy() {
    local header=$1 unit=$2/${1//\//_}.cpp log=$2/${1//\//_}.log
    printf '#include "%s"\n' "$header" >"$unit"
    if clang-tidy-19 --quiet --config-file="$root/.clang-tidy" --header-filter="/include/$header\$" \
        "$unit" -- -std=c++20 -I "$root/include" >"$log" 2>&1; then
        rm "$log"
    fi
}
export root
export -f tidy

mapfile -t headers < <(cd "$root/include" && find kvstem -name '*.hpp' | sort)
printf '%s\0' "${headers[@]}" |
    xargs -0 -P "$(nproc)" -I '{}' bash -c "tidy '{}' '$work'"

failed=$(find "$work" -name '*.log' | wc -l)
[ "$failed" = 0 ] || grep -hv ' warnings generated' "$work"/*.log
printf '%d passed, %d failed\n' $((${#headers[@]} - failed)) "$failed"
[ "$failed" = 0 ]
