#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: the random runs of tests/model under libFuzzer, ASan and UBSan: [SECONDS, in all; default 240]
#
# Each target starts from its committed corpus and goes on in the build folder, where what it learns
# stays. An input that fails is kept there too, and its name is printed.
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

seconds=${1:-240}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "tests/run fuzz: '$seconds' is no number of seconds"
export CXX=${CXX:-clang++}
need clang
# Debian keeps the fuzzer and the sanitizers in a package of their own, named after clang's version.
need "libclang-rt-$("$CXX" -dumpversion | cut -d. -f1)-dev"

folder=$(build_root)/fuzz-$(compiler_name)
crashes=$folder/crashes
mkdir -p "$crashes"
jobs=$(nproc 2>/dev/null || echo 2)
export root folder crashes

compile() {
    "$CXX" -std=c++20 -O1 -g1 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -fno-omit-frame-pointer \
        -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -DKVSTEM_FUZZ_TARGET \
        -I "$root/include" -I "$root/tests" "$root/tests/model/$1_model.cpp" -o "$folder/$1"
}

# fuzz TARGET SECONDS: one line when it held, everything when it did not.
fuzz() {
    local target=$1 log=$folder/$1.log corpus=$folder/corpus/$1
    mkdir -p "$corpus"
    if "$folder/$target" -max_total_time="$2" -max_len=1024 -len_control=0 -timeout=30 -rss_limit_mb=4096 \
        -print_final_stats=1 -artifact_prefix="$crashes/$target-" \
        "$corpus" "$root/tests/fuzz/corpus/$target" >"$log" 2>&1; then
        printf '%-24s %s runs in %s s\n' "$target" \
            "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$2"
    else
        cat "$log"
        printf '%-24s failed; to see it again: KVSTEM_FUZZ_TRACE=1 %s %s\n' "$target" \
            "$folder/$target" "$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)"
        touch "$folder/$target.failed"
    fi
}
export -f compile fuzz

# The target of tests/model/NAME_model.cpp is called NAME, like its corpus.
mapfile -t targets < <(cd "$root/tests/model" &&
    grep -l '^KVSTEM_FUZZ_TEST(' ./*_model.cpp | sed 's|^\./||; s|_model\.cpp$||' | sort)
say "building ${#targets[@]} fuzz targets…"
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I '{}' bash -ec "compile '{}'"

each=$((seconds * (jobs < ${#targets[@]} ? jobs : ${#targets[@]}) / ${#targets[@]}))
[ "$each" -gt 0 ] || each=1
rm -f "$folder"/*.failed
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I '{}' bash -c "fuzz '{}' $each"

failed=$(find "$folder" -maxdepth 1 -name '*.failed' | wc -l)
printf '%d passed, %d failed\n' $((${#targets[@]} - failed)) "$failed"
[ "$failed" = 0 ]
