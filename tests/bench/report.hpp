// SPDX-License-Identifier: MIT
// The table of the benchmark: each figure beside its yardstick, their ratio and the target.
#pragma once

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// One line of the table.
struct Row {
    std::string id;
    std::string detail;
    double measured = 0;
    double yardstick = 0;  ///< what it is compared with, in the same unit
    std::string unit;      ///< of both
    std::string yardstick_name;
    std::optional<double> target{};  ///< the largest ratio allowed; none: for information

    [[nodiscard]] double ratio() const { return yardstick > 0 ? measured / yardstick : measured; }
    [[nodiscard]] bool pass() const { return !target || ratio() <= *target; }
};

class Report {
  public:
    void add(Row row) {
        print(row);
        rows_.push_back(std::move(row));
    }
    void heading() const {
        std::printf("%-14s %-30s %15s %15s  %-16s %7s %7s\n", "workload", "", "measured",
                    "yardstick", "", "ratio", "target");
    }
    /// How many rows miss their target.
    [[nodiscard]] std::size_t missed() const {
        return static_cast<std::size_t>(
            std::count_if(rows_.begin(), rows_.end(), [](const Row& row) { return !row.pass(); }));
    }
    [[nodiscard]] std::size_t with_target() const {
        return static_cast<std::size_t>(std::count_if(
            rows_.begin(), rows_.end(), [](const Row& row) { return row.target.has_value(); }));
    }
    [[nodiscard]] bool empty() const { return rows_.empty(); }

    /// The rows as JSON, with `about` (an object's members, already JSON) before them.
    [[nodiscard]] bool write_json(const std::string& file, const std::string& about) const {
        std::FILE* out = std::fopen(file.c_str(), "w");
        if (out == nullptr) return false;
        std::fprintf(out, "{%s, \"missed\": %zu, \"rows\": [\n", about.c_str(), missed());
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            write(out, rows_[i]);
            std::fprintf(out, "%s\n", i + 1 < rows_.size() ? "," : "");
        }
        std::fprintf(out, "]}\n");
        const bool written = std::ferror(out) == 0;
        return std::fclose(out) == 0 && written;
    }

  private:
    static void write(std::FILE* out, const Row& row) {
        std::fprintf(out,
                     "  {\"id\": \"%s\", \"detail\": \"%s\", \"measured\": %.6g, "
                     "\"yardstick\": %.6g, \"unit\": \"%s\", \"yardstick_name\": \"%s\", "
                     "\"ratio\": %.4g, ",
                     row.id.c_str(), row.detail.c_str(), row.measured, row.yardstick,
                     row.unit.c_str(), row.yardstick_name.c_str(), row.ratio());
        if (!row.target) {
            std::fprintf(out, "\"target\": null}");
            return;
        }
        std::fprintf(out, "\"target\": %.4g, \"pass\": %s}", *row.target,
                     row.pass() ? "true" : "false");
    }
    static void print(const Row& row) {
        char target[32] = "-";
        if (row.target) std::snprintf(target, sizeof target, "%.2f", *row.target);
        std::printf("%-14s %-30s %11.3f %-3s %11.3f %-3s  %-16s %7.2f %7s  %s\n", row.id.c_str(),
                    row.detail.c_str(), row.measured, row.unit.c_str(), row.yardstick,
                    row.unit.c_str(), row.yardstick_name.c_str(), row.ratio(), target,
                    !row.target  ? ""
                    : row.pass() ? "pass"
                                 : "MISSED");
        std::fflush(stdout);
    }

    std::vector<Row> rows_;
};

}  // namespace bench
