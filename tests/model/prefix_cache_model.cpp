// SPDX-License-Identifier: MIT
// PrefixCache against a list that is scanned, over thousands of random operation sequences, with an
// audit and a comparison of everything visible after every step.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kvstem/prefix_cache.hpp"
#include "support/archetypes.hpp"
#include "support/choices.hpp"
#include "support/counting_kv.hpp"
#include "support/fuzz_test.hpp"
#include "support/naive_prefix_cache.hpp"
#include "support/test_scale.hpp"

using kvstem::Namespace;
using kvstem::StoreOutcome;
using namespace kvstem_test;

namespace {

/// One run: a cache and its model, the same operations on both.
template <class Kv>
class Run {
  public:
    explicit Run(Choices& choices)
        : choices_(choices),
          alphabet_(1 + below(3)),
          longest_(4 + below(14)),
          names_(1 + below(4)),
          capacity_(random_capacity()),
          cache_(capacity_),
          model_{{}, capacity_} {}

    /// What differed first; null if nothing did.
    const char* play() {
        choices_.log << "max_entries " << capacity_.max_entries << ", max_bytes "
                     << capacity_.max_bytes << '\n';
        while (choices_.left()) {
            const char* fault = step();
            if (fault == nullptr) fault = compare();
            if (fault != nullptr) return fault;
        }
        return drain();
    }

  private:
    std::size_t below(std::size_t n) { return choices_.below(n); }

    kvstem::SnapshotCapacity random_capacity() {
        kvstem::SnapshotCapacity capacity{.max_entries = below(12)};
        if (below(2) == 0) capacity.max_bytes = below(400);
        if (below(4) == 0) capacity.max_entries = kvstem::unlimited;
        return capacity;
    }

    static Namespace name_of(std::size_t name) {
        const std::array<Namespace, 4> names{
            Namespace{}, {.adapter = "X"}, {.salt = "X"}, {.adapter = "X", .version = ""}};
        return names[name];
    }

    /// A random sequence; often one that is stored, cut and continued, so that prefixes collide.
    Tokens random_tokens() {
        Tokens tokens;
        if (!model_.entries.empty() && below(2) == 0) {
            tokens = model_.entries[below(model_.entries.size())].tokens;
            if (below(2) == 0) tokens.resize(below(tokens.size() + 1));
        }
        for (std::size_t n = below(below(2) == 0 ? 3 : longest_); n > 0; --n) {
            tokens.push_back(static_cast<kvstem::Token>(below(alphabet_)));
        }
        if (tokens.size() > longest_) tokens.resize(longest_);
        return tokens;
    }

    void log(const char* operation, const Tokens& tokens, std::size_t name) {
        choices_.log << operation;
        for (const auto token : tokens) choices_.log << ' ' << token;
        if (name != 0) choices_.log << "  in namespace " << name;
        choices_.log << '\n';
    }

    const char* step() {
        const std::size_t name = below(names_);
        switch (below(16)) {
            case 0:
                choices_.log << "evict\n";
                return cache_.evict() == model_.evict() ? nullptr : "evict: another answer";
            case 1:
                if (below(6) != 0) return nullptr;
                choices_.log << "clear\n";
                cache_.clear();
                model_.entries.clear();
                return nullptr;
            case 2:
                if (below(3) != 0) return nullptr;
                log("drop", {}, name);
                return cache_.drop(name_of(name)) == model_.drop(name) ? nullptr
                                                                       : "drop: another count";
            case 3:
            case 4:
            case 5:
            case 6:
            case 7:
                return store(random_tokens(), name);
            case 8:
            case 9:
            case 10:
                return look_up(random_tokens(), name, true);
            default:
                return look_up(random_tokens(), name, !kvstem::copyable_kv_snapshot<Kv>);
        }
    }

    const char* store(const Tokens& tokens, std::size_t name) {
        std::optional<std::vector<float>> logits;
        if (below(4) != 0) logits.emplace(below(3), static_cast<float>(++stores_));
        const StoreOutcome expected =
            model_.store(tokens, tokens.size() * Kv::bytes_per_position, logits, name);
        Kv kv(tokens);
        if constexpr (std::copy_constructible<Kv>) {
            if (below(2) == 0) {
                log("store a copy", tokens, name);
                const auto outcome = cache_.store(tokens, std::as_const(kv), logits, name_of(name));
                if (kv.length() != tokens.size()) return "store: the source was changed";
                return outcome == expected ? nullptr : "store: another outcome";
            }
        }
        log("store", tokens, name);
        const auto outcome = cache_.store(tokens, std::move(kv), std::move(logits), name_of(name));
        return outcome == expected ? nullptr : "store: another outcome";
    }

