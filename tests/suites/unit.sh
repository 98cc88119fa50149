#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: every test of the test program, every header alone, all headers linked together
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

need cmake g++ make catch2 libfmt-dev
say "building the tests…"
folder=$(configure_tests)
build "$folder"
"$folder/tests/kvstem_odr"
exec "$folder/tests/kvstem_tests" "$@"
