#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: what must not compile does not, and the README shows what is compiled; compilers: g++ clang++
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

need g++
if [ $# = 0 ]; then
    set -- g++
    if have clang++; then set -- g++ clang++; fi
fi
for compiler in "$@"; do
    have "$compiler" || die "there is no compiler '$compiler'"
    "$root/tests/tools/must_not_compile.sh" "$compiler"
done
"$root/tests/tools/readme_snippets.sh"
