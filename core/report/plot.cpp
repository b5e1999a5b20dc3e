#include "core/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/units.h"

namespace dtorch::report {
namespace {

constexpr double kWidth = 640, kHeight = 400;
constexpr double kLeft = 64, kRight = 16, kTop = 36, kBottom = 76;
constexpr std::size_t kColours = 8;
constexpr double kMostTicks = 12;

/** One direction of a plot: from values to places, and the values that are marked. */
class Axis {
 public:
  Axis(AxisKind kind, double low, double high, double from, double to)
      : kind_(kind), base_(kind == AxisKind::bytes ? 2 : 10), from_(from), to_(to) {
    first_ = std::floor(std::log(low) / std::log(base_) + 1e-9);
    last_ = std::max(std::ceil(std::log(high) / std::log(base_) - 1e-9), first_ + 1);
  }

  double place(double value) const {
    const double share = (std::log(value) / std::log(base_) - first_) / (last_ - first_);
    return from_ + share * (to_ - from_);
  }

  std::vector<double> ticks() const {
    const double step = std::max(1.0, std::ceil((last_ - first_) / kMostTicks));
    std::vector<double> values;
    for (double exponent = first_; exponent <= last_; exponent += step)
      values.push_back(std::pow(base_, exponent));
    return values;
  }

  std::string label(double value) const {
    if (kind_ == AxisKind::bytes) return size_text(static_cast<std::int64_t>(value));
    return fmt::format("{:g}", value);
  }

 private:
  AxisKind kind_;
  double base_;
  double first_ = 0, last_ = 1;  // exponents
  double from_, to_;
};

std::string grid(const Plot& plot, const Axis& x, const Axis& y) {
  std::string svg;
  for (const double value : x.ticks()) {
    const double at = x.place(value);
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>"
        "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
        at, kTop, kHeight - kBottom, kHeight - kBottom + 16, x.label(value));
  }
  for (const double value : y.ticks()) {
    const double at = y.place(value);
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{1}\" x2=\"{2}\" y1=\"{0:.1f}\" y2=\"{0:.1f}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        at, kLeft, kWidth - kRight, kLeft - 6, at + 4, y.label(value));
  }
  svg += fmt::format("<text class=\"title\" x=\"{}\" y=\"20\">{}</text>\n", kLeft, escape_html(plot.title));
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                     (kLeft + kWidth - kRight) / 2, kHeight - kBottom + 36, escape_html(plot.x_label));
  svg += fmt::format("<text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                     (kTop + kHeight - kBottom) / 2, escape_html(plot.y_label));
  return svg;
}

std::string line_of(const PlotSeries& series, std::size_t number, const Axis& x, const Axis& y) {
  std::string path, dots;
  for (const auto& [at, value] : series.points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x.place(at), y.place(value));
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}: {}, {:.4g}</title></circle>",
                        x.place(at), y.place(value), escape_html(series.name), x.label(at), value);
  }
  return fmt::format("<g class=\"series s{}\"><path d=\"{}\"/>{}</g>\n", number % kColours, path, dots);
}

std::string legend(const Plot& plot) {
  std::string svg;
  double at = kLeft;
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    svg +=
        fmt::format("<g class=\"series s{}\"><path d=\"M{} {} h18\"/></g><text x=\"{}\" y=\"{}\">{}</text>\n",
                    i % kColours, at, kHeight - 14, at + 24, kHeight - 10, escape_html(plot.series[i].name));
    at += 44 + 7.5 * static_cast<double>(plot.series[i].name.size());
  }
  return svg;
}

}  // namespace

std::string svg_of(const Plot& plot) {
  double low_x = std::numeric_limits<double>::infinity(), low_y = low_x, high_x = 0, high_y = 0;
  for (const auto& series : plot.series) {
    for (const auto& [x, y] : series.points) {
      low_x = std::min(low_x, x);
      high_x = std::max(high_x, x);
      low_y = std::min(low_y, y);
      high_y = std::max(high_y, y);
    }
  }
  if (high_x == 0) return {};
  const Axis x(plot.x_axis, low_x, high_x, kLeft, kWidth - kRight);
  const Axis y(plot.y_axis, low_y, high_y, kHeight - kBottom, kTop);
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kWidth,
                                kHeight, escape_html(plot.title));
  svg += grid(plot, x, y);
  for (std::size_t i = 0; i < plot.series.size(); ++i) svg += line_of(plot.series[i], i, x, y);
  return svg + legend(plot) + "</svg>\n";
}

std::string_view plot_style() {
  return R"(:root{--page:#fff;--text:#1b1f24;--faint:#d8dee4;--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#bf3989;--c5:#9a6700;--c6:#0a7ea4;--c7:#57606a}
@media(prefers-color-scheme:dark){:root{--page:#0d1117;--text:#e6edf3;--faint:#30363d;--c0:#58a6ff;--c1:#f0883e;--c2:#3fb950;--c3:#bc8cff;--c4:#ff7bbd;--c5:#d4a72c;--c6:#39c5cf;--c7:#8b949e}}
svg{width:100%;max-width:720px;height:auto}
svg text{fill:var(--text);font:12px sans-serif}
svg text.title{font-weight:600;font-size:14px}
svg .grid{stroke:var(--faint);stroke-width:1}
svg .series path{fill:none;stroke-width:2}
.s0{stroke:var(--c0);fill:var(--c0)}.s1{stroke:var(--c1);fill:var(--c1)}.s2{stroke:var(--c2);fill:var(--c2)}.s3{stroke:var(--c3);fill:var(--c3)}
.s4{stroke:var(--c4);fill:var(--c4)}.s5{stroke:var(--c5);fill:var(--c5)}.s6{stroke:var(--c6);fill:var(--c6)}.s7{stroke:var(--c7);fill:var(--c7)}
)";
}

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      case '\'': escaped += "&#39;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

}  // namespace dtorch::report
