// SPDX-License-Identifier: MIT
// PrefixCachedEngine against the engine alone, over random calls that fail, stop and clear half-way,
// with an audit and a comparison of everything visible after every call.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "kvstem/prefix_cached_engine.hpp"
#include "kvstem/window.hpp"
#include "support/choices.hpp"
#include "support/fuzz_test.hpp"
#include "support/naive_reuse.hpp"
#include "support/test_scale.hpp"
#include "support/toy_engines.hpp"

using kvstem::EngineForm;
using kvstem::FinishReason;
using kvstem::Namespace;
using kvstem::PrefixCachedEngine;
using kvstem::Token;
using namespace kvstem_test;

namespace {

/// A paged engine all of whose rows and logits depend on the last W positions and on no other.
struct ToyWindowEngine : ToyPagedEngine {
    using ToyPagedEngine::ToyPagedEngine;
    std::size_t window = 3;

    [[nodiscard]] std::size_t sliding_window() const noexcept { return window; }
    std::vector<float> forward(std::span<const Token> tokens, std::size_t start,
                               std::span<const kvstem::PageId> table) {
        const auto row = [&](std::size_t position) -> Row& {
            return rows.at(index_of(table[position / page_size]) * page_size +
                           position % page_size);
        };
        const auto seen_from = [&](std::size_t position, std::size_t end) {
            Row all = 0;
            for (std::size_t p = kvstem::first_position_in_window(position, window); p < end; ++p)
                all = stir(all + row(p));
            return all;
        };
        for (std::size_t p = start; p < start + tokens.size(); ++p) {
            step();
            row(p) = next_row(seen_from(p, p), tokens[p - start]);
        }
        computed += tokens.size();
        Row all = seen_from(start + tokens.size() - 1, start + tokens.size());
        std::vector<float> logits(vocabulary);
        for (float& logit : logits) {
            all = stir(all + 1);
            logit = static_cast<float>(all >> 44u) / 131072.0f;
        }
        return logits;
    }
};

struct CallbackFailed : std::exception {};

/// One run: an engine with its cache, and the engine alone.
template <class Engine>
class Run {
  public:
    explicit Run(Choices& choices)
        : choices_(choices),
          block_tokens_(1 + below(4)),
          blocks_(1 + below(below(2) == 0 ? 6 : 40)),
          engine_(make_engine()),
          cached_(engine_, make_options()),
          model_{keeps(), block_tokens_, is_paged ? unlimited : blocks_, most_cut_rows()} {}

    const char* play() {
        choices_.log << blocks_ << " blocks of " << block_tokens_ << ", context " << engine_.context
                     << ", vocabulary " << engine_.vocabulary << '\n';
        while (choices_.left()) {
            const char* fault = step();
            if (fault == nullptr) fault = compare();
            if (fault != nullptr) return fault;
        }
        return nullptr;
    }

  private:
    static constexpr EngineForm form = kvstem::engine_form<Engine>;
    static constexpr bool is_paged = form == EngineForm::paged;
    static constexpr bool has_window = kvstem::has_sliding_window<Engine>;
    static constexpr bool copies_pages = is_paged && kvstem::has_copy_rows<Engine>;
    static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

    /// What a call is asked for, and what comes in its way.
    struct Call {
        Tokens prompt;
        std::size_t name = 0;
        std::size_t new_tokens = 0;
        kvstem::reference::SamplingParams sampling{};
        Tokens stops{};
        enum class Event { none, stop, fail, clear, drop } event = Event::none;
        std::size_t event_at = 0;  // the token of the answer at which it happens
        std::size_t event_name = 0;
    };
    struct Answer {
        Tokens tokens{};
        FinishReason finish = FinishReason::empty_prompt;
    };

    std::size_t below(std::size_t n) { return choices_.below(n); }

