#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: both commands of the README in bare Debian 12 and 13 roots, from a clean clone (needs root)
#
# In each root there is git and nothing else. Debian 12 plays the container, where everything is done
# as root; Debian 13 plays the laptop, where a user has sudo. Only what is committed is tested.
# Arguments: the releases to try (default: bookworm trixie); --no-clang before them leaves out the tests
# with Debian 13's clang++.
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

if [ "$(id -u)" != 0 ]; then
    echo "skipped: fresh: making a bare Debian root needs root"
    exit 0
fi
if ! have apt-get; then
    echo "skipped: fresh: this is not a Debian system, so there is no mirror to take a root from"
    exit 0
fi
need debootstrap git
with_clang=yes
if [ "${1:-}" = --no-clang ]; then
    with_clang=no
    shift
fi
[ $# -gt 0 ] || set -- bookworm trixie

work=$(mktemp -d "${TMPDIR:-/var/tmp}/kvstem-fresh.XXXXXX")
cleanup() {
    umount "$work"/*/proc 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

# A mount namespace takes its mounts along when it ends; inside a chroot there is none to be had.
isolated=(unshare --mount)
unshare --mount true 2>/dev/null || isolated=()
mkdir -p "$work/probe/proc"
if ! "${isolated[@]}" mount -t proc proc "$work/probe/proc" 2>/dev/null; then
    echo "skipped: fresh: making a bare Debian root needs the right to mount"
    exit 0
fi

declare -A running
# Each release runs as a process group of its own, so that nothing it started outlives an interrupt.
set -m
stop() {
    local group
    for group in "${running[@]}"; do kill -- "-$group" 2>/dev/null || true; done
    wait
    exit 130
}
trap stop INT TERM

# The mirror this machine uses, so that a machine behind one of its own is not sent elsewhere.
# shellcheck disable=SC2016
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
    grep -m 1 '/debian/*$' || echo http://deb.debian.org/debian)

# A clone of what is committed. The source may belong to somebody else than root, which git refuses
# unless told; the variable reaches the git that reads the source as well.
printf '[safe]\n\tdirectory = *\n' >"$work/gitconfig"
GIT_CONFIG_GLOBAL=$work/gitconfig git clone -q --bare --no-local --depth 1 "file://$root" "$work/kvstem.git"
commit=$(git -C "$work/kvstem.git" --git-dir=. rev-parse --short HEAD)
git -C "$root" -c safe.directory='*' diff --quiet HEAD -- 2>/dev/null ||
    say "note: there are changes that are not committed; $commit is what is tested"

# in_root USER COMMAND: as after a login, and with /proc.
in_root() {
    local user=$1 home
    home=$(awk -F: -v user="$user" '$1 == user { print $6 }' "$target/etc/passwd")
    # shellcheck disable=SC2016
    "${isolated[@]}" bash -c '
        mount -t proc proc "$0/proc"
        "$@"
        status=$?
        umount "$0/proc"
        exit $status' "$target" \
        chroot --userspec="$user" "$target" \
        env -i HOME="$home" USER="$user" LANG=C.UTF-8 TERM=dumb \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        bash -euo pipefail -c "$2"
}

# A root with git, reaching the network the way this machine does.
bootstrap() {
    local extra=git
    [ "$user" = root ] || extra+=,sudo
    case $mirror in https:*) extra+=,ca-certificates ;; esac
    "${isolated[@]}" debootstrap --variant=minbase --include="$extra" "$release" "$target" "$mirror" &&
        cp -L /etc/resolv.conf /etc/hosts "$target/etc/" &&
        { apt-config dump | grep '^Acquire::' || true; } >"$target/etc/apt/apt.conf.d/90host" &&
        cp -r "$work/kvstem.git" "$target/srv/kvstem.git" &&
        if [ "$user" != root ]; then
            chroot "$target" useradd --create-home --shell /bin/bash "$user" &&
                echo "$user ALL=(ALL) NOPASSWD: ALL" >"$target/etc/sudoers.d/$user" &&
                chroot "$target" chown -R "$user:" /srv/kvstem.git
        fi
}

# timed NAME COMMAND...: one step of a release, its output in the release's log.
timed() {
    local name=$1 start=$SECONDS status=0
    shift
    printf '\n== %s: %s\n' "$release" "$name" >>"$work/$release.log"
    "$@" >>"$work/$release.log" 2>&1 || status=$?
    if [ $status = 0 ]; then
        printf 'ok      %-10s %-28s %4d s\n' "$release" "$name" $((SECONDS - start))
    else
        printf 'FAILED  %-10s %-28s %4d s\n' "$release" "$name" $((SECONDS - start))
    fi
    return $status
}

try_release() {
    local release=$1 user=root here target=$work/$1
    [ "$release" = bookworm ] || user=stranger
    here='cd && cd "my projects/kvstem" &&'
    timed "bare root" bootstrap &&
        timed "git clone" in_root $user 'cd && mkdir "my projects" && cd "my projects" && git clone -q /srv/kvstem.git kvstem' &&
        timed "examples/run, $user" in_root $user "$here examples/run" &&
        timed "tests/run, $user" in_root $user "$here tests/run" &&
        timed "nothing left in the clone" in_root $user "$here [ -z \"\$(git status --porcelain)\" ]" || return
    [ "$release" != bookworm ] && [ $with_clang = yes ] || return 0
    # Debian 13 also brings the newest clang that has to work.
    timed "install clang" in_root root 'DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends clang' &&
        timed "tests/run, clang" in_root $user "$here CXX=clang++ tests/run"
}

# Side by side: unpacking packages keeps one core busy, compiling the other.
for release in "$@"; do
    try_release "$release" &
    running[$release]=$!
done
passed=0
failed=0
for release in "$@"; do
    if wait "${running[$release]}"; then
        passed=$((passed + 1))
        grep -h ' passed, .* failed$' "$work/$release.log" | sed "s/^/$release: /"
    else
        failed=$((failed + 1))
        cat "$work/$release.log" >&2
    fi
done
printf 'commit %s\n%d passed, %d failed\n' "$commit" $passed $failed
[ $failed = 0 ]
