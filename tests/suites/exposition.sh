#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: Prometheus' own promtool reads the text of all statistics without a complaint
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

need g++
folder=$(build_root)/exposition
mkdir -p "$folder"

# promtool_path: an installed one, or the one in Debian's package, which is unpacked beside the builds
# and not installed, because it would start a server.
promtool_path() {
    if have promtool; then
        command -v promtool
        return
    fi
    local tool=$folder/package/usr/bin/promtool
    if [ ! -x "$tool" ]; then
        have apt-get && have dpkg-deb || return
        say "fetching promtool…"
        rm -rf "$folder/deb"
        mkdir "$folder/deb"
        (
            cd "$folder/deb"
            quietly apt-get -q download prometheus ||
                { quietly as_root apt-get -q update && quietly apt-get -q download prometheus; }
            dpkg-deb -x prometheus_*.deb "$folder/package"
        ) || return
    fi
    printf '%s' "$tool"
}

if ! promtool=$(promtool_path) || [ ! -x "$promtool" ]; then
    echo "skipped: exposition: there is no promtool here, and no Debian package to take it from"
    exit 0
fi

passed=0
failed=0

# verdict NAME WANTED FILE: whether promtool says of a text what is wanted: accepted or refused.
verdict() {
    local found=accepted
    "$promtool" check metrics <"$3" >"$folder/promtool.log" 2>&1 || found=refused
    [ ! -s "$folder/promtool.log" ] || found=refused # advice counts as a complaint
    if [ $found = "$2" ] && [ -s "$3" ]; then
        printf 'ok      %s: %s\n' "$1" "$2"
        passed=$((passed + 1))
    else
        printf 'FAILED  %s: %s\n' "$1" $found
        cat "$folder/promtool.log"
        failed=$((failed + 1))
    fi
}

"$(compiler)" -std=c++20 -I "$root/include" "$root/tests/exposition/all_statistics.cpp" \
    -o "$folder/all_statistics" -pthread
"$folder/all_statistics" >"$folder/all.txt"
"$root/examples/run" watch_statistics >"$folder/example.txt" 2>"$folder/example.log"
verdict "all statistics" accepted "$folder/all.txt"
verdict "examples/run watch_statistics" accepted "$folder/example.txt"

# The same texts with a fault each, so that accepting them means something.
head -n 3 "$folder/all.txt" | cat "$folder/all.txt" - >"$folder/twice.txt"
sed 's/model="shared"/model="sha"red"/' "$folder/all.txt" >"$folder/quote.txt"
sed 's/^kvstem_page_hits_total/kvstem_page-hits_total/' "$folder/all.txt" >"$folder/name.txt"
head -c -1 "$folder/all.txt" >"$folder/cut.txt"
verdict "a family given twice" refused "$folder/twice.txt"
verdict "a quote that is not escaped" refused "$folder/quote.txt"
verdict "a name with a dash" refused "$folder/name.txt"
verdict "a last line without an end" refused "$folder/cut.txt"
printf '%d passed, %d failed\n' $passed $failed
[ $failed = 0 ]
