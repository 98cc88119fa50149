// SPDX-License-Identifier: MIT
// PrefixCachedEngine: any engine, and the prompt tokens it has computed before are not computed
// again.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "audit.hpp"
#include "config.hpp"
#include "detail/paged_form.hpp"
#include "detail/row_form.hpp"
#include "detail/state_form.hpp"
#include "engine_concepts.hpp"
#include "errors.hpp"
#include "namespace.hpp"
#include "prefix_cache.hpp"
#include "reference/sampler.hpp"  // stands alone: it brings no part of the decoder
#include "token.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// What one call of `generate` is asked for. Nothing of it outlives the call.
struct GenerateParams {
    std::size_t max_new_tokens = 16;  ///< 0: the prompt is computed and cached, nothing is sampled
    /// Of a sampler made for this call. The default is greedy.
    reference::SamplingParams sampling{};
    std::vector<Token> stop_tokens{};  ///< the answer ends with the first of these
    Namespace key_namespace{};         ///< what besides tokens must agree; read during the call
};

/// Why an answer ended. In a call to which several apply, the first of this order.
enum class FinishReason {
    empty_prompt,  ///< there was nothing to continue
    stop_token,    ///< the last token is one of the stop tokens
    stopped,       ///< the callback asked for it
    length,        ///< as many tokens as were asked for
    context_full,  ///< the last token has no position left from which another could follow
    out_of_pages   ///< a paged engine: no page is free or evictable for the last token's row
};

/// An answer, and what it took.
struct GenerateResult {
    /// The answer, without the prompt. A stop token is the last of them.
    std::vector<Token> tokens{};
    std::size_t reused_tokens = 0;    ///< of the prompt: taken from the cache
    std::size_t computed_tokens = 0;  ///< that went through the engine, of prompt and answer
    FinishReason finish = FinishReason::empty_prompt;
};

/// Plain counters and gauges. Counters only grow, also across `clear_cache`. A call counts once its
/// prompt is computed; one that fails before has not happened.
struct CachedEngineStats {
    std::uint64_t hits = 0;             ///< calls that reused something
    std::uint64_t misses = 0;           ///< calls that reused nothing
    std::uint64_t queried_tokens = 0;   ///< lengths of all prompts = reused_tokens + missed_tokens
    std::uint64_t reused_tokens = 0;    ///< prompt positions taken from the cache
    std::uint64_t missed_tokens = 0;    ///< prompt positions computed
    std::uint64_t computed_tokens = 0;  ///< missed_tokens and the decoded ones
    std::uint64_t stored_blocks = 0;    ///< blocks, pages or snapshots that entered the cache
    std::uint64_t evicted_blocks = 0;   ///< … that left it to make room
    std::size_t blocks = 0;             ///< now
    std::size_t capacity_blocks = 0;    ///< now: the most there can be
    std::size_t bytes = 0;              ///< now: of KV in the cache

    /// The share of prompt tokens that did not have to be computed; 0 before the first call.
    [[nodiscard]] double hit_rate() const noexcept {
        if (queried_tokens == 0) return 0.0;
        return static_cast<double>(reused_tokens) / static_cast<double>(queried_tokens);
    }
};

/// What becomes of the pages behind the window of an engine with a `sliding_window()`.
enum class WindowPages {
    kept,       ///< the whole sequence is cached, answers too, as far as the pages go
    given_back  ///< an answer of any length holds its prompt and a bound; only the prompt is cached
};

/// A paged engine says by itself how many pages it has and how large they are.
struct PagedEngineOptions {
    WindowPages window_pages = WindowPages::kept;  ///< no matter without a sliding window

    [[nodiscard]] bool gives_back() const noexcept {
        return window_pages == WindowPages::given_back;
    }
};

/// How much of the rows of an engine is kept, in copies outside it.
struct RowEngineOptions {
    std::size_t block_tokens = 16;          ///< P: positions that are kept and evicted together
    std::size_t max_blocks = unlimited;     ///< in host memory
    std::size_t max_bytes = 256ull << 20u;  ///< of the rows in them
};

