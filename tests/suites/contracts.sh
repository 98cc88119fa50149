#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: what must not compile does not, and the README shows what is compiled; compilers: g++ clang++
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

need g++
[ $# -gt 0 ] || set -- g++ clang++
for compiler in "$@"; do
    if have "$compiler"; then "$root/tests/tools/must_not_compile.sh" "$compiler"; fi
done
"$root/tests/tools/readme_snippets.sh"
