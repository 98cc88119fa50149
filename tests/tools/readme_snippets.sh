#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Checks that README.md shows what is compiled and counts what is there:
#   - every ```cpp block stands under a comment <!-- FILE:NAME --> and equals the lines of FILE between
#     `// [readme:NAME]` and `// [/readme:NAME]`, their common indentation aside;
#   - every such region of examples/ is shown;
#   - what a ```text block that begins with `$ examples/run NAME` shows is what examples/expected/NAME.txt
#     has, which the suite `examples` compares with what is printed; with a `>` behind the name, what
#     NAME.err has;
#   - every path in a link is there;
#   - a table row | [`FILE`](FILE) | N | tells the lines of FILE to within a tenth;
#   - the number of rules is that of tests/RULES.md, and each of them is the tag of some test, and each
#     such tag a rule.
# Prints what differs and fails, or one line saying how much was compared.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

failed=0
compared=0
printed=0
complain() {
    printf 'README.md: %s\n' "$*"
    failed=1
}

# region FILE NAME: its lines, less the indentation that all of them share.
region() {
    awk -v begin="// [readme:$2]" -v end="// [/readme:$2]" '
        { line = $0; sub(/^ +/, "", line) }
        line == begin { inside = 1; next }
        line == end { inside = 0; next }
        inside {
            lines[++n] = $0
            if (line == "") next
            indent = length($0) - length(line)
            if (least == "" || indent < least) least = indent
        }
        END { for (i = 1; i <= n; ++i) print substr(lines[i], least + 1) }' "$1"
}

# block LINE: the lines of the README between the fence on this line and the next one.
block() { awk -v first="$1" 'NR > first { if (/^```/) exit; print }' README.md; }

# The line number of each ```cpp fence, and what the line above it says.
while IFS=$'\t' read -r line above; do
    if [[ ! $above =~ ^'<!-- '([^ :]+):([^ ]+)' -->'$ ]]; then
        complain "line $line: this C++ block is not taken from a compiled example"
        continue
    fi
    file=${BASH_REMATCH[1]}
    name=${BASH_REMATCH[2]}
    if [ ! -f "$file" ] || [ -z "$(region "$file" "$name")" ]; then
        complain "line $line: $file has no region [readme:$name]"
    elif ! difference=$(diff <(region "$file" "$name") <(block "$line")); then
        complain "line $line: differs from $file, region [readme:$name]:"
        printf '%s\n' "$difference"
    fi
    compared=$((compared + 1))
done < <(awk '/^```cpp/ { print NR "\t" above } { above = $0 }' README.md)

while IFS=$'\t' read -r line name rest; do
    [ "$name" != engine ] || name=wrap_your_engine
    expected=examples/expected/$name.txt
    [[ $rest != *'>'* ]] || expected=examples/expected/$name.err
    if ! difference=$(diff "$expected" <(block "$line" | tail -n +2)); then
        complain "line $line: differs from $expected:"
        printf '%s\n' "$difference"
    fi
    printed=$((printed + 1))
done < <(awk '/^```text/ { line = NR } NR == line + 1 && /^\$ examples\/run / {
    print line "\t" $3 "\t" substr($0, index($0, $3) + length($3)) }' README.md)

while IFS= read -r path; do
    [ -e "$path" ] || complain "links to $path, which is not there"
done < <(grep -oE '\]\([^)#:]+\)' README.md | sed 's/^](//; s/)$//' | sort -u)

while IFS=: read -r file marker; do
    name=${marker#*'[readme:'}
    grep -qF -- "<!-- $file:${name%]} -->" README.md || complain "does not show $file, $marker"
done < <(grep -rHoE '// \[readme:[^]]+\]' examples)

# shellcheck disable=SC2016 # the backquotes are those of Markdown
while read -r file lines; do
    actual=$(wc -l <"$file" 2>/dev/null || echo 0)
    if [ $((lines * 10)) -lt $((actual * 9 - 50)) ] || [ $((lines * 10)) -gt $((actual * 11 + 50)) ]; then
        complain "says that $file has $lines lines; it has $actual"
    fi
done < <(sed -nE 's/^\| \[`([^`]+)`\]\([^)]*\) \| ([0-9]+) \|.*/\1 \2/p' README.md)

mapfile -t rules < <(sed -nE 's/^\| ([A-Z][0-9](, [A-Z][0-9])*) \|.*/\1/p' tests/RULES.md | tr -d ' ' | tr ',' '\n' | sort)
mapfile -t tags < <(grep -rhoE --include='*.cpp' '\[[A-Z][0-9]\]' tests | tr -d '[]' | sort -u)
differing=$(comm -3 <(printf '%s\n' "${rules[@]}") <(printf '%s\n' "${tags[@]}"))
[ -z "$differing" ] || complain "rules without a test, and tags that are no rule: ${differing//[[:space:]]/ }"
grep -qF "[${#rules[@]} rules](tests/RULES.md)" README.md || complain "there are ${#rules[@]} rules"

[ "$compared" != 0 ] || complain "shows no compiled example"
[ $failed = 0 ] || exit 1
printf 'ok      README.md: %d snippets are compiled examples, %d outputs are what examples print\n' \
    $compared $printed
