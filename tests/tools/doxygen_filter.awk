# SPDX-License-Identifier: MIT
# What Doxygen reads in place of a header; line numbers stay. Adds what its dialect needs and a reader of
# the source does not:
#   - the prologue of a file becomes the documentation of the file;
#   - the inline namespace is left out of all names;
#   - each part of a contract ("Complexity: …") begins a paragraph;
#   - a table row that is continued on further lines (first cell blank) becomes one row.
# What it takes for something else is taken away: __attribute__, and what stands behind the namespace,
# specialisations for the benefit of other libraries.

BEGIN {
    parts = "Choose it when|Template parameters|Complexity|Invalidation|Exceptions|Throws|Threads|" \
        "Lifetime|Requires|Effects|Returns|Invariants?"
}
FNR == 1 { in_prologue = 1 }
/^#pragma once/ { in_prologue = 0 }
in_prologue && /^\/\// { $0 = FNR == 1 ? "/// @file" : "/" $0 }
{
    sub(/^namespace kvstem::inline KVSTEM_ABI/, "namespace kvstem")
    sub(/__attribute__\(\(.*\)\)/, "")
}
/^namespace / { outside = 0 }
/^}  \/\/ namespace kvstem/ { print; outside = 1; next }
outside { $0 = "" }
/^ *\/\/\/ \|/ {
    n = split($0, cells, "|")
    if (in_table && cells[2] ~ /^ *$/) {
        for (i = 3; i < n; ++i) if (cells[i] !~ /^ *$/) row[i] = row[i] cells[i]
        ++owed
    } else {
        flush_row()
        for (i = 1; i <= n; ++i) row[i] = cells[i]
        row_cells = n
        in_table = 1
    }
    next
}
{
    flush_row()
    for (; owed > 0; --owed) print "///"
    in_table = 0
}
match($0, "^ */// (" parts "):") {
    start = index($0, "///") + 4
    $0 = substr($0, 1, start - 1) "<p><b>" substr($0, start, RLENGTH - start + 1) "</b>" \
        substr($0, RLENGTH + 1)
}
{ print }
END { flush_row() }

function flush_row(   i) {
    if (row_cells == 0) return
    for (i = 1; i < row_cells; ++i) printf "%s|", row[i]
    print row[row_cells]
    row_cells = 0
}
