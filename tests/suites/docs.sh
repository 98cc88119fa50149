#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# suite: the public headers and the README as HTML, by Doxygen, without a warning: [FOLDER]
#
# The comments are written to be read where they stand; what Doxygen needs beyond that is added by
# tools/doxygen_filter.awk on the way in.
#
# Every warning fails but one: a member without a comment is shown without one, because a comment that
# repeats a signature is worth nothing; macros are told of by their file. Types, concepts and free
# functions have to have a comment.
set -euo pipefail
# shellcheck source=tests/tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

need doxygen graphviz
out=${1:-$(build_root)/docs}
mkdir -p "$out"
out=$(cd "$out" && pwd)
version=$(sed -n 's/^#define KVSTEM_VERSION_.* //p' "$root/include/kvstem/version.hpp" | paste -sd.)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The README: what is linked to is in the repository, not in the pages.
cat >"$work/readme.sed" <<'END'
s|\[\([^]]*\)\]([^):]*)|\1|g
END

# Beside it, because a filter's path is not quoted.
cp "$root/tests/tools/doxygen_filter.awk" "$work/filter.awk"

cat >"$work/Doxyfile" <<END
PROJECT_NAME           = kvstem
PROJECT_NUMBER         = $version
PROJECT_BRIEF          = "KV prefix caching for language model inference"
INPUT                  = "$root/README.md" "$root/include/kvstem"
RECURSIVE              = YES
FILE_PATTERNS          = *.hpp *.md
EXCLUDE                = "$root/include/kvstem/detail"
EXCLUDE_SYMBOLS        = kvstem::detail kvstem::detail::* kvstem::*::detail* fmt::*
FILTER_PATTERNS        = "*.hpp=awk -f $work/filter.awk" "*.md=sed -f $work/readme.sed"
USE_MDFILE_AS_MAINPAGE = "$root/README.md"
STRIP_FROM_PATH        = "$root/include" "$root"
STRIP_FROM_INC_PATH    = "$root/include"
OUTPUT_DIRECTORY       = "$out"
GENERATE_LATEX         = NO
QUIET                  = YES
WARN_LOGFILE           = "$work/warnings"
WARN_IF_UNDOCUMENTED   = YES
HIDE_UNDOC_MEMBERS     = NO
JAVADOC_AUTOBRIEF      = YES
MACRO_EXPANSION        = YES
EXPAND_ONLY_PREDEF     = YES
PREDEFINED             = KVSTEM_ASSERTIONS=1
BUILTIN_STL_SUPPORT    = YES
SORT_MEMBER_DOCS       = NO
SHOW_USED_FILES        = NO
TOC_INCLUDE_HEADINGS   = 0
HTML_TIMESTAMP         = NO
HAVE_DOT               = YES
DOT_IMAGE_FORMAT       = svg
CLASS_GRAPH            = NO
COLLABORATION_GRAPH    = NO
INCLUDE_GRAPH          = YES
INCLUDED_BY_GRAPH      = NO
DIRECTORY_GRAPH        = NO
END

rm -rf "$out/html"
quietly doxygen "$work/Doxyfile"
grep -vE 'warning: Member .* (of (class|struct) .*|\(macro definition\) .*) is not documented' \
    "$work/warnings" >"$work/failing" || true
# A filter that fails leaves pages without text, of which doxygen does not warn.
grep -qs 'page groups' "$out"/html/class*RadixCache.html ||
    echo "the page of RadixCache has no text" >>"$work/failing"
if [ -s "$work/failing" ]; then
    cat "$work/failing"
    printf '0 passed, 1 failed\n'
    exit 1
fi
printf 'ok      %s\n1 passed, 0 failed\n' "$out/html/index.html"
