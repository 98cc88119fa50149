#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: the tests with several threads under ThreadSanitizer, by clang++ unless CXX names another
#
# Arguments go to Catch2.
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

export CXX=${CXX:-clang++} KVSTEM_SANITIZE=thread
if [[ $(basename "$CXX") == clang* ]]; then
    need clang
    # Debian keeps clang's sanitizers in a package of their own, named after its version.
    need "libclang-rt-$("$CXX" -dumpversion | cut -d. -f1)-dev"
fi
need cmake g++ make catch2 libfmt-dev
say "building the tests with ThreadSanitizer…"
folder=$(configure_tests)
build "$folder" --target kvstem_thread_tests
exec "$folder/tests/kvstem_thread_tests" "$@"