    const char* look_up(const Tokens& prompt, std::size_t name, bool take) {
        log(take ? "take" : "acquire", prompt, name);
        const auto expected = model_.look_up(prompt, name, take);
        std::optional<typename kvstem::PrefixCache<Kv>::Hit> hit;
        if constexpr (kvstem::copyable_kv_snapshot<Kv>) {
            if (!take) hit = cache_.acquire(prompt, name_of(name));
        }
        if (take) hit = cache_.take(prompt, name_of(name));
        if (hit.has_value() != expected.has_value()) return "a hit for a miss or a miss for a hit";
        if (!hit) return nullptr;
        if (hit->tokens != expected->tokens) return "another length";
        if (hit->moved != expected->moved) return "moved for copied or copied for moved";
        if (hit->logits != expected->logits) return "other logits";
        const auto matched = static_cast<std::ptrdiff_t>(expected->tokens);
        if (hit->kv.rows() != Tokens(prompt.begin(), prompt.begin() + matched)) {
            return "the KV is not that of the matched tokens";
        }
        return nullptr;
    }

    const char* compare_peek(const Tokens& prompt, std::size_t name) {
        const auto expected = model_.locate(prompt, name);
        const auto match = cache_.peek(prompt, name_of(name));
        if (match.tokens != expected.tokens) return "peek: another length";
        const bool has_logits = expected.whole && model_.entries[expected.entry].logits.has_value();
        return match.has_logits == has_logits ? nullptr : "peek: logits for none or none for some";
    }

    const char* compare() {
        const kvstem::AuditReport report = cache_.audit();
        if (!report.ok()) return report.findings.front().what;
        if (cache_.size() != model_.entries.size()) return "another number of entries";
        const kvstem::PrefixCacheStats a = cache_.stats();
        const kvstem::PrefixCacheStats& b = model_.stats;
        if (a.bytes != model_.bytes()) return "another number of bytes";
        if (a.hits != b.hits || a.misses != b.misses || a.taken != b.taken) return "other hits";
        if (a.queried_tokens != b.queried_tokens || a.hit_tokens != b.hit_tokens ||
            a.missed_tokens != b.missed_tokens) {
            return "other token counts";
        }
        if (a.stored != b.stored || a.replaced != b.replaced || a.refused != b.refused) {
            return "other store counts";
        }
        if (a.evictions != b.evictions) return "another number of evictions";
        for (const auto& entry : model_.entries) {
            if (const char* fault = compare_peek(entry.tokens, entry.name)) return fault;
        }
        return compare_peek(random_tokens(), below(names_));
    }

    /// Evicts all there is: the order of use was the same.
    const char* drain() {
        while (model_.evict()) {
            choices_.log << "evict\n";
            if (!cache_.evict()) return "evict: nothing left";
            if (const char* fault = compare()) return fault;
        }
        return cache_.stats().namespaces == 0 ? nullptr : "an empty namespace is left";
    }

    Choices& choices_;
    std::size_t alphabet_;
    std::size_t longest_;
    std::size_t names_;
    kvstem::SnapshotCapacity capacity_;
    kvstem::PrefixCache<Kv> cache_;
    NaivePrefixCache<Kv> model_;
    std::size_t stores_ = 0;
};

template <class Kv>
const char* run(Choices& choices) {
    return Run<Kv>(choices).play();
}

const char* play(Choices& choices) {
    const std::array<Body, 8> kinds{run<CountingKv>,     run<PrefixKv>,       run<WholeKv>,
                                    run<MoveOnlyKv>,     run<PrefixOnlyKv>,   run<WindowKv<4>>,
                                    run<WindowKv<3, 7>>, run<CheckpointKv<3>>};
    return kinds[choices.below(kinds.size())](choices);
}

}  // namespace

KVSTEM_FUZZ_TEST(prefix_cache, play, 2080 * test_scale(), 1600,
                 "PrefixCache does what a scanned list does, for every kind of KV",
                 "[S1][S2][S3][S4][S5][S6][S7][S8][S9][M2][M7][C1][R2]")
