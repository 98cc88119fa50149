// SPDX-License-Identifier: MIT
// RunStore against a map of what each run holds, with moving, cutting and dropping.

#include "kvstem/detail/run_store.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "catch.hpp"
#include "kvstem/token.hpp"
#include "support/fail_allocation.hpp"

using kvstem::PageId;
using kvstem::Token;
using kvstem::detail::NoValue;
using kvstem::detail::RunStore;
using kvstem_test::with_failing_allocation;

namespace {

/// A store and what it should hold. Each run's content follows from its number; the run's
/// `deepest_node` carries that number, as the tree lets it carry a node.
template <class Value>
class Checked {
  public:
    using Store = RunStore<Token, Value>;
    using Run = typename Store::Run;

    explicit Checked(std::size_t page_tokens) : store(page_tokens), page_tokens_(page_tokens) {}

    void allocate(std::uint32_t pages) {
        Run* run = store.allocate(pages);
        const auto number = static_cast<std::uint32_t>(runs_.size());
        run->deepest_node = number;
        for (std::size_t i = 0; i < pages * page_tokens_; ++i) run->tokens()[i] = token(number, i);
        if constexpr (!std::is_empty_v<Value>) {
            for (std::uint32_t i = 0; i < pages; ++i) store.values(run)[i] = value(number, i);
        }
        runs_.push_back({run, pages});
        alive_.push_back(number);
    }
    void shrink(std::size_t index, std::uint32_t pages) {
        const std::uint32_t number = alive_[index];
        store.shrink(runs_[number].run, pages);
        runs_[number].pages = pages;
        if (pages != 0) return;
        alive_[index] = alive_.back();
        alive_.pop_back();
    }
    void clean() {
        store.clean([this](Run* old, Run* now) noexcept {
            Held& held = runs_[now->deepest_node];
            misplaced_ += held.run == old ? 0U : 1U;
            held.run = now;
            ++moved;
        });
    }
    [[nodiscard]] std::uint32_t pages(std::size_t index) const {
        return runs_[alive_[index]].pages;
    }
    [[nodiscard]] std::size_t alive() const { return alive_.size(); }

    [[nodiscard]] bool intact() const {
        if (misplaced_ != 0) return false;
        return std::all_of(alive_.begin(), alive_.end(), [this](std::uint32_t number) {
            const Held& held = runs_[number];
            if (held.run->live_pages != held.pages || held.run->deepest_node != number)
                return false;
            for (std::size_t i = 0; i < held.pages * page_tokens_; ++i) {
                if (held.run->tokens()[i] != token(number, i)) return false;
            }
            if constexpr (!std::is_empty_v<Value>) {
                for (std::uint32_t i = 0; i < held.pages; ++i) {
                    if (store.values(held.run)[i] != value(number, i)) return false;
                }
            }
            return true;
        });
    }
    /// What the live runs need at least.
    [[nodiscard]] std::size_t content_bytes() const {
        std::size_t bytes = 0;
        for (const std::uint32_t number : alive_) {
            bytes += runs_[number].pages *
                     (page_tokens_ * sizeof(Token) + (std::is_empty_v<Value> ? 0 : sizeof(Value)));
        }
        return bytes;
    }

    Store store;
    std::size_t moved = 0;

  private:
    struct Held {
        Run* run;
        std::uint32_t pages;
    };
    static Token token(std::uint32_t number, std::size_t i) {
        return static_cast<Token>(number * 31 + i * 7);
    }
    static Value value(std::uint32_t number, std::uint32_t i) { return Value{number * 1000 + i}; }

    std::size_t page_tokens_;
    std::vector<Held> runs_;
    std::vector<std::uint32_t> alive_;
    std::size_t misplaced_ = 0;
};

template <class Value>
void exercise(unsigned seed, std::size_t page_tokens, std::uint32_t longest, int steps) {
    std::mt19937 random(seed);
    Checked<Value> checked(page_tokens);
    for (int step = 0; step < steps; ++step) {
        const bool growing = step / (steps / 4) % 2 == 0;
        if (checked.alive() == 0 || random() % 10 < (growing ? 6U : 3U)) {
            checked.allocate(1 + static_cast<std::uint32_t>(random()) % longest);
        } else {
            const std::size_t index = random() % checked.alive();
            const std::uint32_t pages = checked.pages(index);
            checked.shrink(index,
                           random() % 2 == 0 ? 0 : static_cast<std::uint32_t>(random()) % pages);
        }
        if (random() % 2 == 0) checked.clean();
        if (step % 200 == 0) REQUIRE(checked.intact());
        REQUIRE(checked.store.live_bytes() <= checked.store.held_bytes());
    }
    CHECK(checked.intact());
    CHECK(checked.moved > 0);
    while (checked.alive() != 0) checked.shrink(0, 0);
    CHECK(checked.store.live_bytes() == 0);
    CHECK(checked.store.held_bytes() <= 256 * 1024);  // the segment that new runs go to
}

}  // namespace

TEST_CASE("runs keep their tokens and values while others come and go and they are moved") {
    const auto seed = GENERATE(1U, 2U);
    SECTION("short runs of single tokens") {
        exercise<PageId>(seed, 1, 200, 12000);
    }
    SECTION("pages of 16") {
        exercise<PageId>(seed, 16, 40, 4000);
    }
    SECTION("runs with segments of their own") {
        exercise<PageId>(seed, 16, 1500, 1200);
    }
    SECTION("values of 8 bytes") {
        exercise<std::uint64_t>(seed, 4, 100, 4000);
    }
    SECTION("without values") {
        exercise<NoValue>(seed, 4, 100, 6000);
    }
}