/// How many saved states of an engine are kept; the limit that is reached first counts.
struct StateEngineOptions {
    std::size_t max_snapshots = 64;         ///< each call stores up to two
    std::size_t max_bytes = 256ull << 20u;  ///< of states, logits and tokens
};

/// Whatever may be told of the tokens of an answer as they come. Returning false ends the answer.
template <class OnToken>
concept token_callback = std::invocable<OnToken&, Token> &&
                         (std::is_void_v<std::invoke_result_t<OnToken&, Token>> ||
                          std::convertible_to<std::invoke_result_t<OnToken&, Token>, bool>);

/// Whatever draws a token from the logits of one position (vocab_size).
template <class Draw>
concept token_sampler =
    std::invocable<Draw&, std::span<const float>> &&
    std::convertible_to<std::invoke_result_t<Draw&, std::span<const float>>, Token>;

/// Puts a prefix cache before an engine: `generate` finds the longest cached beginning of a prompt,
/// starts the engine behind it, and keeps what it computes for later calls.
///
/// Choose it when one sequence runs at a time and the engine shall stay as it is. For many at once,
/// hold leases of a RadixCache yourself; reference/batcher.hpp shows how.
///
/// What the engine offers decides how (engine_concepts.hpp has the lists):
///
/// | form  | kept             | reused                         | copied                        |
/// | ----- | ---------------- | ------------------------------ | ----------------------------- |
/// | paged | page groups      | whole pages; with `copy_rows`  | nothing; with `copy_rows` up  |
/// |       |                  | to the token                   | to P − 1 rows                 |
/// | row   | blocks of P rows | to the token                   | each row in, each block out   |
/// | state | each prompt and  | what the engine can cut to;    | states, when saved and loaded |
/// |       | answer, whole    | a whole prompt with its logits |                               |
///
/// The steps of a call, and what is in the cache if the engine, the callback or the sampler throws
/// there:
///
///     find and load │ compute the │ sample │ store the │ decode │ store the
///     the prefix    │ rest        │        │ prompt    │        │ answer
///     ── what was there before; blocks ────────────────►│◄─ the prompt too ─►
///        may have been evicted
///
/// A prompt is stored in whole blocks (whole, as a state) and only when a token could be drawn from
/// its logits; an answer up to the last sampled token, which has no row. Whatever throws passes
/// through; pages and blocks of that call come back, and the next call works. The cache never holds
/// a call up: an engine that owns its KV goes on without caching what has no room. Only a paged
/// engine, whose pages the cache manages, can run out: see FinishReason.
/// Invariant: no call leaves a trace beside the cache and the counters; the sampler is the call's
/// own.
/// Exceptions: InvalidArgument, before anything changes, for a prompt longer than the context or
/// than all pages together, a token outside the vocabulary, sampling parameters out of range, a
/// call from within the callback; for logits or rows of another size than the engine says, and a
/// drawn token outside the vocabulary, with nothing stored. std::bad_alloc.
/// Threads: one at a time.
/// Lifetime: the engine is referred to, because it owns more than this class may know of (a device,
/// a model, a thread pool) and often cannot be moved. It must outlive this object, and its sequence
/// is this object's from call to call only as far as its contract says: others may use it in
/// between, unless it is paged, whose pages belong to the cache.
///
///     kvstem::PrefixCachedEngine cached(engine);
///     auto answer = cached.generate(prompt, {.max_new_tokens = 64, .stop_tokens = {2}});
///     std::printf("%zu of %zu tokens reused\n", answer.reused_tokens, prompt.size());
template <cacheable_engine Engine>
class PrefixCachedEngine {
  public:
    static constexpr EngineForm form = engine_form<Engine>;
    using Tokens = std::span<const Token>;
    using Options = std::conditional_t<
        form == EngineForm::paged, PagedEngineOptions,
        std::conditional_t<form == EngineForm::row, RowEngineOptions, StateEngineOptions>>;

