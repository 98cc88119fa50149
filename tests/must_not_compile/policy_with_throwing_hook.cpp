// SPDX-License-Identifier: MIT
// expect: unpinned
// A policy is told of changes that cannot be taken back: what it does then must not throw.

#include "kvstem/radix_cache.hpp"

using kvstem::NodeId;

#ifdef MUST_NOT_COMPILE
inline constexpr bool is_noexcept = false;
#else
inline constexpr bool is_noexcept = true;
#endif

struct Policy {
    struct NodeData {};
    template <class Nodes>
    void unpinned(Nodes&, NodeId) noexcept(is_noexcept) {}
    template <class Nodes>
    void pinned(Nodes&, NodeId) noexcept {}
    template <class Nodes>
    void split(Nodes&, NodeId, NodeId) noexcept {}
    template <class Nodes>
    void removed(Nodes&, NodeId) noexcept {}
    template <class Nodes>
    NodeId victim(Nodes&) noexcept {
        return kvstem::no_node;
    }
};

kvstem::RadixCache<kvstem::PagePool, Policy>* cache;
