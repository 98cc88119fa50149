# SPDX-License-Identifier: MIT
# Reads the list of single_header.txt, checks it, and writes the single headers; called by
# single_header.sh, which states the rules. Variables: headers, the folder of the headers; present, a
# file with their names; out, the folder to write to; preamble, a file with what each file begins with.

/^ *#/ || /^[ \t]*$/ { next }
/:$/ {
    group = substr($0, 1, length($0) - 1)
    if (group != "left out") groups[++group_count] = group
    next
}
{
    if ($0 in place) complain($0 " is listed twice")
    place[$0] = NR
    group_of[$0] = group
    members[group, ++member_count[group]] = $0
}

END {
    while ((getline file < present) > 0) {
        exists[file] = 1
        if (!(file in place)) complain(file " is missing from the list")
    }
    for (file in place) {
        if (!(file in exists)) complain(file " is listed, but there is no such header")
        else if (group_of[file] != "left out") check_includes(file)
    }
    if (failed) exit 1
    for (i = 1; i <= group_count; ++i) write(groups[i])
}

function complain(what) {
    print "single header: " what
    failed = 1
}

# Whether a line includes a header of ours; sets target to its path below `headers`.
function is_ours(line, file,   parts) {
    if (line !~ /^ *# *include *"/) return 0
    split(line, parts, "\"")
    target = file
    if (!sub(/[^\/]*$/, "", target)) target = ""
    target = target parts[2]
    while (match(target, /[^\/]+\/\.\.\//))
        target = substr(target, 1, RSTART - 1) substr(target, RSTART + RLENGTH)
    return 1
}

# What a header includes before its own code has to stand before it, in its own file or in the first
# one. What it includes after its code are bodies, which include it in turn: they have to stand behind
# it in its own file.
function check_includes(file,   line, code) {
    code = 0
    while ((getline line < (headers "/" file)) > 0) {
        if (line ~ /^namespace /) code = 1
        if (!is_ours(line, file)) continue
        if (!(target in place) || group_of[target] == "left out")
            complain(file " includes " target ", which no single header has")
        else if (code && (place[target] < place[file] || group_of[target] != group_of[file]))
            complain(file " ends by including " target ", which is not listed after it")
        else if (!code && place[target] > place[file])
            complain(file " is listed before " target ", which it includes")
        else if (!code && group_of[target] != group_of[file] && group_of[target] != groups[1])
            complain(file " includes " target ", which is in " group_of[target])
    }
    close(headers "/" file)
}

function write(group,   path, guard, line, text, j) {
    path = out "/" group
    guard = toupper(group)
    gsub(/[^A-Z0-9]/, "_", guard)
    while ((getline line < preamble) > 0) print line > path
    close(preamble)
    print "#ifndef " guard "\n#define " guard "\n" > path
    if (group == groups[1]) {
        print "#ifdef KVSTEM_VERSION_MAJOR" > path
        print "#error \"this unit already includes kvstem from another place\"\n#endif\n" > path
    } else {
        print "#include \"" groups[1] "\"\n" > path
    }
    standard_count = 0
    for (j = 1; j <= member_count[group]; ++j) text = text joined(members[group, j])
    print_standard(path)
    printf "%s\n#endif\n", text > path
    close(path)
}

# The text of a header as it goes into the file; remembers what it includes in <> for the top.
function joined(file,   line, depth, text, blanks) {
    text = "\n// --- " file " " substr(rule, length(file) + 1) "\n"
    while ((getline line < (headers "/" file)) > 0) {
        if (line ~ /^\/\/ SPDX-/ || line ~ /^#pragma once/ || is_ours(line, file)) continue
        if (line ~ /^ *# *if/) ++depth
        if (line ~ /^ *# *endif/) --depth
        if (depth == 0 && line ~ /^#include </) {
            sub(/ *\/\/.*/, "", line)
            standard[++standard_count] = line
            continue
        }
        # What was removed leaves no gaps.
        if (line == "") {
            if (blanks++ == 0) text = text "\n"
            continue
        }
        blanks = 0
        text = text line "\n"
    }
    close(headers "/" file)
    return text
}

function print_standard(path,   i, j, line) {
    for (i = 2; i <= standard_count; ++i) {
        line = standard[i]
        for (j = i - 1; j > 0 && standard[j] > line; --j) standard[j + 1] = standard[j]
        standard[j + 1] = line
    }
    for (i = 1; i <= standard_count; ++i)
        if (i == 1 || standard[i] != standard[i - 1]) print standard[i] > path
}
