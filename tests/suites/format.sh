#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: every source is formatted as .clang-format says, every script is clean under shellcheck
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

need clang-format-19 shellcheck
cd "$root"
passed=0
failed=0

# check NAME COMMAND...
check() {
    local name=$1
    shift
    if "$@"; then
        printf 'ok      %s\n' "$name"
        passed=$((passed + 1))
    else
        printf 'FAILED  %s\n' "$name"
        failed=$((failed + 1))
    fi
}

mapfile -t sources < <(find include tests examples -name '*.[ch]pp')
mapfile -t scripts < <(printf '%s\n' tests/run examples/run .ci/run && find tests -name '*.sh')
check "layout of ${#sources[@]} sources" clang-format-19 --dry-run -Werror "${sources[@]}"
check "shellcheck of ${#scripts[@]} scripts" shellcheck --external-sources "${scripts[@]}"
printf '%d passed, %d failed\n' $passed $failed
[ $failed = 0 ]
