# SPDX-License-Identifier: MIT
# Prints "LINES FILE:LINE" for each function of the C++ files given: from the line its declaration begins
# on (the template head aside) to its closing brace. Relies on the layout of .clang-format, and complains
# about a file whose braces it could not follow. Lambdas and local classes count with their function.

FNR == 1 { finish(); file = FILENAME; depth = 0; parens = 0; statement = ""; continued = in_head = 0; kind[0] = "scope" }
{
    # Preprocessor lines; of a conditional only the first branch, or braces would be counted twice.
    if (continued || /^ *#/) {
        if (!continued && /^ *# *(else|elif)/) skipping = 1
        if (!continued && /^ *# *endif/) skipping = 0
        continued = /\\$/
        next
    }
    if (skipping) next
    line = $0
    gsub(/\\./, "", line)                       # escapes in literals
    gsub(/'[^']'/, "0", line)                   # characters
    gsub(/"[^"]*"/, "0", line)                  # strings
    sub(/\/\/.*/, "", line)
    if (statement == "" && line ~ /^ *template </) in_head = 1
    if (in_head) {
        if (line ~ /> *$/) in_head = 0
        next
    }
    if (line ~ /^ *(public|private|protected): *$/) next
    for (i = 1; i <= length(line); ++i) take(substr(line, i, 1))
    if (statement != "") statement = statement " "
}
END { finish() }

function finish() {
    if (file != "" && depth != 0) {
        print "function_sizes.awk: lost count of the braces in " file > "/dev/stderr"
        exit 1
    }
}

function take(c) {
    if (c == "(") ++parens
    if (c == ")") --parens
    if (c == "{") {
        open_brace()
    } else if (c == "}") {
        close_brace()
    } else if (c == ";" && parens == 0 && kind[depth] == "scope") {
        statement = ""
    } else if (kind[depth] == "scope" && !(statement == "" && c == " ")) {
        if (statement == "") began = FNR
        statement = statement c
    }
}

function open_brace(   above, head, what) {
    above = kind[depth]
    what = "block"
    if (above == "scope") {
        head = statement
        sub(/ +$/, "", head)
        if (parens > 0 || statement !~ / $/) what = "value"
        else if (head ~ /(^| )requires( ?\([^()]*(\([^()]*\)[^()]*)*\))?$/) what = "value"
        else if (head ~ /^(inline )?namespace/ || head ~ /^(\[\[[^\]]*\]\] )?(class|struct|union) /) what = "scope"
        else if (head ~ /^enum /) what = "value"
        else if (head ~ /^[^(]*=/ && head !~ /operator[^ (]*=/) what = "value"
        else if (head ~ /\(/) what = "function"
        else what = "value"
    }
    kind[++depth] = what
    outer_parens[depth] = parens
    parens = 0
    if (what == "function") first[depth] = began
    if (what == "scope") statement = ""
}

function close_brace(   what) {
    what = kind[depth]
    parens = outer_parens[depth]
    if (what == "function") print FNR - first[depth] + 1, file ":" first[depth]
    --depth
    if (what == "value") statement = statement "{}"
    else if (kind[depth] == "scope") statement = ""
}
