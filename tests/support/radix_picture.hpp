// SPDX-License-Identifier: MIT
// Everything that can be seen of a RadixCache, as text: two equal pictures are two equal states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/token_rows.hpp"

namespace kvstem_test {

/// A namespace as text; absent parts and empty ones differ.
inline std::string text_of(const Namespace& name) {
    std::string text;
    for (const auto& part : {name.adapter, name.version, name.salt}) {
        text += part ? '(' + std::string(*part) + ')' : "-";
    }
    return text;
}

/// Calls `visit(namespace, tree, node)` for every node that a lookup can reach, parents first.
template <class Cache, class Visit>
void visit_nodes(const Cache& cache, Visit&& visit) {
    cache.visit_trees([&](const Namespace& name, const auto& tree, kvstem::NodeId root) {
        for (auto node = tree.next_in(root, root); node != kvstem::no_node;
             node = tree.next_in(root, node)) {
            visit(name, tree, node);
        }
    });
}

struct CachedPage {
    PageId page;
    bool pinned;

    friend bool operator==(const CachedPage&, const CachedPage&) = default;
};
/// What is cached: a page for each (namespace, prefix of whole pages).
using CachedPages = std::map<std::pair<std::string, Tokens>, CachedPage>;

template <class Cache>
CachedPages cached_pages_of(const Cache& cache) {
    CachedPages cached;
    std::map<kvstem::NodeId, Tokens> prefixes;
    visit_nodes(cache, [&](const Namespace& name, const auto& tree, kvstem::NodeId node) {
        Tokens prefix = prefixes[tree.parent(node)];  // of a root: none
        const auto tokens = tree.tokens(node);
        for (std::size_t page = 0; page < tree.pages(node); ++page) {
            const auto own = tokens.subspan(page * cache.page_tokens(), cache.page_tokens());
            prefix.insert(prefix.end(), own.begin(), own.end());
            cached[{text_of(name), prefix}] = {tree.values(node)[page], cache.is_pinned(node)};
        }
        prefixes[node] = prefix;
    });
    return cached;
}

/// The unpinned nodes from the oldest to the newest, read from the links of LeastRecentlyUsed.
template <class Cache>
std::vector<kvstem::NodeId> recency_of(const Cache& cache) {
    std::map<kvstem::NodeId, kvstem::NodeId> newer;
    kvstem::NodeId oldest = kvstem::no_node;
    visit_nodes(cache, [&](const Namespace&, const auto& tree, kvstem::NodeId node) {
        if (cache.is_pinned(node)) return;
        const auto& order = tree.data(node).order;
        newer[node] = order.newer;
        if (order.older == kvstem::no_node) oldest = node;
    });
    std::vector<kvstem::NodeId> order;
    for (auto node = oldest; node != kvstem::no_node && order.size() < newer.size();
         node = newer[node]) {
        order.push_back(node);
    }
    return order;
}

template <class Cache>
std::string pages_picture_of(const Cache& cache) {
    std::ostringstream out;
    const auto stats = cache.stats();
    out << stats.hits << ' ' << stats.misses << ' ' << stats.queried_tokens << ' '
        << stats.hit_tokens << ' ' << stats.missed_tokens << ' ' << stats.partial_tokens << ' '
        << stats.published_pages << ' ' << stats.duplicate_pages << ' ' << stats.leases << ' '
        << stats.namespaces << " | pages " << stats.free_pages << ' ' << stats.cached_pages << ' '
        << stats.pinned_pages << " | owners";
    for (std::uint32_t page = 0; page < stats.capacity_pages; ++page) {
        out << ' ' << cache.refs(PageId{page}) << '/' << cache.pages().refs(PageId{page});
    }
    out << '\n';
    for (const auto& [key, cached] : cached_pages_of(cache)) {
        out << key.first << " [";
        for (const kvstem::Token token : key.second) out << token << ' ';
        out << "] page " << index_of(cached.page) << (cached.pinned ? " pinned\n" : "\n");
    }
    return out.str();
}

/// All that a refusal or an exception must leave as it is: pages and their owners, prefixes, pins,
/// counters (but those of refusals, evictions and drops), the shape of the tree and the recency.
template <class Cache>
std::string picture_of(const Cache& cache) {
    std::ostringstream out;
    out << pages_picture_of(cache) << cache.stats().nodes << " nodes:";
    visit_nodes(cache, [&](const Namespace&, const auto& tree, kvstem::NodeId node) {
        out << ' ' << static_cast<std::uint32_t>(node) << " under "
            << static_cast<std::uint32_t>(tree.parent(node)) << " with " << tree.pages(node) << ',';
    });
    out << "\nevicted: " << cache.stats().evicted_pages << "\nfrom the oldest:";
    for (const auto node : recency_of(cache)) out << ' ' << static_cast<std::uint32_t>(node);
    return out.str();
}

/// All that can be seen of a lease.
template <class Lease>
std::string picture_of_lease(const Lease& lease) {
    std::ostringstream out;
    out << lease.adopted() << ' ' << lease.written() << ' ' << lease.published() << ' '
        << lease.capacity() << ':';
    for (const PageId page : lease.block_table()) out << ' ' << index_of(page);
    return out.str();
}

/// The first finding of an audit; empty if there is none.
template <class Cache>
std::string first_finding(const Cache& cache) {
    const auto report = cache.audit();
    if (report.ok()) return {};
    return report.findings.front().what +
           (" at " + std::to_string(report.findings.front().subject));
}

}  // namespace kvstem_test
