// SPDX-License-Identifier: MIT
// From a namespace to the root of its tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "../config.hpp"
#include "../namespace.hpp"
#include "child_table.hpp"
#include "hash.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// Maps namespaces to 32-bit numbers (ids of root nodes, never 0). The default namespace is not in
/// here: its root is a constant of the cache.
///
/// A key is the three parts one after another, each as a tag byte, its length and its bytes, which
/// no two different namespaces share. Keys are compared, not only their hashes.
/// Complexity: O(length of the strings). `add` throws std::bad_alloc, with nothing changed.
class NamespaceTable {
  public:
    using Key = std::vector<unsigned char>;

    struct Entry {
        Key key;
        std::uint32_t root = 0;  // 0: the entry is free
    };

    /// The root filed for a namespace, 0 if there is none.
    [[nodiscard]] std::uint32_t find(const Namespace& name) const noexcept {
        const std::uint32_t entry = find_entry(hash_of(name), name);
        return entry == 0 ? 0 : entries_[entry - 1].root;
    }

    /// Files `root` for a namespace that has none yet. Returns the entry's number, from 1.
    std::uint32_t add(const Namespace& name, std::uint32_t root) {
        Key key = encode(name);
        table_.reserve_one();
        if (free_.empty()) {
            entries_.reserve(entries_.size() + 1 > entries_.capacity() ? entries_.size() * 2 + 8
                                                                       : entries_.capacity());
            free_.reserve(entries_.capacity());  // so that removing never allocates
            entries_.push_back({});
            free_.push_back(static_cast<std::uint32_t>(entries_.size()));
        }
        const std::uint32_t number = free_.back();
        free_.pop_back();
        entries_[number - 1] = {static_cast<Key&&>(key), root};
        table_.insert(hash_of(name), number);
        return number;
    }

    /// Files another root under the entry of that number.
    void replace(std::uint32_t number, std::uint32_t root) noexcept {
        entries_[number - 1].root = root;
    }

    void remove(std::uint32_t number) noexcept {
        table_.erase(hash_of(decode(entries_[number - 1].key)), number);
        entries_[number - 1] = {};
        free_.push_back(number);
    }

    /// The name of the entry of that number; its strings live as long as the entry.
    [[nodiscard]] Namespace name_of(std::uint32_t number) const noexcept {
        return decode(entries_[number - 1].key);
    }

    [[nodiscard]] std::size_t size() const noexcept { return table_.size(); }
    [[nodiscard]] std::size_t bytes() const noexcept {
        std::size_t bytes = table_.bytes() + entries_.capacity() * sizeof(Entry) +
                            free_.capacity() * sizeof(std::uint32_t);
        for (const Entry& entry : entries_) bytes += entry.key.capacity();
        return bytes;
    }
    /// All entries, free ones (root 0) included.
    [[nodiscard]] std::span<const Entry> entries() const noexcept { return entries_; }

  private:
    /// Reads one part of a key: advances `key` past it.
    static std::optional<std::string_view> decode_part(
        std::span<const unsigned char>& key) noexcept {
        if (key[0] == 0) {
            key = key.subspan(1);
            return std::nullopt;
        }
        std::uint64_t length = 0;
        std::memcpy(&length, key.data() + 1, sizeof length);
        const auto bytes = key.subspan(1 + sizeof length, static_cast<std::size_t>(length));
        key = key.subspan(1 + sizeof length + bytes.size());
        return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    static Namespace decode(std::span<const unsigned char> key) noexcept {
        Namespace name;
        name.adapter = decode_part(key);
        name.version = decode_part(key);
        name.salt = decode_part(key);
        return name;
    }
    static void append_part(Key& key, const std::optional<std::string_view>& part) {
        key.push_back(part ? 1 : 0);
        if (!part) return;
        const std::uint64_t length = part->size();
        unsigned char length_bytes[sizeof length];
        std::memcpy(length_bytes, &length, sizeof length);
        key.insert(key.end(), length_bytes, length_bytes + sizeof length);
        key.insert(key.end(), part->begin(), part->end());
    }
    static Key encode(const Namespace& name) {
        Key key;
        append_part(key, name.adapter);
        append_part(key, name.version);
        append_part(key, name.salt);
        return key;
    }
    static std::uint32_t hash_of(const Namespace& name) noexcept {
        std::uint64_t hash = 0;
        for (const auto& part : {name.adapter, name.version, name.salt}) {
            hash = part ? hash_bytes(reinterpret_cast<const unsigned char*>(part->data()),
                                     part->size(), hash + 1)
                        : hash_round(hash, 0, hash_factor_a);
        }
        return static_cast<std::uint32_t>(hash >> 32);
    }
    /// One more than the index of the entry, 0 if there is none.
    std::uint32_t find_entry(std::uint32_t hash, const Namespace& name) const noexcept {
        return table_.find(hash, [&](std::uint32_t number) noexcept {
            const Namespace there = decode(entries_[number - 1].key);
            return there.adapter == name.adapter && there.version == name.version &&
                   there.salt == name.salt;
        });
    }
    std::vector<Entry> entries_;
    std::vector<std::uint32_t> free_;  // numbers of free entries
    ChildTable table_;
};

}  // namespace kvstem
