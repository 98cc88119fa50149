// SPDX-License-Identifier: MIT
// Bodies of Batcher, second half: what a step does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "batcher.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

template <class Cache>
bool Batcher<Cache>::step() {
    grow_rows();
    admit();
    if (running_.empty()) return false;
    const std::size_t used = cache_.pages().capacity_pages() - cache_.free_pages();
    stats_.peak_pages = std::max(stats_.peak_pages, used);
    stats_.peak_running = std::max(stats_.peak_running, running_.size());
    ++stats_.steps;

    std::vector<std::size_t> prefill;
    std::vector<std::size_t> decode;
    for (std::size_t i = 0; i < running_.size(); ++i) {
        const Row& row = running_[i];
        detail::check_cursor(row.id, row.cursor, row.lease.written(), row.kv.length());
        (row.in_prefill() ? prefill : decode).push_back(i);
    }
    if (!prefill.empty()) compute_prefill(prefill);
    if (!decode.empty()) compute_decode(decode);
    finish_rows();
    return true;
}

// ── Pages for running jobs, then for queued ones ──

template <class Cache>
void Batcher<Cache>::grow_rows() {
    for (std::size_t i = 0; i < running_.size(); ++i) {
        const std::size_t positions = record_of(running_[i].id).sequence.size();
        while (i < running_.size() && running_[i].lease.grow_to(positions) != Admission::granted) {
            preempt_youngest();
        }
        if (i == running_.size()) return;  // the row itself was the youngest
        Row& row = running_[i];
        row.kv = PagedKvView(store_, row.lease.block_table(), row.kv.length());
    }
}

template <class Cache>
void Batcher<Cache>::preempt_youngest() {
    Row& row = running_.back();
    publish(row);
    queue_.push_front(row.id);
    JobResult& result = record_of(row.id).result;
    result.status = JobStatus::queued;
    ++result.preemptions;
    ++stats_.preemptions;
    running_.pop_back();
}

template <class Cache>
void Batcher<Cache>::admit() {
    while (!queue_.empty() && running_.size() < options_.max_running) {
        const JobId id = queue_.front();
        Record& record = record_of(id);
        if (awaits_running_prefix(record)) return;
        Acquired<Lease> acquired = acquire(record);
        if (acquired.admission == Admission::exhausted) return;
        if (acquired) {
            start(id, std::move(acquired.lease));
        } else {
            record.result.status = JobStatus::never_fits;  // the page source has shrunk
        }
        queue_.pop_front();
    }
}

/// Whether a running prefill will publish more of this job's prefix than the tree has now. It
/// advances in every step, so the wait ends.
template <class Cache>
bool Batcher<Cache>::awaits_running_prefix(const Record& record) const {
    if (options_.sharing != Sharing::prefill_chunks) return false;
    const Tokens sequence(record.sequence);
    const std::size_t cached = cache_.peek(sequence, record.job.key_namespace()).adoptable_tokens;
    return std::any_of(running_.begin(), running_.end(), [&](const Row& row) {
        const Record& other = record_of(row.id);
        if (!row.in_prefill() || !other.job.shares_namespace_with(record.job)) return false;
        // Not the last token (M4), and whole pages only.
        const Tokens ours = sequence.first(sequence.size() - 1);
        const Tokens theirs = Tokens(other.sequence).first(row.prefill_end);
        const auto end = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
        const auto common = static_cast<std::size_t>(end.first - ours.begin());
        const std::size_t whole = common - common % cache_.page_tokens();
        return whole > row.cursor && whole > cached;
    });
}

template <class Cache>
auto Batcher<Cache>::acquire(const Record& record) -> Acquired<Lease> {
    const Tokens sequence(record.sequence);
    if (options_.sharing == Sharing::off) return acquire_unshared(sequence.size());
    const Namespace name = record.job.key_namespace();
    if (options_.partial_pages == PartialPages::compute) return cache_.acquire(sequence, name);
    return cache_.acquire(sequence, name, [this](PageId from, PageId to, std::size_t rows) {
        store_.copy_rows(from, to, rows);
    });
}

/// Pages without a prefix: no prompt, so nothing to match, and then room for one.
template <class Cache>
auto Batcher<Cache>::acquire_unshared(std::size_t positions) -> Acquired<Lease> {
    if (pages_for(positions) > cache_.free_pages() + cache_.evictable_pages()) {
        return {Admission::exhausted, Lease{}};  // asked first, so that retries are no misses
    }
    Acquired<Lease> acquired = cache_.acquire(Tokens{});
    if (acquired) acquired.admission = acquired.lease.grow_to(positions);
    return acquired;
}

