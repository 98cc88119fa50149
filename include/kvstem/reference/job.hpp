// SPDX-License-Identifier: MIT
// What a batcher is asked to do and what it answers: one job, its status and its result.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../config.hpp"
#include "../namespace.hpp"
#include "../token.hpp"
#include "sampler.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// Names a job within its batcher; numbered from 0 in the order of submission.
enum class JobId : std::uint32_t {};

/// One request: a prompt to continue, and when to stop. A plain value; the parts of its namespace
/// are owned here, because a job outlives the call that submits it.
struct Job {
    std::vector<Token> prompt{};
    SamplingParams sampling{};
    std::vector<Token> stop_tokens{};
    std::size_t max_new_tokens = 16;  // 0: the prompt is computed, and nothing is sampled
    std::optional<std::string> adapter{};
    std::optional<std::string> version{};
    std::optional<std::string> salt{};

    /// The job's namespace, valid as long as the job.
    [[nodiscard]] Namespace key_namespace() const noexcept { return {adapter, version, salt}; }

    [[nodiscard]] bool shares_namespace_with(const Job& other) const noexcept {
        return adapter == other.adapter && version == other.version && salt == other.salt;
    }
};

/// Where a job stands. The first two are on the way, the others are final.
enum class JobStatus {
    queued,      ///< waits for pages, or for its turn; also after it was preempted
    running,     ///< holds a lease; its prompt is being computed or its answer sampled
    stopped,     ///< sampled one of its stop tokens
    length,      ///< sampled as many tokens as it may, or filled the model's context
    aborted,     ///< by its owner
    never_fits,  ///< refused at submission: alone it exceeds the pool, or its prompt the context
    failed       ///< its logits were not numbers that a token can be drawn from
};

/// Whether the job is over; then its status stays.
[[nodiscard]] constexpr bool is_final(JobStatus status) noexcept {
    return status != JobStatus::queued && status != JobStatus::running;
}

/// A running hash of logits, bit by bit, so that two answers can be compared without keeping every
/// row. FNV-1a over 32-bit words: each step is a bijection of the state, so one differing float
/// cannot be lost by what follows it.
class LogitsHash {
  public:
    void add(std::span<const float> logits) noexcept {
        for (const float logit : logits) {
            value_ = (value_ ^ std::bit_cast<std::uint32_t>(logit)) * 0x0000'0100'0000'01B3u;
        }
    }
    [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

    friend bool operator==(const LogitsHash&, const LogitsHash&) = default;

  private:
    std::uint64_t value_ = 0xCBF2'9CE4'8422'2325u;
};

/// What became of a job so far.
struct JobResult {
    JobStatus status = JobStatus::queued;
    std::vector<Token> tokens{};       // sampled; a stop token is the last of them
    std::vector<float> last_logits{};  // what the last of them was drawn from (vocab_size)
    LogitsHash logits{};               // of all rows that tokens were drawn from
    std::size_t adopted_tokens = 0;    // of the prompt, when the job was first admitted
    std::size_t computed_tokens = 0;   // that went through the decoder for this job
    std::size_t preemptions = 0;       // how often it had to give its pages back and start over
};

}  // namespace kvstem
