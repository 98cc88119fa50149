#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# single_header.sh OUT [HEADERS [LIST]]: writes the single headers into the folder OUT, from the headers
# in HEADERS (default include/kvstem) in the order of LIST (default single_header.txt, beside this file).
#
# The rules of joining:
#   - a header's own includes and its #pragma once go; the order of the list stands for them;
#   - includes in <> that no #if surrounds move to the top, each once;
#   - the first file is complete, and every other one begins by including it;
#   - an include guard in place of #pragma once, so that the file may also be compiled as it is;
#   - everything else stays, but for the licence line and doubled blank lines.
# Writes nothing and fails when the list leaves a header out, names one twice or one that does not
# exist, or has one before something it includes.
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

[ $# -gt 0 ] || die "usage: single_header.sh OUT [HEADERS [LIST]]"
out=$1
headers=${2:-$root/include/kvstem}
list=${3:-$root/tests/tools/single_header.txt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# version PART
version() { sed -n "s/^#define KVSTEM_VERSION_$1 //p" "$headers/version.hpp"; }

{
    echo "// SPDX-License-Identifier: MIT"
    echo "// kvstem $(version MAJOR).$(version MINOR).$(version PATCH), joined from its headers:" \
        "change those, not this file."
    echo "//"
    sed 's|^|// |; s| *$||' "$root/LICENSE"
} >"$work/preamble"
(cd "$headers" && find . -name '*.hpp') | sed 's|^\./||' | sort >"$work/present"
mkdir "$work/out"
LC_ALL=C awk -v headers="$headers" -v present="$work/present" -v preamble="$work/preamble" \
    -v out="$work/out" -v rule="$(printf -- '-%.0s' {1..89})" \
    -f "$root/tests/tools/single_header.awk" "$list" >&2
mkdir -p "$out"
mv "$work/out"/*.hpp "$out"