/// Prefill starts where the adopted rows end: cursor and KV are seeded with that one number.
template <class Cache>
void Batcher<Cache>::start(JobId id, Lease lease) {
    Record& record = record_of(id);
    const std::size_t adopted = lease.adopted();
    PagedKvView kv(store_, lease.block_table(), adopted);
    running_.push_back({id, std::move(lease), kv, adopted, record.sequence.size()});
    record.result.status = JobStatus::running;
    if (record.result.preemptions == 0) record.result.adopted_tokens = adopted;
}

// ── Computing ──

template <class Cache>
void Batcher<Cache>::compute_prefill(std::span<const std::size_t> rows) {
    std::vector<BatchRun<PagedKvView>> runs;
    for (const std::size_t index : rows) {
        Row& row = running_[index];
        const std::size_t left = row.prefill_end - row.cursor;
        const std::size_t n = std::min(options_.prefill_chunk_tokens, left);
        const Tokens sequence(record_of(row.id).sequence);
        runs.push_back({sequence.subspan(row.cursor, n), row.cursor, &row.kv});
    }
    const Logits logits =
        decoder_.forward_runs(std::span<const BatchRun<PagedKvView>>(runs), LogitsFor::last_token);
    for (std::size_t i = 0; i < rows.size(); ++i) advance(running_[rows[i]], runs[i].tokens);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        Row& row = running_[rows[i]];
        if (options_.sharing == Sharing::prefill_chunks) {
            publish(row);
            row.lease.switch_to_tree();  // no work is in flight, so duplicates can go at once
        }
        if (!row.in_prefill()) sample(row, logits.row(i));
    }
}

template <class Cache>
void Batcher<Cache>::compute_decode(std::span<const std::size_t> rows) {
    std::vector<BatchRow<PagedKvView>> batch;
    for (const std::size_t index : rows) {
        Row& row = running_[index];
        batch.push_back({record_of(row.id).sequence.back(), row.cursor, &row.kv});
    }
    const Logits logits = decoder_.forward_rows(std::span<const BatchRow<PagedKvView>>(batch));
    for (std::size_t i = 0; i < rows.size(); ++i) {
        advance(running_[rows[i]], Tokens(&batch[i].token, 1));
    }
    for (std::size_t i = 0; i < rows.size(); ++i) sample(running_[rows[i]], logits.row(i));
}

/// The decoder has appended the rows of these tokens; the lease and the cursor follow.
template <class Cache>
void Batcher<Cache>::advance(Row& row, Tokens computed) {
    row.lease.wrote(computed);
    row.cursor += computed.size();
    KVSTEM_ASSERT(row.cursor == row.lease.written() && row.cursor == row.kv.length());
    record_of(row.id).result.computed_tokens += computed.size();
    stats_.tokens_computed += computed.size();
}

/// Draws the token after the sequence, and decides whether it is the last.
template <class Cache>
void Batcher<Cache>::sample(Row& row, std::span<const float> logits) {
    Record& record = record_of(row.id);
    JobResult& result = record.result;
    const Job& job = record.job;
    result.last_logits.assign(logits.begin(), logits.end());
    result.logits.add(logits);
    if (!detail::can_be_sampled(logits)) {
        row.status = JobStatus::failed;
        return;
    }
    if (job.max_new_tokens == 0) {
        row.status = JobStatus::length;
        return;
    }
    const Token token = record.sampler.sample(logits);
    result.tokens.push_back(token);
    record.sequence.push_back(token);
    const auto& stops = job.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
        row.status = JobStatus::stopped;
    } else if (result.tokens.size() >= job.max_new_tokens ||
               record.sequence.size() > decoder_.config().max_context) {
        row.status = JobStatus::length;
    }
}

template <class Cache>
void Batcher<Cache>::publish(Row& row) {
    if (options_.sharing != Sharing::off) row.lease.publish();
}

/// Rows that are over publish everything they computed, and their leases die. Rows whose logits are
/// no numbers keep theirs to themselves: whoever adopted them would fail as well.
template <class Cache>
void Batcher<Cache>::finish_rows() {
    for (Row& row : running_) {
        if (row.status == JobStatus::running) continue;
        if (row.status != JobStatus::failed) publish(row);
        record_of(row.id).result.status = row.status;
    }
    std::erase_if(running_, [](const Row& row) { return row.status != JobStatus::running; });
}

}  // namespace kvstem
