// SPDX-License-Identifier: MIT
// Request traces: what was asked, block by block, without any text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../config.hpp"
#include "../detail/hash.hpp"
#include "../detail/on_failure.hpp"
#include "../errors.hpp"
#include "../token.hpp"
#include "json_line.hpp"

namespace kvstem::inline KVSTEM_ABI::replay {

/// One request of a trace.
struct TraceRequest {
    std::size_t first_block = 0;  ///< in the trace's list of blocks
    std::size_t blocks = 0;
    std::uint64_t tokens = 0;  ///< length of the prompt
    std::uint32_t tag = 0;     ///< the member "tag" of its line
};

/// Requests in the order in which they came. Every distinct block has a number, and two blocks have
/// the same number exactly if they and everything before them in their prompts are equal: a number
/// stands for a prefix.
struct Trace {
    std::vector<TraceRequest> requests;
    std::vector<Token> blocks;  ///< of all requests, one after the other
    std::size_t distinct_blocks = 0;
    std::size_t block_tokens = 1;  ///< tokens per block; the last of a prompt may have fewer
    std::vector<std::size_t> skipped_lines;  ///< numbers of lines that could not be read

    [[nodiscard]] std::span<const Token> path(const TraceRequest& request) const noexcept {
        return std::span(blocks).subspan(request.first_block, request.blocks);
    }
    [[nodiscard]] bool has_partial_tail(const TraceRequest& request) const noexcept {
        return request.tokens < std::uint64_t{request.blocks} * block_tokens;
    }
    [[nodiscard]] std::size_t longest_request_blocks() const noexcept {
        std::size_t longest = 0;
        for (const TraceRequest& request : requests) longest = std::max(longest, request.blocks);
        return longest;
    }
};

/// What happens at a line that is not what it should be.
enum class BadLines { refuse, skip };

/// What a line of a trace does not say of itself.
struct TraceOptions {
    std::size_t hash_block_tokens = 512;  ///< tokens that one of "hash_ids" stands for
    std::size_t plain_block_tokens = 1;   ///< tokens per block where a line has "tokens"
    BadLines bad_lines = BadLines::refuse;
};

/// Gives numbers to blocks: the same number for the same content after the same block.
class BlockNumbers {
  public:
    static constexpr std::uint32_t none = 0xFFFF'FFFFu;

    [[nodiscard]] std::size_t size() const noexcept { return known_.size(); }

    /// The number of the block with this content that follows block `parent` (none: begins a
    /// prompt).
    [[nodiscard]] std::uint32_t number(std::uint32_t parent,
                                       std::span<const std::int64_t> content) {
        const std::uint64_t hash =
            detail::hash_bytes(reinterpret_cast<const unsigned char*>(content.data()),
                               content.size_bytes(), parent + 1ull);
        const auto [first, last] = by_hash_.equal_range(hash);
        for (auto i = first; i != last; ++i) {
            const Known& known = known_[i->second];
            if (known.parent != parent || known.size != content.size()) continue;
            if (std::equal(content.begin(), content.end(), contents_.data() + known.begin)) {
                return i->second;
            }
        }
        if (known_.size() >= 0x7FFF'FFFEu) {
            detail::fail<BadFormat>("more than %zu distinct blocks", known_.size());
        }
        const auto added = static_cast<std::uint32_t>(known_.size());
        known_.push_back({parent, content.size(), contents_.size()});
        contents_.insert(contents_.end(), content.begin(), content.end());
        by_hash_.emplace(hash, added);
        return added;
    }

  private:
    struct Known {
        std::uint32_t parent;
        std::size_t size;
        std::size_t begin;
    };
    std::vector<Known> known_;
    std::vector<std::int64_t> contents_;
    std::unordered_multimap<std::uint64_t, std::uint32_t> by_hash_;
};

/// Reads a trace of one JSON object a line, in one of two forms:
///
///     {"hash_ids": [0, 1, 2], "input_length": 1300}     Mooncake's: an id per block of 512 tokens
///     {"tokens": [17, 4, 4, 99]}                        plain: the prompt itself
///
/// Other members are ignored, but "tag" (RequestHints). Without "input_length" all blocks are
/// whole. Blank lines are passed over. Throws BadFormat with the line's number for a line that is
/// not such an object, or that has the other form than the lines before it; with BadLines::skip
/// such lines are left out and noted (where there are no exceptions, the first of them ends the
/// program all the same).
class TraceReader {
  public:
    explicit TraceReader(TraceOptions options = {}) : options_(options) {
        if (options.hash_block_tokens == 0 || options.plain_block_tokens == 0) {
            detail::fail<InvalidArgument>("a block has at least 1 token, got %d", 0);
        }
        // With fewer than 2^32 blocks in a request, its tokens can be counted in 64 bits.
        const std::size_t larger = std::max(options.hash_block_tokens, options.plain_block_tokens);
        if (larger > most_block_tokens) {
            detail::fail<InvalidArgument>("a block of %zu tokens is larger than %zu", larger,
                                          most_block_tokens);
        }
    }

