# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Sourced by tests/run, examples/run, the suites and .ci/run: finds or installs what a build needs,
# and builds quietly. Expects `set -eu`. Sets root.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 2; }

# The folder that holds everything built; never part of the repository.
build_root() { printf '%s' "${KVSTEM_BUILD_DIR:-$root/.build}"; }

compiler() { printf '%s' "${CXX:-c++}"; }

# The compiler's name as part of a folder name.
compiler_name() { basename "$(compiler)" | tr -c '[:alnum:]+.\n-' '_'; }

have() { command -v "$1" >/dev/null 2>&1; }

# have_header HEADER...: whether the compiler finds one of them.
have_header() {
    local header
    for header in "$@"; do
        printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$header" |
            "$(compiler)" -std=c++20 -E -x c++ - >/dev/null 2>&1 && return
    done
    return 1
}

# Whether what the Debian package of that name brings is here, installed by apt or otherwise.
have_package() {
    case $1 in
    g++) have "$(compiler)" ;;
    catch2) have_header catch2/catch_test_macros.hpp catch2/catch.hpp ;;
    libfmt-dev) have_header fmt/core.h ;;
    graphviz) have dot ;;
    libclang-rt-*) dpkg -s "$1" >/dev/null 2>&1 ;;
    llvm-*) have "llvm-cov-${1#llvm-}" ;;
    *) have "$1" ;;
    esac
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# apt_install PACKAGE...: quiet unless it fails; the package lists are fetched only when they have to be.
apt_install() {
    local log install
    log=$(mktemp)
    install=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -y -q)
    say "installing: $*"
    if ! as_root "${install[@]}" install --no-install-recommends "$@" >"$log" 2>&1 &&
        ! { as_root "${install[@]}" update >>"$log" 2>&1 &&
            as_root "${install[@]}" install --no-install-recommends "$@" >>"$log" 2>&1; }; then
        cat "$log" >&2
        rm -f "$log"
        die "could not install: $*"
    fi
    rm -f "$log"
}

# need PACKAGE...: what is missing is installed where apt can, and named where it cannot.
need() {
    local package missing=()
    for package in "$@"; do
        have_package "$package" || missing+=("$package")
    done
    if ! have apt-get; then
        say "no apt here; this needs (by their Debian names): $*"
        # A header may still be where only CMake looks, so a missing one is left to CMake to refuse.
        for package in "${missing[@]}"; do
            case $package in
            catch2 | libfmt-dev) ;;
            *) die "please install what is missing: ${missing[*]}" ;;
            esac
        done
        return
    fi
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ] && ! have sudo; then
        die "neither root nor sudo; please run: apt-get install ${missing[*]}"
    fi
    apt_install "${missing[@]}"
}

# quietly COMMAND...: its output is shown only when it fails.
quietly() {
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 || status=$?
    [ $status = 0 ] || cat "$log" >&2
    rm -f "$log"
    return $status
}

# configure FOLDER CMAKE-ARGUMENT...
configure() {
    local folder=$1
    shift
    quietly cmake -S "$root" -B "$folder" "$@"
}

build() {
    local folder=$1
    shift
    quietly cmake --build "$folder" --parallel "$(nproc 2>/dev/null || echo 2)" "$@"
}

# configure_tests: prints the folder of the test build that CXX, CXXFLAGS, KVSTEM_SANITIZE and
# KVSTEM_WERROR select. Optimised as far as it pays: building takes far longer than running. With
# assertions, because NDEBUG is not defined.
configure_tests() {
    local folder flags=-O1
    folder=$(build_root)/tests-$(compiler_name)
    if [ -n "${KVSTEM_SANITIZE:-}" ]; then
        folder=$folder-${KVSTEM_SANITIZE//,/-}
        flags="-O1 -g1"
    fi
    configure "$folder" -DKVSTEM_TESTS=ON -DKVSTEM_EXAMPLES=OFF -DCMAKE_BUILD_TYPE= \
        -DCMAKE_CXX_FLAGS="$flags ${CXXFLAGS:-}" \
        -DKVSTEM_SANITIZE="${KVSTEM_SANITIZE:-}" -DKVSTEM_WERROR="${KVSTEM_WERROR:-OFF}" || return
    printf '%s' "$folder"
}

# names_in FOLDER EXTENSION: the file names without the extension, one a line.
names_in() {
    local file
    for file in "$1"/*."$2"; do
        [ -e "$file" ] && basename "$file" ".$2"
    done
    return 0
}