TEST_CASE("a run without values takes no room for them") {
    RunStore<Token, NoValue> bare(1);
    RunStore<Token, PageId> with(1);
    (void)bare.allocate(4000);
    (void)with.allocate(4000);
    CHECK(bare.live_bytes() == 16 + 4000 * 4);
    CHECK(with.live_bytes() == 16 + 4000 * 8);
}

TEST_CASE("runs and what is behind them are aligned to 16 bytes and do not overlap") {
    RunStore<std::uint8_t, std::uint64_t> store(3);
    std::vector<RunStore<std::uint8_t, std::uint64_t>::Run*> runs;
    for (std::uint32_t pages = 1; pages < 200; ++pages) {
        auto* run = store.allocate(pages);
        CHECK(reinterpret_cast<std::uintptr_t>(run) % 16 == 0);
        CHECK(reinterpret_cast<std::uintptr_t>(store.values(run)) % alignof(std::uint64_t) == 0);
        CHECK(reinterpret_cast<std::byte*>(store.values(run)) >=
              reinterpret_cast<std::byte*>(run->tokens() + 3 * pages));
        std::fill_n(run->tokens(), 3 * pages, static_cast<std::uint8_t>(pages));
        std::fill_n(store.values(run), pages, pages);
        runs.push_back(run);
    }
    for (std::uint32_t pages = 1; pages < 200; ++pages) {
        auto* run = runs[pages - 1];
        CHECK(std::count(run->tokens(), run->tokens() + 3 * pages,
                         static_cast<std::uint8_t>(pages)) == 3 * pages);
        CHECK(std::count(store.values(run), store.values(run) + pages, pages) == pages);
    }
}

TEST_CASE("cutting many long runs short lets the held bytes follow the live ones", "[C07]") {
    Checked<PageId> checked(1);
    for (int i = 0; i < 200; ++i) checked.allocate(4000);  // 32 KB each
    const std::size_t peak = checked.store.held_bytes();
    for (std::size_t i = 0; i < 200; ++i) {
        checked.shrink(i, 40);
        checked.clean();
    }
    for (int i = 0; i < 50; ++i) checked.clean();
    CHECK(checked.intact());
    CHECK(checked.moved > 100);
    CHECK(checked.content_bytes() == 200 * 40 * 8);
    CHECK(checked.store.held_bytes() < peak / 8);
}

TEST_CASE("cleaning moves at most three bytes for each one that was added or dropped") {
    Checked<PageId> checked(16);
    std::mt19937 random(3);
    std::size_t work = 0;
    for (int step = 0; step < 5000; ++step) {
        const std::size_t before = checked.store.live_bytes();
        if (checked.alive() < 400) {
            checked.allocate(20);
        } else {
            checked.shrink(random() % checked.alive(), 0);
        }
        const std::size_t after = checked.store.live_bytes();
        work += after > before ? after - before : before - after;
        checked.clean();
    }
    CHECK(checked.moved * (16 + 20 * 68) <= 3 * work);
    CHECK(checked.intact());
}

TEST_CASE("which page counts can be addressed is known before anything is allocated", "[R3]") {
    CHECK(RunStore<Token, PageId>(1).fits(SIZE_MAX / 4 / 8 < 1'000'000'000 ? 100'000'000
                                                                           : 1'000'000'000));
    CHECK_FALSE(RunStore<Token, PageId>(1).fits(0xFFFF'FFFFu));
    CHECK_FALSE(RunStore<Token, PageId>(SIZE_MAX).fits(1));
    CHECK_FALSE(RunStore<Token, PageId>(SIZE_MAX / 4).fits(1));
    CHECK_FALSE(RunStore<Token, PageId>(SIZE_MAX >> 24).fits(std::uint64_t{1} << 30));
}

TEST_CASE("a run store without memory says so and has changed nothing", "[R1]") {
    Checked<PageId> checked(4);
    std::mt19937 random(5);
    std::size_t fired = 0;
    std::size_t failed_moves = 0;
    for (int step = 0; step < 3000; ++step) {
        const std::uint32_t pages = 1 + static_cast<std::uint32_t>(random()) % 600;
        const std::size_t live = checked.store.live_bytes();
        const std::size_t held = checked.store.held_bytes();
        for (std::size_t n = 1; n < 4; ++n) {
            Checked<PageId>::Run* run = nullptr;
            const auto outcome =
                with_failing_allocation(n, [&] { run = checked.store.allocate(pages); });
            REQUIRE(outcome.threw == outcome.fired);
            fired += outcome.fired ? 1 : 0;
            if (run != nullptr) {
                checked.store.shrink(run, 0);
                break;
            }
            REQUIRE(checked.store.live_bytes() == live);
            REQUIRE(checked.store.held_bytes() == held);
        }
        checked.allocate(pages);
        if (checked.alive() > 50) checked.shrink(random() % checked.alive(), 0);
        if (random() % 3 == 0) {
            const auto outcome = with_failing_allocation(1, [&] { checked.clean(); });
            REQUIRE_FALSE(outcome.threw);
            failed_moves += outcome.fired ? 1 : 0;
        }
    }
    CHECK(fired > 10);
    CHECK(failed_moves > 0);
    CHECK(checked.intact());
}
