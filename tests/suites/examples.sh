#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: every example builds, runs and prints what it should; each has fewer than 100 lines
#
# What an example prints is compared with examples/expected/NAME.txt, or, where it is the log that
# counts, with NAME.err. Those that print times have neither: chat and paged compare their own answers,
# cold with warm, and fail if they differ.
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

passed=0
failed=0
skipped=0
own_words='/^building \|^installing: /d' # what examples/run says beside the example
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT

ok() {
    printf 'ok      %s\n' "$*"
    passed=$((passed + 1))
}
failure() {
    printf 'FAILED  %s\n' "$*"
    failed=$((failed + 1))
}

# try ARGS...: runs an example; what it printed is in $output/txt and $output/err.
try() {
    if "$root/examples/run" "$@" >"$output/txt" 2>"$output/err"; then
        ok "examples/run $*"
    else
        cat "$output/err" "$output/txt" >&2
        failure "examples/run $*"
    fi
    sed -i "$own_words" "$output/err"
}

# compare NAME WHICH: what was printed with what is expected, if something is.
compare() {
    local expected=$root/examples/expected/$1.$2
    [ -f "$expected" ] || return 0
    if diff "$expected" "$output/$2"; then
        ok "$1 prints what is expected"
    else
        failure "$1 prints something else than ${expected#"$root/"}"
    fi
}

# refused ARGS...: the command line gets one clear line and exit code 2.
refused() {
    local said status=0
    said=$("$root/examples/run" "$@" 2>&1 >/dev/null) || status=$?
    said=$(sed "$own_words" <<<"$said")
    if [ "$status" = 2 ] && [ -n "$said" ] && [ "$(wc -l <<<"$said")" = 1 ]; then
        ok "examples/run $* is refused: $said"
    else
        failure "examples/run $*: exit $status: $said"
    fi
}

for name in $(names_in "$root/examples" cpp); do
    try "$name"
    compare "$name" txt
    compare "$name" err
    lines=$(wc -l <"$root/examples/$name.cpp")
    [ "$lines" -lt 100 ] || failure "$name has $lines lines, 100 or more"
done
for name in $(names_in "$root/examples/expected" txt) $(names_in "$root/examples/expected" err); do
    [ -f "$root/examples/$name.cpp" ] || failure "what is expected of $name belongs to no example"
done
refused no_such_example
refused --no-such-flag
refused --model "$root/no/such/model.bin"
refused replay_a_trace "$root/no/such/trace.jsonl"

models=${KVSTEM_TEST_DATA:-}/models
if [ -f "$models/stories260K.bin" ]; then
    try --model "$models/stories260K.bin" --tokenizer "$models/tok512.bin"
else
    echo "skipped: examples/run with a trained model: KVSTEM_TEST_DATA does not name one"
    skipped=$((skipped + 1))
fi
[ $skipped = 0 ] || printf '%d skipped\n' $skipped
printf '%d passed, %d failed\n' $passed $failed
[ $failed = 0 ]
