#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: every example builds and runs; the conversation also with a trained model if there is one
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

passed=0
failed=0
skipped=0

try() {
    if quietly "$root/examples/run" "$@"; then
        printf 'ok      examples/run %s\n' "$*"
        passed=$((passed + 1))
    else
        printf 'FAILED  examples/run %s\n' "$*"
        failed=$((failed + 1))
    fi
}

# refused ARGS...: the command line gets one clear line and exit code 2.
refused() {
    local output status=0
    output=$("$root/examples/run" "$@" 2>&1 >/dev/null) || status=$?
    if [ "$status" = 2 ] && [ -n "$output" ] && [ "$(wc -l <<<"$output")" = 1 ]; then
        printf 'ok      examples/run %s is refused: %s\n' "$*" "$output"
        passed=$((passed + 1))
    else
        printf 'FAILED  examples/run %s: exit %d: %s\n' "$*" "$status" "$output"
        failed=$((failed + 1))
    fi
}

for name in $(names_in "$root/examples" cpp); do
    try "$name"
done
refused no_such_example
refused --no-such-flag
refused --model "$root/no/such/model.bin"

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
