// SPDX-License-Identifier: MIT
// What RadixTree promises to the compiler. Nothing here runs.

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "kvstem/radix_tree.hpp"

namespace {

using kvstem::NodeHandle;
using kvstem::NodeId;
using Tree = kvstem::RadixTree<kvstem::Token, std::uint32_t, int>;
using Tokens = std::span<const kvstem::Token>;

// Nodes point into runs: a tree stays where it is.
static_assert(!std::is_copy_constructible_v<Tree> && !std::is_copy_assignable_v<Tree>);
static_assert(!std::is_move_constructible_v<Tree> && !std::is_move_assignable_v<Tree>);
static_assert(std::is_nothrow_destructible_v<Tree>);
static_assert(!std::is_convertible_v<std::size_t, Tree>);  // explicit

static_assert(sizeof(NodeId) == 4 && !std::is_convertible_v<NodeId, std::uint32_t>);
static_assert(std::is_trivially_copyable_v<NodeHandle> && sizeof(NodeHandle) == 8);
static_assert(std::is_trivially_copyable_v<kvstem::TreeMatch>);
static_assert(std::is_empty_v<kvstem::NoValue>);

// Looking never throws and needs no more than a const tree.
static_assert(noexcept(std::declval<const Tree&>().find(NodeId{}, Tokens())));
static_assert(noexcept(std::declval<const Tree&>().find_partial({}, Tokens())));
static_assert(noexcept(std::declval<const Tree&>().tokens(NodeId{})));
static_assert(noexcept(std::declval<const Tree&>().values(NodeId{})));
static_assert(noexcept(std::declval<const Tree&>().handle(NodeId{})));
static_assert(noexcept(std::declval<const Tree&>().is_alive(NodeHandle{})));
static_assert(noexcept(std::declval<const Tree&>().next_in(NodeId{}, NodeId{})));
static_assert(noexcept(std::declval<const Tree&>().bytes()));

// What gives back never throws; what adds may.
static_assert(noexcept(std::declval<Tree&>().remove_leaf(NodeId{})));
static_assert(noexcept(std::declval<Tree&>().remove_root(NodeId{})));
static_assert(noexcept(std::declval<Tree&>().trim(NodeId{}, 1)));
static_assert(noexcept(std::declval<Tree&>().join_with_parent(NodeId{})));
static_assert(noexcept(std::declval<Tree&>().move_to_front(NodeId{})));
static_assert(noexcept(std::declval<Tree&>().tidy()));
static_assert(!noexcept(std::declval<Tree&>().add_root()));
static_assert(!noexcept(std::declval<Tree&>().split(NodeId{}, 1)));
static_assert(!noexcept(std::declval<Tree&>().insert(NodeId{}, Tokens(), {})));

// Tokens and values are read-only from outside; only a node's data is the owner's to change.
static_assert(std::is_same_v<decltype(std::declval<Tree&>().tokens(NodeId{})), Tokens>);
static_assert(std::is_same_v<decltype(std::declval<Tree&>().values(NodeId{})),
                             std::span<const std::uint32_t>>);
static_assert(std::is_same_v<decltype(std::declval<Tree&>().data(NodeId{})), int&>);
static_assert(std::is_same_v<decltype(std::declval<const Tree&>().data(NodeId{})), const int&>);

template <class T>
concept changes = requires(T& tree) { tree.remove_leaf(NodeId{}); };
static_assert(changes<Tree> && !changes<const Tree>);

}  // namespace
