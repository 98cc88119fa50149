#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: writes the library as single headers: [FOLDER], by default one in the build folder
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

out=${1:-$(build_root)/single_header}
"$root/tests/tools/single_header.sh" "$out"
wc -l "$out"/kvstem*.hpp | sed '$d'
