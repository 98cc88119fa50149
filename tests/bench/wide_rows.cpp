// SPDX-License-Identifier: MIT
// Rows on a tree of many short sequences: wide-match, wide-insert, evict-flat.

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "bench.hpp"

namespace bench {
namespace {

/// Peeks of random sequences. An engine asks for a prompt that it has just tokenised, so the prompt
/// lies in the processor's cache and only the tree does not. Prompts read from the big array would
/// cost a cache and TLB miss of their own, which is none of the cache's business: so 1,000 prompts
/// at a time are copied into one small buffer before the clock starts.
class WideMatch {
  public:
    WideMatch(const Wide& wide, const Cache& cache) : wide_(wide), cache_(cache) {}

    Seconds measure() {
        constexpr int batches = 20;
        Seconds sum = 0;
        for (int batch = 0; batch < batches; ++batch) {
            for (std::size_t i = 0; i < batch_size; ++i) {
                const View prompt = wide_[random_.below(wide_.size)];
                std::copy(prompt.begin(), prompt.end(),
                          prompts_.begin() + static_cast<std::ptrdiff_t>(i * prompt.size()));
            }
            sum += time([&] {
                for (std::size_t i = 0; i < batch_size; ++i) {
                    keep(cache_.peek(
                        View(prompts_).subspan(i * Wide::tokens_each, Wide::tokens_each)));
                }
            });
        }
        return sum / (batches * batch_size);
    }

  private:
    static constexpr std::size_t batch_size = 1000;
    const Wide& wide_;
    const Cache& cache_;
    Random random_{5};
    Tokens prompts_ = Tokens(batch_size * Wide::tokens_each);
};

/// Fills an empty cache; the time per sequence.
Seconds insert_all(Cache& cache, const Wide& wide) {
    return time([&] {
               for (std::size_t i = 0; i < wide.size; ++i) serve(cache, wide[i]);
           }) /
           static_cast<double>(wide.size);
}

/// Page faults so far, those that needed no disk.
std::size_t page_faults() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::size_t>(usage.ru_minflt);
}

/// What the system takes for a page of memory that nobody has touched yet. That differs by machine
/// far more than L does: in a virtual machine where it is nine microseconds, it is about half of
/// wide-insert.
///
/// Huge pages (GLIBC_TUNABLES=glibc.malloc.hugetlb=1) took wide-insert from 5 L to 2 there, as a
/// setting for the whole process. Stores that ask for them on their own were built and dropped: with
/// 2 MB at a time for runs, nodes and child tables, wide-insert took a quarter less, but wide-match,
/// evict-flat and growth took 1.4 to 2 times as long there.
Seconds cost_of_a_page_fault() {
    constexpr std::size_t bytes = 32 * 1024 * 1024;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(memory != MAP_FAILED, "no memory to touch");
    volatile char* place = static_cast<char*>(memory);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t before = page_faults();
    const Seconds touching = time([&] {
        for (std::size_t i = 0; i < bytes; i += page) place[i] = 1;
    });
    const std::size_t faults = page_faults() - before;
    munmap(memory, bytes);
    return touching / static_cast<double>(faults);
}

void match_and_insert(Bench& bench, std::size_t page_tokens) {
    const Wide wide(bench.scaled(1'000'000), bench.scaled(1000));
    const kvstem::RadixCacheOptions options{.page_tokens = page_tokens};
    const std::size_t pages = wide.pages(page_tokens);
    const auto target = page_tokens == 16 ? std::optional(4.0) : std::nullopt;
    const auto latency = [&] { return bench.latency.measure(); };

    if (bench.wants({"wide-insert"})) {
        double faults_each = 0;
        const auto insert = [&] {
            Cache cache(options, kvstem::PagePool(pages));
            const std::size_t before = page_faults();
            const Seconds each = insert_all(cache, wide);
            faults_each =
                static_cast<double>(page_faults() - before) / static_cast<double>(wide.size);
            return each;
        };
        const auto medians = alternate(bench.rounds(3), {latency, insert});
        bench.add({"wide-insert", name_of(page_tokens), medians[1] * 1e9, medians[0] * 1e9, "ns",
                   "L", target});
        bench.add({"wide-insert", name_of(page_tokens) + " page faults in it",
                   cost_of_a_page_fault() * faults_each * 1e9, medians[0] * 1e9, "ns", "L"});
    }
    if (!bench.wants({"wide-match"})) return;
    Cache cache(options, kvstem::PagePool(pages));
    insert_all(cache, wide);
    require(cache.stats().evicted_pages == 0, "the wide tree does not fit");
    WideMatch match(wide, cache);
    const auto medians = alternate(bench.rounds(15), {latency, [&] { return match.measure(); }});
    bench.add({"wide-match", name_of(page_tokens), medians[1] * 1e9, medians[0] * 1e9, "ns", "L",
               target});
}

/// Builds trees of so many leaves, about 1,000 of them on each beginning, and evicts up to half of
/// the leaves, one by one. The time per leaf.
Seconds evict_leaves(const Wide& wide, std::size_t page_tokens) {
    constexpr std::size_t wanted = 10'000;
    const std::size_t from_each = std::min(wide.size / 2, wanted);
    Seconds sum = 0;
    for (std::size_t evicted = 0; evicted < wanted; evicted += from_each) {
        Cache cache({.page_tokens = page_tokens}, kvstem::PagePool(wide.pages(page_tokens)));
        insert_all(cache, wide);
        const std::size_t nodes = cache.stats().nodes;
        sum += time([&] {
            for (std::size_t i = 0; i < from_each; ++i) {
                keep(cache.evict(Wide::own_pages(page_tokens)));
            }
        });
        require(cache.stats().nodes == nodes - from_each, "a leaf was not evicted as a whole");
    }
    return sum / wanted;
}

/// The yardstick is the smallest tree, which lies in the processor's cache as a whole, so the ratio
/// is what a larger tree costs, by its depth of structure and by its misses.
void evict_flat(Bench& bench, std::size_t page_tokens) {
    if (!bench.wants({"evict-flat"})) return;
    constexpr std::array<std::size_t, 4> sizes = {1000, 10'000, 100'000, 1'000'000};
    std::list<Wide> trees;
    std::vector<std::function<Seconds()>> actions;
    for (const std::size_t leaves : sizes) {
        if (bench.quick && leaves > 100'000) continue;
        const Wide& wide = trees.emplace_back(leaves, leaves / 1000);
        actions.emplace_back([&wide, page_tokens] { return evict_leaves(wide, page_tokens); });
    }
    const auto medians = alternate(bench.rounds(5), actions);
    std::size_t i = 0;
    for (const Wide& wide : trees) {
        const bool largest = &wide == &trees.back();
        bench.add({"evict-flat", name_of(page_tokens) + " " + std::to_string(wide.size) + " leaves",
                   medians[i++] * 1e9, medians[0] * 1e9, "ns", "1000 leaves",
                   largest && page_tokens == 16 ? std::optional(2.5) : std::nullopt});
    }
}

}  // namespace

void wide_rows(Bench& bench) {
    for (const std::size_t page_tokens : page_sizes) {
        if (bench.wants({"wide-match", "wide-insert"})) match_and_insert(bench, page_tokens);
    }
    for (const std::size_t page_tokens : page_sizes) evict_flat(bench, page_tokens);
}

}  // namespace bench
