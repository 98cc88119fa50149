// SPDX-License-Identifier: MIT
// An eviction policy of one's own, and what it gains: replayed against the default one.

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "kvstem/policy/leaf_heap.hpp"
#include "kvstem/policy/lru.hpp"
#include "kvstem/policy/policy.hpp"
#include "kvstem/replay/replay.hpp"
#include "support/made_up_trace.hpp"

using kvstem::NodeId;

/// What requests of a larger tag have published goes first; of one tag, what was released the
/// longest ago. A caller who tags chats 0 and batch jobs 1 keeps the jobs from pushing the chats
/// out.
class LargestTagFirst {
  public:
    struct NodeData {
        std::uint32_t tag = 0;
        std::uint64_t released = 0;
        kvstem::HeapLinks heap;
    };
    struct RequestData {  // one for each lease
        std::uint32_t tag = 0;
    };

    void request(auto&, const auto& info, RequestData& data) noexcept { data.tag = info.hints.tag; }
    void inserted(auto& nodes, NodeId node, const RequestData& data) noexcept {
        nodes.order(node).tag = data.tag;
    }
    void unpinned(auto& nodes, NodeId node) noexcept {
        nodes.order(node).released = ++clock_;
        if (nodes.is_leaf(node)) leaves_.insert(nodes, node);
    }
    void became_leaf(auto& nodes, NodeId node) noexcept { leaves_.insert(nodes, node); }
    void pinned(auto& nodes, NodeId node) noexcept {
        if (nodes.order(node).heap.in_heap()) leaves_.remove(nodes, node);
    }
    void removed(auto& nodes, NodeId node) noexcept { pinned(nodes, node); }
    void split(auto& nodes, NodeId upper, NodeId) noexcept { nodes.order(upper).heap = {}; }
    NodeId victim(auto&) noexcept { return leaves_.top(); }

  private:
    struct Order {
        static bool before(const NodeData& a, const NodeData& b) noexcept {
            return a.tag != b.tag ? a.tag > b.tag : a.released < b.released;
        }
        static kvstem::HeapLinks& links(NodeData& data) noexcept { return data.heap; }
    };
    kvstem::LeafHeap<Order> leaves_;
    std::uint64_t clock_ = 0;
};
static_assert(kvstem::eviction_policy<LargestTagFirst>);

namespace {

template <class Policy>
double hit_rate(const kvstem::replay::Trace& trace) {
    kvstem::replay::Replay<Policy> replay(trace, {.capacity_blocks = 1500});
    return replay.run().whole.block_hit_rate();
}

}  // namespace

int main() {
    const kvstem::replay::Trace trace = support::read_trace(support::chats_and_jobs());
    const double lru = hit_rate<kvstem::LeastRecentlyUsed>(trace);
    const double own = hit_rate<LargestTagFirst>(trace);
    std::printf("%zu requests, half of them batch jobs; block hit rate with room for 1500 blocks\n",
                trace.requests.size());
    std::printf("  least recently used  %5.1f %%\n", 100 * lru);
    std::printf("  largest tag first    %5.1f %%\n", 100 * own);
    return own > lru ? 0 : 1;
}
