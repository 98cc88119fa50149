#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: every header compiles alone, without a warning, with each compiler named (default g++ clang++)
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

need cmake g++ make catch2 libfmt-dev
[ $# -gt 0 ] || set -- g++ clang++
passed=0
failed=0
for compiler in "$@"; do
    export CXX=$compiler KVSTEM_WERROR=ON
    if have "$compiler" && folder=$(configure_tests) && build "$folder" --target kvstem_headers kvstem_odr; then
        printf 'ok      every header alone, %s\n' "$compiler"
        passed=$((passed + 1))
    else
        printf 'FAILED  every header alone, %s\n' "$compiler"
        failed=$((failed + 1))
    fi
done
printf '%d passed, %d failed\n' $passed $failed
[ $failed = 0 ]
