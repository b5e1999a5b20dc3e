// Line plots as SVG, for pages that need nothing from elsewhere. Colours come from the page's style sheet, so that a page can
// be light or dark.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtorch::report {

struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< x ascending; with logarithmic axes both above 0
};

/** How an axis is divided: powers of 2 suit bytes, powers of 10 the rest. */
enum class AxisKind { bytes, logarithmic };

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  AxisKind x_axis = AxisKind::bytes;
  AxisKind y_axis = AxisKind::logarithmic;
  std::vector<PlotSeries> series;
};

/** An <svg> element, 640 by 400, scaling to the width it is given. Series i has the classes "series s<i modulo 8>". Points carry
 * their values as tooltips. Empty when no series has a point. */
std::string svg_of(const Plot& plot);

/** The style rules that svg_of's classes need, light and dark. */
std::string_view plot_style();

/** TEXT with & < > " ' as entities. */
std::string escape_html(std::string_view text);

}  // namespace dtorch::report
