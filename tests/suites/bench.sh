#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: the benchmark, as a table: [--check] [--json FILE] [--quick] [--only ID]
#
# Optimised with -O3 for the machine's plain instruction set (no -march), without internal assertions.
# --check fails when a target is missed, --quick runs a tenth in under a minute, --only runs one
# workload. Targets are ratios to yardsticks of the same run; for figures to rely on, let nothing else
# run beside it.
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

need cmake g++ make catch2
folder=$(build_root)/bench-$(compiler_name)
say "building the benchmark…"
configure "$folder" -DKVSTEM_TESTS=ON -DKVSTEM_EXAMPLES=OFF -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE="-O3 -DNDEBUG" -DKVSTEM_WERROR="${KVSTEM_WERROR:-OFF}"
build "$folder" --target kvstem_bench
printf 'commit %s; ' "$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)"
exec "$folder/tests/kvstem_bench" "$@"