    Engine make_engine() {
        Engine engine = [&] {
            if constexpr (is_paged) {
                return Engine(blocks_, block_tokens_);
            } else {
                return Engine();
            }
        }();
        engine.context = 12 + below(40);
        engine.vocabulary = 2 + below(4);
        if constexpr (has_window) engine.window = 1 + below(7);
        if constexpr (form == EngineForm::state) {
            engine.cuts = static_cast<ToyStateEngine::Cuts>(below(3));
        }
        return engine;
    }
    typename PrefixCachedEngine<Engine>::Options make_options() {
        typename PrefixCachedEngine<Engine>::Options options{};
        if constexpr (form == EngineForm::row) {
            options.block_tokens = block_tokens_;
            options.max_blocks = blocks_;
        } else if constexpr (form == EngineForm::state) {
            options.max_snapshots = blocks_;
        } else {
            gives_back_ = has_window && below(4) != 0;
            if (gives_back_) options.window_pages = kvstem::WindowPages::given_back;
        }
        return options;
    }
    static NaiveReuse::Keeps keeps() {
        if (form == EngineForm::state) return NaiveReuse::Keeps::states;
        return is_paged && !copies_pages ? NaiveReuse::Keeps::pages : NaiveReuse::Keeps::rows;
    }
    [[nodiscard]] std::size_t most_cut_rows() const {
        if constexpr (form == EngineForm::state) {
            if (engine_.cuts == ToyStateEngine::Cuts::nowhere) return 0;
            if (engine_.cuts == ToyStateEngine::Cuts::last_four) return 4;
        }
        return unlimited;
    }
    [[nodiscard]] std::size_t pages_for(std::size_t tokens) const {
        return (tokens + block_tokens_ - 1) / block_tokens_;
    }
    static Namespace name_of(std::size_t name) {
        const std::array<Namespace, 3> names{Namespace{}, {.adapter = "X"}, {.salt = "X"}};
        return names[name];
    }

    /// Often what was kept, cut and continued.
    Tokens random_prompt() {
        Tokens tokens;
        if (!model_.kept.empty() && below(4) != 0) {
            tokens = model_.kept[below(model_.kept.size())].tokens;
            if (below(2) == 0) tokens.resize(below(tokens.size() + 1));
        }
        for (std::size_t n = below(below(2) == 0 ? 4 : engine_.context); n > 0; --n) {
            tokens.push_back(static_cast<Token>(below(engine_.vocabulary)));
        }
        if (tokens.size() > engine_.context && below(20) != 0) tokens.resize(engine_.context);
        return tokens;
    }
    Call random_call() {
        Call call{.prompt = random_prompt()};
        call.name = below(3) == 0 ? below(3) : 0;
        call.new_tokens = below(below(4) == 0 ? 30 : 6);
        if (below(4) == 0) call.sampling = {.temperature = 0.8f, .seed = below(5)};
        if (below(6) == 0) call.stops.push_back(static_cast<Token>(below(engine_.vocabulary)));
        if (below(4) != 0) return call;
        call.event = static_cast<typename Call::Event>(below(5));
        call.event_at = 1 + below(6);
        call.event_name = below(3);
        return call;
    }
    void log(const Call& call) {
        choices_.log << "generate " << call.new_tokens << " in namespace " << call.name
                     << ", temperature " << call.sampling.temperature << ", seed "
                     << call.sampling.seed;
        for (const Token stop : call.stops) choices_.log << ", stop at " << stop;
        if (call.event != Call::Event::none) {
            choices_.log << ", event " << static_cast<int>(call.event) << " at token "
                         << call.event_at << " in " << call.event_name;
        }
        choices_.log << ", after";
        for (const Token token : call.prompt) choices_.log << ' ' << token;
        choices_.log << '\n';
    }

    const char* step() {
        switch (below(16)) {
            case 0:
                choices_.log << "clear\n";
                cached_.clear_cache();
                forget();
                return nullptr;
            case 1: {
                const std::size_t name = below(3);
                choices_.log << "drop " << name << '\n';
                cached_.drop(name_of(name));
                model_.drop(name);
                latest_.tokens.clear();
                return nullptr;
            }
            case 2:
            case 3:
                engine_.fail_at_step = engine_.steps + 1 + below(40);
                choices_.log << "the engine fails at step " << engine_.fail_at_step << '\n';
                break;
            default:
                break;
        }
        const char* fault = generate(random_call());
        engine_.fail_at_step = 0;
        return fault;
    }

    void forget() {
        model_.kept.clear();
        latest_.tokens.clear();
        evictions_at_clear_ = cached_.stats().evicted_blocks;
    }
    void keep(std::size_t name, const Tokens& tokens) {
        model_.keep(name, tokens);
        latest_ = model_.kept.back();
    }

