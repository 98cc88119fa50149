// SPDX-License-Identifier: MIT
// What an eviction policy has to offer, by archetypes that lack one thing each, and what the supplied
// ones promise to the compiler. Nothing here runs.

#include <cstddef>
#include <type_traits>

#include "kvstem/policy/fifo.hpp"
#include "kvstem/policy/hazard.hpp"
#include "kvstem/policy/length_aware.hpp"
#include "kvstem/policy/lfu.hpp"
#include "kvstem/policy/lfu_aging.hpp"
#include "kvstem/policy/lru.hpp"
#include "kvstem/policy/offline.hpp"
#include "kvstem/policy/priority.hpp"
#include "kvstem/policy/s3_fifo.hpp"
#include "kvstem/policy/slru.hpp"
#include "kvstem/radix_cache.hpp"

namespace {

using kvstem::eviction_policy;
using kvstem::NodeId;

/// The least that is a policy. It is never asked anything.
struct Least {
    struct NodeData {};
    template <class Nodes>
    void unpinned(Nodes&, NodeId) noexcept;
    template <class Nodes>
    void pinned(Nodes&, NodeId) noexcept;
    template <class Nodes>
    void split(Nodes&, NodeId, NodeId) noexcept;
    template <class Nodes>
    void removed(Nodes&, NodeId) noexcept;
    template <class Nodes>
    NodeId victim(Nodes&) noexcept;
};
static_assert(eviction_policy<Least>);

struct WithoutNodeData : Least {
  private:
    using Least::NodeData;
};
struct OwningNodeData : Least {
    struct NodeData {
        ~NodeData();
    };
};
struct WithoutUnpinned : Least {
    void unpinned() = delete;
};
struct WithoutPinned : Least {
    void pinned() = delete;
};
struct WithoutSplit : Least {
    void split() = delete;
};
struct WithoutRemoved : Least {
    void removed() = delete;
};
struct WithoutVictim : Least {
    void victim() = delete;
};
struct ThrowingUnpinned : Least {
    template <class Nodes>
    void unpinned(Nodes&, NodeId);
};
struct ThrowingVictim : Least {
    template <class Nodes>
    NodeId victim(Nodes&);
};
struct NumberAsVictim : Least {
    template <class Nodes>
    unsigned victim(Nodes&) noexcept;
};
struct Immovable : Least {
    Immovable(Immovable&&) = delete;
    Immovable& operator=(Immovable&&) = delete;
};
static_assert(!eviction_policy<WithoutNodeData> && !eviction_policy<OwningNodeData>);
static_assert(!eviction_policy<WithoutUnpinned> && !eviction_policy<WithoutPinned>);
static_assert(!eviction_policy<WithoutSplit> && !eviction_policy<WithoutRemoved>);
static_assert(!eviction_policy<WithoutVictim>);
static_assert(!eviction_policy<ThrowingUnpinned> && !eviction_policy<ThrowingVictim>);
static_assert(!eviction_policy<NumberAsVictim> && !eviction_policy<Immovable>);
static_assert(!eviction_policy<int> && !eviction_policy<void>);

// --- The supplied ones. A cache moves its policy in, and no hook but those that may allocate throws.

template <class Policy>
inline constexpr bool is_a_good_policy =
    eviction_policy<Policy> && std::is_nothrow_move_constructible_v<Policy> &&
    std::is_trivially_destructible_v<typename Policy::NodeData>;
static_assert(is_a_good_policy<kvstem::LeastRecentlyUsed>);
static_assert(is_a_good_policy<kvstem::FirstInFirstOut>);
static_assert(is_a_good_policy<kvstem::LeastFrequentlyUsed>);
static_assert(is_a_good_policy<kvstem::FrequencyWithAgeing>);
static_assert(is_a_good_policy<kvstem::LengthAware>);
static_assert(is_a_good_policy<kvstem::SegmentedLru>);
static_assert(is_a_good_policy<kvstem::S3Fifo>);
static_assert(is_a_good_policy<kvstem::PriorityThenRecency<>>);
static_assert(is_a_good_policy<kvstem::Hazard>);
static_assert(is_a_good_policy<kvstem::OfflineOptimum>);

// The future has to be given; all others can be made from nothing.
static_assert(std::is_default_constructible_v<kvstem::Hazard> &&
              !std::is_default_constructible_v<kvstem::OfflineOptimum>);

// What a lease keeps for its policy: nothing unless the policy asks for it.
static_assert(std::is_empty_v<kvstem::request_data<kvstem::LeastRecentlyUsed>>);
static_assert(std::is_empty_v<kvstem::request_data<Least>>);
static_assert(std::is_same_v<kvstem::request_data<kvstem::Hazard>, kvstem::Hazard::RequestData>);

static_assert(std::is_aggregate_v<kvstem::RequestHints> &&
              std::is_trivially_copyable_v<kvstem::RequestHints>);
static_assert(std::is_trivially_copyable_v<kvstem::Retention>);

}  // namespace
