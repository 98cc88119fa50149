// SPDX-License-Identifier: MIT
// Bodies of PrefixCachedEngine: one loop for all forms.
#pragma once

#include <algorithm>

#include "../prefix_cached_engine.hpp"

namespace kvstem::inline KVSTEM_ABI {

template <cacheable_engine Engine>
template <token_callback OnToken, token_sampler Draw>
GenerateResult PrefixCachedEngine<Engine>::generate(Tokens prompt, const GenerateParams& params,
                                                    OnToken&& on_token, Draw&& draw) {
    const Running running(running_);
    check_prompt(prompt);
    GenerateResult result;
    if (prompt.empty()) return result;
    const std::uint64_t clearings = clearings_;
    sequence_.assign(prompt.begin(), prompt.end());

    Request request = form_.start(prompt, params.key_namespace, logits_);
    result.reused_tokens = request.reused;
    result.computed_tokens = prompt.size() - request.reused;
    if (!request.has_logits) compute(request, prompt.subspan(request.reused), request.reused);
    ++(request.reused != 0 ? counters_.hits : counters_.misses);
    counters_.queried_tokens += prompt.size();
    counters_.reused_tokens += request.reused;
    counters_.missed_tokens += result.computed_tokens;

    if (params.max_new_tokens == 0) {
        result.finish = FinishReason::length;
        store(request, params, clearings);
        return result;
    }
    // Drawn before anything is stored: rows whose logits are no numbers would spoil others'
    // answers.
    result.tokens.push_back(drawn_by(draw));
    store(request, params, clearings);
    result.finish = decode(request, params, on_token, draw, result);
    store(request, params, clearings);
    return result;
}

template <cacheable_engine Engine>
void PrefixCachedEngine<Engine>::check_prompt(Tokens prompt) const {
    const std::size_t most = engine_.max_context();
    if (prompt.size() > most) {
        detail::fail<InvalidArgument>("a prompt of %zu tokens exceeds the context of %zu",
                                      prompt.size(), most);
    }
    const std::size_t vocab_size = engine_.vocab_size();
    for (std::size_t i = 0; i < prompt.size(); ++i) {
        if (prompt[i] < 0 || static_cast<std::size_t>(prompt[i]) >= vocab_size) {
            detail::fail<InvalidArgument>(
                "token %d at position %zu of the prompt is outside the vocabulary of %zu",
                static_cast<int>(prompt[i]), i, vocab_size);
        }
    }
}

/// Runs tokens at the positions from `start` on, and keeps the logits after the last one.
template <cacheable_engine Engine>
void PrefixCachedEngine<Engine>::compute(Request& request, Tokens tokens, std::size_t start) {
    // Copied while whatever the engine returned is alive: it may be a temporary.
    form_.compute(request, tokens, start, [this](std::span<const float> logits) {
        if (logits.size() != engine_.vocab_size()) {
            detail::fail<InvalidArgument>(
                "the engine returned %zu logits, its vocabulary has %zu tokens", logits.size(),
                std::size_t{engine_.vocab_size()});
        }
        logits_.assign(logits.begin(), logits.end());
    });
    counters_.computed_tokens += tokens.size();
}

template <cacheable_engine Engine>
template <class Draw>
Token PrefixCachedEngine<Engine>::drawn_by(Draw& draw) const {
    const Token token = draw(std::span<const float>(logits_));
    if (token < 0 || static_cast<std::size_t>(token) >= logits_.size()) {
        detail::fail<InvalidArgument>("the sampler drew token %d of a vocabulary of %zu",
                                      static_cast<int>(token), logits_.size());
    }
    return token;
}

template <cacheable_engine Engine>
template <class OnToken>
bool PrefixCachedEngine<Engine>::goes_on(OnToken& on_token, Token token) {
    if constexpr (std::is_void_v<std::invoke_result_t<OnToken&, Token>>) {
        on_token(token);
        return true;
    } else {
        return static_cast<bool>(on_token(token));
    }
}

/// Turns the first token into the whole answer. Each turn tells the last drawn token, and if there
/// is to be another one, gives that token a row.
template <cacheable_engine Engine>
template <class OnToken, class Draw>
FinishReason PrefixCachedEngine<Engine>::decode(Request& request, const GenerateParams& params,
                                                OnToken& on_token, Draw& draw,
                                                GenerateResult& result) {
    const std::size_t max_context = engine_.max_context();
    const std::vector<Token>& stops = params.stop_tokens;
    for (;;) {
        const Token token = result.tokens.back();
        const bool wanted = goes_on(on_token, token);
        if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
            return FinishReason::stop_token;
        }
        if (!wanted) return FinishReason::stopped;
        if (result.tokens.size() >= params.max_new_tokens) return FinishReason::length;
        if (sequence_.size() >= max_context) return FinishReason::context_full;
        if (!form_.make_room(request, sequence_.size() + 1)) return FinishReason::out_of_pages;
        compute(request, Tokens(&token, 1), sequence_.size());
        sequence_.push_back(token);
        ++result.computed_tokens;
        result.tokens.push_back(drawn_by(draw));
    }
}

/// Offers what the engine has computed so far, unless the cache was cleared meanwhile: who clears
/// it does not expect to find what was computed before.
template <cacheable_engine Engine>
void PrefixCachedEngine<Engine>::store(Request& request, const GenerateParams& params,
                                       std::uint64_t clearings) {
    if (clearings == clearings_) {
        form_.store(request, sequence_, logits_, params.key_namespace);
    }
}

}  // namespace kvstem