    /// The answer of the engine alone, and why it ends.
    Answer answer_alone(const Call& call) {
        Answer answer;
        kvstem::reference::Sampler sampler(call.sampling);
        Alone alone(engine_);
        Tokens next = call.prompt;
        for (std::size_t at = 0; !next.empty();) {
            const auto logits = alone.forward(next, at);
            at += next.size();
            if (call.new_tokens == 0) return {{}, FinishReason::length};
            const Token token = sampler.sample(logits);
            answer.tokens.push_back(token);
            next.assign(1, token);
            const bool is_stop = std::count(call.stops.begin(), call.stops.end(), token) != 0;
            if (is_stop) return {answer.tokens, FinishReason::stop_token};
            if (call.event == Call::Event::stop && answer.tokens.size() == call.event_at) {
                return {answer.tokens, FinishReason::stopped};
            }
            if (answer.tokens.size() == call.new_tokens) {
                return {answer.tokens, FinishReason::length};
            }
            if (at == engine_.context) return {answer.tokens, FinishReason::context_full};
            if (is_paged && !slides(call) && pages_for(at + 1) > blocks_) {
                return {answer.tokens, FinishReason::out_of_pages};
            }
        }
        return answer;
    }
    /// Whether a call gives pages back: when there is room for its prompt and the bound.
    [[nodiscard]] bool slides(const Call& call) const {
        if constexpr (has_window) {
            const kvstem::SlidingWindow window{.window_tokens = engine_.window};
            return gives_back_ &&
                   pages_for(call.prompt.size()) + window.bound_pages(block_tokens_) <= blocks_;
        }
        return false;
    }

    /// The same engine with memory for the whole context and no cache.
    struct Alone {
        using Form = std::conditional_t<has_window, ToyWindowEngine, ToyContiguousEngine>;
        explicit Alone(const Engine& like) {
            engine.vocabulary = like.vocabulary;
            if constexpr (has_window) {
                engine.window = like.window;
                engine.rows.resize(like.context);
                engine.page_size = 1;
                table.resize(like.context);
                for (std::size_t i = 0; i < table.size(); ++i)
                    table[i] = kvstem::PageId{static_cast<std::uint32_t>(i)};
            }
        }
        std::vector<float> forward(std::span<const Token> tokens, std::size_t start) {
            if constexpr (has_window) {
                return engine.forward(tokens, start, table);
            } else {
                return engine.forward(tokens, start);
            }
        }
        Form engine{};
        std::vector<kvstem::PageId> table{};
    };

    const char* generate(const Call& call) {
        log(call);
        const bool refused = call.prompt.size() > engine_.context ||
                             (is_paged && pages_for(call.prompt.size()) > blocks_);
        const Answer expected = refused ? Answer{} : answer_alone(call);
        if (const char* fault = compare_peek(call)) return fault;
        const auto before = cached_.stats();
        const auto computed_before = engine_.computed;
        const std::size_t most = model_.reusable(call.prompt, call.name);
        const std::size_t least = least_reused(call);
        const bool was_exact = exact();
        Tokens told;
        bool cleared = false;
        const auto on_token = [&](Token token) {
            if (told.empty()) keep(call.name, call.prompt);
            told.push_back(token);
            if (told.size() != call.event_at) return true;
            if (call.event == Call::Event::fail) throw CallbackFailed();
            if (call.event == Call::Event::clear) {
                cached_.clear_cache();
                forget();
                cleared = true;
            }
            if (call.event == Call::Event::drop) {
                cached_.drop(name_of(call.event_name));
                model_.drop(call.event_name);
                latest_.tokens.clear();
                cleared = true;
            }
            return call.event != Call::Event::stop;
        };
        kvstem::GenerateResult result;
        const Namespace name = name_of(call.name);
        try {
            result = cached_.generate(call.prompt,
                                      {.max_new_tokens = call.new_tokens,
                                       .sampling = call.sampling,
                                       .stop_tokens = call.stops,
                                       .key_namespace = name},
                                      on_token);
        } catch (const kvstem::InvalidArgument&) {
            return refused && cached_.stats().evicted_blocks == before.evicted_blocks
                       ? nullptr
                       : "a prompt was refused without a reason";
        } catch (const EngineFailed&) {
            return after_failure(told, expected);
        } catch (const CallbackFailed&) {
            return told.size() == call.event_at ? after_failure(told, expected)
                                                : "the callback failed at another token";
        }
        if (refused) return "a prompt that cannot fit was accepted";
        if (call.prompt.empty()) return result.tokens.empty() ? nullptr : "an answer to nothing";
        if (result.tokens != expected.tokens) return "another answer than the engine's alone";
        if (told != result.tokens) return "the callback heard something else";
        if (result.finish != expected.finish) return "another reason to finish";
        if (!cleared) {
            Tokens whole = call.prompt;
            if (told.empty()) keep(call.name, whole);
            whole.insert(whole.end(), told.begin(), told.empty() ? told.end() : told.end() - 1);
            if (!told.empty() && !slides(call)) keep(call.name, whole);
        }
        if (result.reused_tokens > most) return "reused what was not there";
        const bool has_evicted = cached_.stats().evicted_blocks != before.evicted_blocks;
        if (result.reused_tokens < (was_exact && !has_evicted ? most : least)) {
            return "reused less than is there";
        }
        return compare_counts(call, result, before, computed_before);
    }