    /// Throws: InvalidArgument for a cache that is too small for one block, and for blocks of no
    /// size.
    explicit PrefixCachedEngine(Engine& engine, Options options = {})
        : engine_(engine), form_(engine, options) {}
    PrefixCachedEngine(const PrefixCachedEngine&) = delete;
    PrefixCachedEngine& operator=(const PrefixCachedEngine&) = delete;
    ~PrefixCachedEngine() = default;

    /// Continues a prompt. An empty one has an empty answer.
    GenerateResult generate(Tokens prompt, const GenerateParams& params = {}) {
        return generate(prompt, params, [](Token) noexcept {});
    }
    /// The same, telling the callback each token of the answer as it is drawn.
    template <token_callback OnToken>
    GenerateResult generate(Tokens prompt, const GenerateParams& params, OnToken&& on_token) {
        reference::Sampler sampler(params.sampling);
        return generate(prompt, params, on_token,
                        [&](std::span<const float> logits) { return sampler.sample(logits); });
    }
    /// The same with a sampler of one's own, in place of `params.sampling`.
    template <token_callback OnToken, token_sampler Draw>
    GenerateResult generate(Tokens prompt, const GenerateParams& params, OnToken&& on_token,
                            Draw&& draw);

    /// How many leading tokens of a prompt a call would not compute, without any effect. Whole
    /// blocks; a call may find a part of one more.
    [[nodiscard]] std::size_t peek(Tokens prompt, const Namespace& name = {}) const noexcept {
        return form_.peek(prompt, name);
    }

    /// Empties the cache; the counters stay. A call that is running stores nothing any more.
    void clear_cache() noexcept {
        ++clearings_;
        form_.clear();
    }
    /// The same for one namespace. Returns how many blocks, pages or snapshots left.
    std::size_t drop(const Namespace& name) noexcept {
        ++clearings_;
        return form_.drop(name);
    }

    [[nodiscard]] const Engine& engine() const noexcept { return engine_; }
    [[nodiscard]] CachedEngineStats stats() const noexcept {
        CachedEngineStats stats = counters_;
        form_.fill_in(stats);
        return stats;
    }

    /// Checks every invariant from raw state. O(everything).
    [[nodiscard]] AuditReport audit() const {
        AuditReport report = form_.audit();
        report.require(
            counters_.reused_tokens + counters_.missed_tokens == counters_.queried_tokens,
            "reused tokens + missed tokens is not queried tokens", counters_.queried_tokens);
        return report;
    }

  private:
    using Form =
        std::conditional_t<form == EngineForm::paged, detail::PagedForm<Engine>,
                           std::conditional_t<form == EngineForm::row, detail::RowForm<Engine>,
                                              detail::StateForm<Engine>>>;
    using Request = typename Form::Request;

    /// One call at a time: a second one, from a callback, would overwrite the first one's rows.
    class Running {
      public:
        explicit Running(bool& running) : running_(running) {
            if (running) {
                detail::fail<InvalidArgument>("generate was called from within its own callback");
            }
            running_ = true;
        }
        Running(const Running&) = delete;
        Running& operator=(const Running&) = delete;
        ~Running() { running_ = false; }

      private:
        bool& running_;
    };

    void check_prompt(Tokens prompt) const;
    void compute(Request& request, Tokens tokens, std::size_t start);
    template <class Draw>
    [[nodiscard]] Token drawn_by(Draw& draw) const;
    template <class OnToken>
    [[nodiscard]] static bool goes_on(OnToken& on_token, Token token);
    template <class OnToken, class Draw>
    [[nodiscard]] FinishReason decode(Request& request, const GenerateParams& params,
                                      OnToken& on_token, Draw& draw, GenerateResult& result);
    void store(Request& request, const GenerateParams& params, std::uint64_t clearings);

    Engine& engine_;
    Form form_;
    CachedEngineStats counters_;  // its gauges are filled in by `stats`
    std::uint64_t clearings_ = 0;
    bool running_ = false;

    // Of the call that is running.
    std::vector<Token> sequence_;  // the tokens whose rows the engine holds
    std::vector<float> logits_;    // after the last of them
};

}  // namespace kvstem

#include "detail/prefix_cached_engine.hpp"
