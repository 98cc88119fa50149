// SPDX-License-Identifier: MIT
// The slow side of the table: the same workloads on the cache that one writes first. Rows of the id
// `naive`; no targets. Where a size would take minutes it is smaller, and the row says so.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench.hpp"

namespace bench {
namespace {

/// A list of whole sequences. A lookup compares the prompt with each of them, a hit clones what the
/// best one holds, and making room looks for the oldest by looking at all.
class NaiveCache {
  public:
    explicit NaiveCache(std::size_t capacity_tokens) : capacity_(capacity_tokens) {}

    struct Match {
        std::size_t entry = 0;
        std::size_t tokens = 0;
    };
    [[nodiscard]] Match peek(View prompt) const {
        Match best;
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            const Tokens& tokens = entries_[i].tokens;
            const auto end =
                std::mismatch(prompt.begin(), prompt.end(), tokens.begin(), tokens.end());
            const auto equal = static_cast<std::size_t>(end.first - prompt.begin());
            if (equal > best.tokens) best = {i, equal};
        }
        return best;
    }
    /// The rows of the matched tokens, here one number each; a KV would be thousands of bytes each.
    [[nodiscard]] std::vector<std::uint32_t> clone(const Match& match) {
        if (match.tokens == 0) return {};
        Entry& entry = entries_[match.entry];
        entry.used = ++clock_;
        return {entry.rows.begin(), entry.rows.begin() + static_cast<std::ptrdiff_t>(match.tokens)};
    }
    void store(View tokens, std::vector<std::uint32_t> rows) {
        while (size_ + tokens.size() > capacity_) evict();
        entries_.push_back({Tokens(tokens.begin(), tokens.end()), std::move(rows), ++clock_});
        size_ += tokens.size();
    }
    void evict() {
        const auto oldest =
            std::min_element(entries_.begin(), entries_.end(),
                             [](const Entry& a, const Entry& b) { return a.used < b.used; });
        size_ -= oldest->tokens.size();
        *oldest = std::move(entries_.back());
        entries_.pop_back();
    }
    void serve(View prompt) {
        std::vector<std::uint32_t> rows = clone(peek(prompt));
        rows.resize(prompt.size());
        store(prompt, std::move(rows));
    }

  private:
    struct Entry {
        Tokens tokens;
        std::vector<std::uint32_t> rows;
        std::uint64_t used;
    };
    std::size_t capacity_;
    std::size_t size_ = 0;
    std::uint64_t clock_ = 0;
    std::vector<Entry> entries_;
};

/// The long sequence among 1,000 others that begin otherwise.
void naive_long(Bench& bench) {
    Random random(7);
    NaiveCache cache(10'000'000);
    const std::size_t others = bench.scaled(1000);
    for (std::size_t i = 0; i < others; ++i) cache.store(random.tokens(4096), {});
    const Tokens prompt = random.tokens(131'072);
    const Tokens copy = prompt;
    cache.store(prompt, {});
    const auto medians =
        alternate(bench.rounds(9), {[&] { return time([&] { keep(compare(prompt, copy)); }); },
                                    [&] { return time([&] { keep(cache.peek(prompt)); }); }});
    bench.add({"naive", "long-hot", medians[1] * 1e6, medians[0] * 1e6, "us", "floor"});
}

/// A tenth of the wide tree, inserted without looking up: that alone would take an hour.
void naive_wide(Bench& bench) {
    const Wide wide(bench.scaled(100'000), bench.scaled(100));
    NaiveCache cache(wide.tokens.size());
    for (std::size_t i = 0; i < wide.size; ++i) cache.store(wide[i], {});
    Random random(5);
    const auto match = [&] {
        constexpr int peeks = 20;
        return time([&] {
                   for (int i = 0; i < peeks; ++i) keep(cache.peek(wide[random.below(wide.size)]));
               }) /
               peeks;
    };
    const auto evict = [&] {
        constexpr int evictions = 100;
        const Seconds seconds = time([&] {
                                    for (int i = 0; i < evictions; ++i) cache.evict();
                                }) /
                                evictions;
        for (std::size_t i = 0; i < evictions; ++i) cache.store(wide[i], {});
        return seconds;
    };
    const auto medians =
        alternate(bench.rounds(9), {[&] { return bench.latency.measure(); }, match, evict});
    const std::string size = std::to_string(wide.size) + " sequences";
    bench.add({"naive", "wide-match, " + size, medians[1] * 1e9, medians[0] * 1e9, "ns", "L"});
    bench.add({"naive", "evict, " + size, medians[2] * 1e9, medians[0] * 1e9, "ns", "L"});
}

/// The first hundredth of the requests, on the whole capacity. Without sharing, that holds some 700
/// sequences.
void naive_chat(Bench& bench) {
    const std::size_t requests = bench.scaled(1000);
    const Chat chat(bench.scaled(20'000), requests * 2);
    const ChatCopy copy(chat);
    NaiveCache cache(bench.scaled(2'000'000));
    for (std::size_t i = 0; i < requests; ++i) cache.serve(chat.prompt(chat.requests[i]));
    const auto floor = [&] {
        return time([&] {
            for (std::size_t i = requests; i < 2 * requests; ++i) {
                keep(copy.compare_with(chat.requests[i]));
            }
        });
    };
    const auto serve_all = [&] {
        return time([&] {
            for (std::size_t i = requests; i < 2 * requests; ++i) {
                cache.serve(chat.prompt(chat.requests[i]));
            }
        });
    };
    const auto medians = alternate(bench.rounds(3), {floor, serve_all});
    bench.add({"naive", "chat, " + std::to_string(requests) + " requests", medians[1] * 1e3,
               medians[0] * 1e3, "ms", "floor"});
}

}  // namespace

void naive_rows(Bench& bench) {
    if (!bench.wants({"naive"})) return;
    naive_long(bench);
    naive_wide(bench);
    naive_chat(bench);
}

}  // namespace bench
