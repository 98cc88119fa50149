// SPDX-License-Identifier: MIT
// A line chart as SVG, plain enough for a paper: labelled axes, a grid, a legend, no scripts.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

/// One line of a chart.
struct ChartLine {
    std::string name;
    std::string colour;
    std::string dashes;  // as in SVG; empty: solid
    double width = 1.6;
    std::vector<std::pair<double, double>> points;  // x > 0 ascending, y in percent
};

/// Lines over a logarithmic x axis and a y axis in percent that begins at 0.
struct LineChart {
    std::string title;
    std::string x_label;
    std::string y_label;
    std::vector<ChartLine> lines;  // the first lies on top
    double ceiling = 0;            // a horizontal line across, in percent
    std::string ceiling_name;

    [[nodiscard]] std::string svg() const;
};

namespace chart {

inline constexpr double width = 760;
inline constexpr double height = 440;
inline constexpr double left = 64;
inline constexpr double right = 580;
inline constexpr double top = 44;
inline constexpr double bottom = 380;
// Told apart also by those who do not see red and green, and on grey paper by their markers.
inline constexpr std::string_view markers[] = {"circle", "square", "up",   "diamond",
                                               "down",   "plus",   "cross"};

inline std::string escaped(std::string_view text) {
    std::string safe;
    for (const char c : text) {
        if (c == '<')
            safe += "&lt;";
        else if (c == '>')
            safe += "&gt;";
        else if (c == '&')
            safe += "&amp;";
        else if (c == '"')
            safe += "&quot;";
        else
            safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return safe;
}

inline std::string text(double x, double y, std::string_view anchor, std::string_view content,
                        std::string_view more = "") {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}{}>{}</text>\n", x, y,
                       anchor, more.empty() ? "" : " ", more, escaped(content));
}

inline std::string rule(double x1, double y1, double x2, double y2, std::string_view style) {
    return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1,
                       y1, x2, y2, style);
}

inline std::string marker(std::size_t kind, double x, double y, std::string_view colour) {
    const std::string_view shape = markers[kind % std::size(markers)];
    const auto path = [&](std::string_view d, bool filled) {
        return fmt::format(
            "<path transform=\"translate({:.1f} {:.1f})\" d=\"{}\" fill=\"{}\" stroke=\"{}\"/>\n",
            x, y, d, filled ? colour : "none", colour);
    };
    if (shape == "square") return path("M-2.7-2.7h5.4v5.4h-5.4z", true);
    if (shape == "up") return path("M0-3.4L3.2 2.4H-3.2z", true);
    if (shape == "down") return path("M0 3.4L3.2-2.4H-3.2z", true);
    if (shape == "diamond") return path("M0-3.7L3.7 0 0 3.7-3.7 0z", true);
    if (shape == "plus") return path("M-3.6 0H3.6M0-3.6V3.6", false);
    if (shape == "cross") return path("M-2.8-2.8L2.8 2.8M-2.8 2.8L2.8-2.8", false);
    return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.9\" fill=\"{}\"/>\n", x, y,
                       colour);
}

/// "500", "20k", "1.5M".
inline std::string short_number(double number) {
    if (number >= 1e6) return fmt::format("{:g}M", number / 1e6);
    if (number >= 1e4) return fmt::format("{:g}k", number / 1e3);
    return fmt::format("{:g}", number);
}

/// 1, 2 and 5 times the powers of ten from `least` to `most`.
inline std::vector<double> log_ticks(double least, double most) {
    std::vector<double> ticks;
    for (double power = 1; power <= most; power *= 10) {
        for (const double step : {1.0, 2.0, 5.0}) {
            if (power * step >= least && power * step <= most) ticks.push_back(power * step);
        }
    }
    return ticks;
}

/// The step of the y axis that makes four to ten of them.
inline double percent_step(double most) {
    for (const double step : {0.5, 1.0, 2.0, 5.0, 10.0}) {
        if (most / step <= 10) return step;
    }
    return 20;
}

}  // namespace chart

inline std::string LineChart::svg() const {
    using namespace chart;
    double least_x = 1e300;
    double most_x = 1;
    double most_y = ceiling;
    for (const ChartLine& line : lines) {
        for (const auto& [x, y] : line.points) {
            least_x = std::min(least_x, x);
            most_x = std::max(most_x, x);
            most_y = std::max(most_y, y);
        }
    }
    least_x = std::min(least_x, most_x);
    const double span_x = std::max(std::log10(most_x / least_x), 1e-9);
    const double step_y = percent_step(most_y);
    const double end_y = std::max((std::floor(most_y / step_y) + 1) * step_y, step_y);
    const auto at_x = [&](double x) {
        return left + 8 + (right - left - 16) * std::log10(x / least_x) / span_x;
    };
    const auto at_y = [&](double y) { return bottom - (bottom - top) * y / end_y; };

    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" "
        "fill=\"#222\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
        width, height);
    out += text(left, top - 18, "start", title, "font-size=\"14\" font-weight=\"bold\"");
    for (double y = 0; y <= end_y + step_y / 2; y += step_y) {
        out += rule(left, at_y(y), right, at_y(y), "stroke=\"#e4e4e4\"");
        out += text(left - 8, at_y(y) + 4, "end", fmt::format("{:g}", y));
    }
    for (const double x : log_ticks(least_x, most_x)) {
        out += rule(at_x(x), top, at_x(x), bottom, "stroke=\"#f0f0f0\"");
        out += rule(at_x(x), bottom, at_x(x), bottom + 5, "stroke=\"#222\"");
        out += text(at_x(x), bottom + 20, "middle", short_number(x));
    }
    out += fmt::format("<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"#222\"/>\n", left, top,
                       bottom, right);
    out += text((left + right) / 2, bottom + 42, "middle", x_label);
    out += text(0, 0, "middle", y_label,
                fmt::format("transform=\"translate(20 {:.1f}) rotate(-90)\"", (top + bottom) / 2));

    double legend_y = top + 8;
    const auto legend = [&](std::string_view style, std::string_view name) {
        out += rule(right + 18, legend_y, right + 46, legend_y, style);
        out += text(right + 54, legend_y + 4, "start", name);
        legend_y += 21;
    };
    if (ceiling > 0) {
        const std::string_view style = "stroke=\"#777\" stroke-dasharray=\"2 3\"";
        out += rule(left, at_y(ceiling), right, at_y(ceiling), style);
        legend(style, ceiling_name);
    }
    const auto style_of = [](const ChartLine& line) {
        const std::string dashes =
            line.dashes.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", line.dashes);
        return fmt::format("stroke=\"{}\" stroke-width=\"{:g}\"{}", line.colour, line.width,
                           dashes);
    };
    for (std::size_t i = 0; i < lines.size(); ++i) {
        out += marker(i, right + 32, legend_y, lines[i].colour);
        legend(style_of(lines[i]), lines[i].name);
    }
    for (std::size_t i = lines.size(); i-- > 0;) {  // the first line lies on top
        std::string path;
        for (const auto& [x, y] : lines[i].points) {
            path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", at_x(x), at_y(y));
        }
        out += fmt::format("<path d=\"{}\" fill=\"none\" stroke-linejoin=\"round\" {}/>\n", path,
                           style_of(lines[i]));
        for (const auto& [x, y] : lines[i].points)
            out += marker(i, at_x(x), at_y(y), lines[i].colour);
    }
    return out + "</svg>\n";
}

}  // namespace support
