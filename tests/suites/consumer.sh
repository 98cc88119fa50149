#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: the ways in: copied folder, add_subdirectory, find_package; with each compiler named
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

need cmake g++ make
if [ $# -eq 0 ]; then
    set -- "$(compiler)"
    ! have clang++ || set -- g++ clang++
fi
consumer=$root/tests/consumer
version=$(sed -n 's/^#define KVSTEM_VERSION_.* //p' "$root/include/kvstem/version.hpp" | paste -sd.)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Each way leaves its program at $1/consumer.

copied() {
    mkdir -p "$1/vendor" &&
        cp -r "$root/include/kvstem" "$1/vendor" &&
        "$CXX" -std=c++20 -Wall -Wextra -Werror -I "$1/vendor" "$consumer/main.cpp" -o "$1/consumer"
}

subdirectory() {
    cmake -S "$consumer/subdirectory" -B "$1" -DKVSTEM_SOURCE="$root" && cmake --build "$1"
}

# Catch2 and fmt are hidden: installing must need neither.
installed() {
    cmake -S "$root" -B "$1/kvstem" -DCMAKE_DISABLE_FIND_PACKAGE_Catch2=ON \
        -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON -DKVSTEM_EXAMPLES=OFF &&
        cmake --install "$1/kvstem" --prefix "$1/prefix" &&
        cmake -S "$consumer/installed" -B "$1" -DCMAKE_PREFIX_PATH="$1/prefix" \
            -DKVSTEM_VERSION="$version" &&
        cmake --build "$1"
}

# try WAY FOLDER
try() {
    "$1" "$2" && [ "$("$2/consumer")" = "reused 2 of 3 tokens" ]
}

passed=0
failed=0
for compiler in "$@"; do
    export CXX=$compiler
    for way in copied subdirectory installed; do
        if quietly try $way "$work/$way-$(compiler_name)"; then
            printf 'ok      %-12s  %s\n' $way "$compiler"
            passed=$((passed + 1))
        else
            printf 'FAILED  %-12s  %s\n' $way "$compiler"
            failed=$((failed + 1))
        fi
    done
done
printf '%d passed, %d failed\n' $passed $failed
[ $failed = 0 ]