    /// What was kept of a call that failed half-way: its prompt, if it came to an answer. Blocks may
    /// have gone for it.
    const char* after_failure(const Tokens& told, const Answer& expected) {
        if (told.empty()) latest_.tokens.clear();
        const bool is_prefix = told.size() <= expected.tokens.size() &&
                               std::equal(told.begin(), told.end(), expected.tokens.begin());
        return is_prefix ? nullptr : "another answer before the failure";
    }

    /// What a call reuses whatever is evicted for it. Pages that match are pinned first; a page that
    /// agrees in part is looked for when room has been made.
    [[nodiscard]] std::size_t least_reused(const Call& call) const {
        if (!exact()) {
            return copies_pages ? model_.whole_blocks(latest_, call.prompt, call.name)
                                : model_.reusable(latest_, call.prompt, call.name);
        }
        std::size_t least = 0;
        for (const auto& s : model_.kept) {
            least = std::max(least, model_.whole_blocks(s, call.prompt, call.name));
        }
        return copies_pages ? least : model_.reusable(call.prompt, call.name);
    }
    /// Whether nothing was evicted since the last clear.
    [[nodiscard]] bool exact() const {
        return cached_.stats().evicted_blocks == evictions_at_clear_;
    }

    const char* compare_peek(const Call& call) {
        const std::size_t peeked = cached_.peek(call.prompt, name_of(call.name));
        std::size_t most = model_.reusable(call.prompt, call.name);
        // Cuts that the engine refuses are only found out when they are tried.
        if (form == EngineForm::state) return peeked >= most || !exact() ? nullptr : "peek: less";
        most = most / block_tokens_ * block_tokens_;
        if (exact() ? peeked != most : peeked > most) return "peek: another length";
        return peeked >= model_.whole_blocks(latest_, call.prompt, call.name) ? nullptr
                                                                              : "peek: gone";
    }

    const char* compare_counts(const Call& call, const kvstem::GenerateResult& result,
                               const kvstem::CachedEngineStats& before,
                               std::uint64_t computed_before) {
        const auto now = cached_.stats();
        const std::size_t missed = call.prompt.size() - result.reused_tokens;
        const std::size_t decoded = result.tokens.empty() ? 0 : result.tokens.size() - 1;
        if (result.computed_tokens != missed + decoded) return "another number of computed tokens";
        if (engine_.computed - computed_before != missed + decoded) return "the engine did more";
        if (now.computed_tokens - before.computed_tokens != missed + decoded) {
            return "computed tokens are miscounted";
        }
        if (now.queried_tokens - before.queried_tokens != call.prompt.size() ||
            now.reused_tokens - before.reused_tokens != result.reused_tokens ||
            now.missed_tokens - before.missed_tokens != missed) {
            return "tokens are miscounted";
        }
        const bool hit = result.reused_tokens != 0;
        if (now.hits - before.hits != (hit ? 1 : 0)) return "hits are miscounted";
        return now.misses - before.misses == (hit ? 0 : 1) ? nullptr : "misses are miscounted";
    }

    const char* compare() {
        const kvstem::AuditReport report = cached_.audit();
        if (!report.ok()) return report.findings.front().what;
        const auto stats = cached_.stats();
        if (stats.blocks > stats.capacity_blocks) return "more blocks than the capacity";
        return stats.capacity_blocks == blocks_ ? nullptr : "another capacity";
    }

    Choices& choices_;
    std::size_t block_tokens_;
    std::size_t blocks_;
    bool gives_back_ = false;
    Engine engine_;
    PrefixCachedEngine<Engine> cached_;
    NaiveReuse model_;
    NaiveReuse::Sequence latest_{0, {}};  // what was kept last: too fresh to be evicted
    std::uint64_t evictions_at_clear_ = 0;
};

template <class Engine>
const char* run(Choices& choices) {
    return Run<Engine>(choices).play();
}

const char* play(Choices& choices) {
    const std::array<Body, 5> forms{run<ToyPagedEngine>, run<ToyCopyingPagedEngine>,
                                    run<ToyRowEngine>, run<ToyStateEngine>, run<ToyWindowEngine>};
    return forms[choices.below(forms.size())](choices);
}

}  // namespace

KVSTEM_FUZZ_TEST(
    prefix_cached_engine, play, (large_test_divisor == 1 ? 2000 : 500) * test_scale(), 1200,
    "PrefixCachedEngine answers as the engine alone and reuses what it was given to keep",
    "[engine][X1][P6][L5][C1][R2][M7][W1]")
