// SPDX-License-Identifier: MIT
// expect: victim
// An order of eviction that cannot say who goes next is refused at the class name.

#include "kvstem/radix_cache.hpp"

using kvstem::NodeId;

struct Policy {
    struct NodeData {};
    template <class Nodes>
    void unpinned(Nodes&, NodeId) noexcept {}
    template <class Nodes>
    void pinned(Nodes&, NodeId) noexcept {}
    template <class Nodes>
    void split(Nodes&, NodeId, NodeId) noexcept {}
    template <class Nodes>
    void removed(Nodes&, NodeId) noexcept {}
#ifndef MUST_NOT_COMPILE
    template <class Nodes>
    NodeId victim(Nodes&) noexcept {
        return kvstem::no_node;
    }
#endif
};

kvstem::RadixCache<kvstem::PagePool, Policy>* cache;
