// SPDX-License-Identifier: MIT
// Pictures of what a RadixCache holds: as text for a terminal, and as Graphviz for a page.
//
//     std::fputs(kvstem::to_text(cache).c_str(), stdout);
//     std::ofstream("tree.dot") << kvstem::to_dot(cache);      // dot -Tsvg tree.dot > tree.svg
//
// The text of a small cache (P = 2). A line is a node: the positions it covers, its tokens, its
// pages.
//
//     4 pages in 3 nodes, 2 pages pinned, 12 pages free, page size 2
//     default namespace
//       [0, 4) tokens 1 2 3 4, pages 0 1, pinned
//         [4, 6) tokens 5 6, page 2
//     adapter "legal-lora", version "2"
//       [0, 2) tokens 9 9, page 3
//
// Children stand in the tree's own order, the one tried first on top: equal caches, equal pictures.
// What `clear` or `drop` took out of reach is not shown, even while a lease still reads it.
//
// Names are printed as they are: think of it where the salt is a secret.
// Complexity: O(nodes + what is printed); no recursion, so a chain of a million nodes prints too.
// Exceptions: std::bad_alloc, and what a callable for tokens throws. Threads: as a const call of
// the cache; for a SharedRadixCache, `shared.inspect([](const auto& cache) { return to_text(cache);
// })`.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "config.hpp"
#include "detail/utf8.hpp"
#include "namespace.hpp"
#include "radix_tree.hpp"
#include "token.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// How much of a cache a picture shows. What is left out is counted or marked by "...".
struct PictureOptions {
    std::size_t most_nodes = static_cast<std::size_t>(-1);  ///< parents come before children
    std::size_t most_tokens = 8;                            ///< of a node: the first and the last
    std::size_t most_pages = 8;                             ///< of a node: the first and the last
    std::size_t most_indents = 16;  ///< levels; below, a line tells its depth as a number
};

/// Prints tokens that are numbers, as numbers.
struct TokenNumber {
    template <class T>
        requires(std::is_integral_v<T> || std::is_enum_v<T>)
    [[nodiscard]] std::string operator()(T token) const {
        if constexpr (std::is_enum_v<T>) {
            return std::to_string(static_cast<std::underlying_type_t<T>>(token));
        } else {
            return std::to_string(token);
        }
    }
};

/// A callable that tells how a token is to be printed, `std::string text(const T&)`: its number, or
/// the piece of text that it stands for. Line breaks and bytes that are not UTF-8 are printed as
/// escapes.
template <class Text, class T>
concept token_text = requires(const Text& text, const T& token) {
    { text(token) } -> std::convertible_to<std::string_view>;
};

namespace detail {

/// Appends text on one line: quotes and backslashes with a backslash before them, control
/// characters and what is not UTF-8 as \xNN.
inline void append_printable(std::string& out, std::string_view text) {
    constexpr char digits[] = "0123456789abcdef";
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        const auto byte = static_cast<unsigned char>(text[0]);
        if (length == 0 || byte < 0x20 || byte == 0x7F) {
            out += {'\\', 'x', digits[byte / 16], digits[byte % 16]};
            text.remove_prefix(1);
            continue;
        }
        if (byte == '"' || byte == '\\') out += '\\';
        out += text.substr(0, length);
        text.remove_prefix(length);
    }
}

/// Appends `count` items as " a b ... y z" by `append(i)`, at most `most` of them.
template <class Append>
void append_shortened(std::string& out, std::size_t count, std::size_t most, Append&& append) {
    const std::size_t first = count <= most ? count : most - most / 2;
    for (std::size_t i = 0; i < first; ++i) {
        out += ' ';
        append(i);
    }
    if (count <= most) return;
    out += " ...";
    for (std::size_t i = count - most / 2; i < count; ++i) {
        out += ' ';
        append(i);
    }
}

inline std::string title_of(const Namespace& name) {
    if (name.is_default()) return "default namespace";
    std::string title;
    const auto add = [&title](const char* what, const std::optional<std::string_view>& part) {
        if (!part) return;
        title += title.empty() ? "" : ", ";
        title += what;
        title += " \"";
        append_printable(title, *part);
        title += '"';
    };
    add("adapter", name.adapter);
    add("version", name.version);
    add("salt", name.salt);
    return title;
}

/// What a node is drawn as.
struct NodePicture {
    std::string range;   // [4, 8)
    std::string tokens;  // tokens 5 6 7 8
    std::string pages;   // pages 2 3
    bool pinned = false;
};

template <class Cache, class Tree, class Text>
NodePicture picture_of(const Cache& cache, const Tree& tree, NodeId node, std::size_t begin,
                       const PictureOptions& options, const Text& text) {
    const auto tokens = tree.tokens(node);
    const auto pages = tree.values(node);
    NodePicture picture;
    picture.range =
        "[" + std::to_string(begin) + ", " + std::to_string(begin + tokens.size()) + ")";
    picture.tokens = tokens.size() == 1 ? "token" : "tokens";
    append_shortened(picture.tokens, tokens.size(), options.most_tokens,
                     [&](std::size_t i) { append_printable(picture.tokens, text(tokens[i])); });
    picture.pages = pages.size() == 1 ? "page" : "pages";
    append_shortened(picture.pages, pages.size(), options.most_pages,
                     [&](std::size_t i) { picture.pages += std::to_string(index_of(pages[i])); });
    picture.pinned = cache.is_pinned(node);
    return picture;
}