    [[nodiscard]] Trace read(std::istream& in) {
        std::string line;
        for (std::size_t number = 1; std::getline(in, line); ++number) {
            if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
            if (options_.bad_lines == BadLines::refuse) {
                add(line, number);
                continue;
            }
            detail::on_error<BadFormat>(
                [&] { add(line, number); },
                [&](const BadFormat&) { trace_.skipped_lines.push_back(number); });
        }
        if (in.bad()) detail::fail<BadFormat>("%s", "the trace could not be read to its end");
        trace_.distinct_blocks = numbers_.size();
        trace_.block_tokens =
            form_ == Form::plain ? options_.plain_block_tokens : options_.hash_block_tokens;
        return std::move(trace_);
    }

  private:
    enum class Form { unknown, hashes, plain };

    struct Line {
        bool has_hashes = false;
        bool has_tokens = false;
        std::int64_t length = -1;
        std::int64_t tag = 0;
    };

    void add(std::string_view text, std::size_t number) {
        detail::on_error<BadFormat>([&] { add(parse(text)); },
                                    [&](const BadFormat& error) {
                                        detail::fail<BadFormat>("line %zu: %s", number,
                                                                error.what());
                                    });
    }

    Line parse(std::string_view text) {
        hashes_.clear();
        tokens_.clear();
        Line line;
        JsonLine json(text);
        json.object([&](std::string_view key) {
            if (key == "hash_ids") {
                refuse_second(line.has_hashes, "hash_ids");
                json.integers(hashes_);
                line.has_hashes = true;
            } else if (key == "tokens") {
                refuse_second(line.has_tokens, "tokens");
                json.integers(tokens_);
                line.has_tokens = true;
            } else if (key == "input_length") {
                line.length = json.integer();
                if (line.length < 0) refuse("input_length is negative");
                if (line.length > most_tokens) refuse("input_length is beyond 2^40");
            } else if (key == "tag") {
                line.tag = json.integer();
                if (line.tag < 0 || line.tag > 0xFFFF'FFFF) refuse("tag is out of range");
            } else {
                json.skip();
            }
        });
        if (!line.has_hashes && !line.has_tokens) refuse("neither hash_ids nor tokens");
        return line;
    }

    void add(const Line& line) {
        const Form form = line.has_hashes ? Form::hashes : Form::plain;
        if (form_ != Form::unknown && form != form_) {
            refuse(form == Form::plain ? "tokens in a trace of hash_ids"
                                       : "hash_ids in a trace of tokens");
        }
        form_ = form;
        // One id is the whole content of a block in one form, the block's tokens in the other.
        const std::span<const std::int64_t> content(line.has_hashes ? hashes_ : tokens_);
        const std::size_t step = line.has_hashes ? 1 : options_.plain_block_tokens;
        TraceRequest request{trace_.blocks.size(), 0, 0, static_cast<std::uint32_t>(line.tag)};
        std::uint32_t block = BlockNumbers::none;
        for (std::size_t i = 0; i < content.size(); i += step) {
            block = numbers_.number(block, content.subspan(i, std::min(step, content.size() - i)));
            trace_.blocks.push_back(static_cast<Token>(block));
            ++request.blocks;
        }
        if (!line.has_hashes) {
            request.tokens = content.size();
        } else if (line.length >= 0) {
            request.tokens = static_cast<std::uint64_t>(line.length);
        } else {
            request.tokens = std::uint64_t{request.blocks} * options_.hash_block_tokens;
        }
        trace_.requests.push_back(request);
    }

    static constexpr std::size_t most_block_tokens = 0x7FFF'FFFF;
    static constexpr std::int64_t most_tokens = std::int64_t{1} << 40;  // of a request: sums of
                                                                        // millions do not wrap
    [[noreturn]] static void refuse(const char* what) { detail::fail<BadFormat>("%s", what); }
    static void refuse_second(bool seen, const char* name) {
        if (seen) detail::fail<BadFormat>("%s stands there twice", name);
    }

    TraceOptions options_;
    Trace trace_;
    BlockNumbers numbers_;
    Form form_ = Form::unknown;
    std::vector<std::int64_t> hashes_;
    std::vector<std::int64_t> tokens_;
};

}  // namespace kvstem