/// Calls `visit(node, depth, begin)` for every node below a root, parents first: how many nodes it
/// is below the root, and the position of its first token.
template <class Tree, class Visit>
void walk_tree(const Tree& tree, NodeId root, Visit&& visit) {
    std::size_t depth = 0;
    std::size_t end = 0;  // the position behind `at`
    NodeId at = root;
    for (NodeId next = tree.next_in(root, root); next != no_node; next = tree.next_in(root, next)) {
        for (; at != tree.parent(next); at = tree.parent(at)) {
            end -= tree.tokens(at).size();
            --depth;
        }
        at = next;
        visit(at, ++depth, end);
        end += tree.tokens(at).size();
    }
}

/// Calls `on_root(name, root)` for every tree and `on_node(tree, node, depth, begin)` for its
/// nodes, until so many nodes were shown. Returns how many were not.
template <class Cache, class OnRoot, class OnNode>
std::size_t show_nodes(const Cache& cache, std::size_t most, OnRoot&& on_root, OnNode&& on_node) {
    std::size_t nodes = 0;
    cache.visit_trees([&](const Namespace& name, const auto& tree, NodeId root) {
        if (nodes < most) on_root(name, root);
        walk_tree(tree, root, [&](NodeId node, std::size_t depth, std::size_t begin) {
            if (nodes++ < most) on_node(tree, node, depth, begin);
        });
    });
    return nodes < most ? 0 : nodes - most;
}

/// The first line of both pictures.
template <class Cache>
std::string summary_of(const Cache& cache) {
    const std::size_t nodes = show_nodes(cache, 0, [](const auto&...) {}, [](const auto&...) {});
    return std::to_string(cache.cached_pages()) + " pages in " + std::to_string(nodes) +
           " nodes, " + std::to_string(cache.pinned_pages()) + " pages pinned, " +
           std::to_string(cache.free_pages()) + " pages free, page size " +
           std::to_string(cache.page_tokens());
}

/// Appends text in quotes, so that Graphviz shows just that text: in its labels a backslash begins
/// an escape, and an ampersand an entity.
inline void append_dot_string(std::string& out, std::string_view text) {
    out += '"';
    for (const char c : text) {
        switch (c) {
            case '\n':
                out += "\\n";
                break;
            case '&':
                out += "&amp;";
                break;
            case '"':
            case '\\':
                out += '\\';
                [[fallthrough]];
            default:
                out += c;
        }
    }
    out += '"';
}

inline std::string dot_id(NodeId node) {
    return "n" + std::to_string(static_cast<std::uint32_t>(node));
}

}  // namespace detail

/// The cache as text: a summary, then for each namespace its title and a line for each node.
template <class Cache, class Text = TokenNumber>
    requires token_text<Text, typename Cache::TokenType>
[[nodiscard]] std::string to_text(const Cache& cache, const PictureOptions& options = {},
                                  const Text& text = {}) {
    std::string out = detail::summary_of(cache) + "\n";
    const auto add_title = [&](const Namespace& name, NodeId) {
        out += detail::title_of(name) + "\n";
    };
    const auto add_line = [&](const auto& tree, NodeId node, std::size_t depth, std::size_t begin) {
        const bool too_deep = depth > options.most_indents;
        out.append(2 * (too_deep ? options.most_indents : depth), ' ');
        if (too_deep) out += "depth " + std::to_string(depth) + ": ";
        const auto line = detail::picture_of(cache, tree, node, begin, options, text);
        out += line.range + " " + line.tokens + ", " + line.pages;
        out += line.pinned ? ", pinned\n" : "\n";
    };
    const std::size_t left_out = detail::show_nodes(cache, options.most_nodes, add_title, add_line);
    if (left_out != 0) out += "... and " + std::to_string(left_out) + " nodes more\n";
    return out;
}

/// The cache as a Graphviz digraph: an ellipse for each namespace, a box for each node, pinned ones
/// filled.
template <class Cache, class Text = TokenNumber>
    requires token_text<Text, typename Cache::TokenType>
[[nodiscard]] std::string to_dot(const Cache& cache, const PictureOptions& options = {},
                                 const Text& text = {}) {
    std::string out = "digraph kvstem {\n  label=";
    detail::append_dot_string(out, detail::summary_of(cache));
    out += ";\n  rankdir=LR;\n  node [shape=box, fontname=\"monospace\"];\n";
    const auto add_ellipse = [&](const Namespace& name, NodeId root) {
        out += "  " + detail::dot_id(root) + " [shape=ellipse, label=";
        detail::append_dot_string(out, detail::title_of(name));
        out += "];\n";
    };
    const auto add_box = [&](const auto& tree, NodeId node, std::size_t, std::size_t begin) {
        const auto box = detail::picture_of(cache, tree, node, begin, options, text);
        out += "  " + detail::dot_id(node) + " [label=";
        detail::append_dot_string(out, box.range + "\n" + box.tokens + "\n" + box.pages);
        out += box.pinned ? ", style=filled, fillcolor=gold];\n" : "];\n";
        out += "  " + detail::dot_id(tree.parent(node)) + " -> " + detail::dot_id(node) + ";\n";
    };
    const std::size_t left_out =
        detail::show_nodes(cache, options.most_nodes, add_ellipse, add_box);
    if (left_out != 0) {
        out += "  more [shape=plaintext, label=\"... and " + std::to_string(left_out) +
               " nodes more\"];\n";
    }
    return out + "}\n";
}

}  // namespace kvstem
