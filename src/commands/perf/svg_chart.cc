// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/svg_chart.h"

#include <algorithm>
#include <array>

#include "base/format.h"

namespace verbena::perf {
namespace {

// Pixels. The legend is right of the plot.
constexpr double kWidth = 900, kHeight = 400;
constexpr double kLeft = 84, kRight = 690, kTop = 44, kBottom = 336;
constexpr double kLegend = 714, kLegendStep = 24;

// Colours that are distinct for readers with any colour vision, with a contrast of at least 3:1.
constexpr std::array<const char*, kMaxSeries> kLight{"#0065a8", "#c14a00", "#007a58", "#a8327e",
                                                     "#7a6200", "#5b3fb5", "#555555", "#b3002d"};
constexpr std::array<const char*, kMaxSeries> kDark{"#58b4f0", "#ff9b57", "#3fdcae", "#f49ad0",
                                                    "#e4c64c", "#b7a6ff", "#c4c4c4", "#ff8098"};

double across(const Ruler& ruler, double value) {
  return kLeft + ruler.place(value) * (kRight - kLeft);
}
double down(const Ruler& ruler, double value) {
  return kBottom - ruler.place(value) * (kBottom - kTop);
}

// A marker of a shape of the series' own, so that readers need no colours.
std::string marker(std::size_t series, double x, double y) {
  if (series % 2 == 0)
    return verbena::format("<circle class=\"m{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>", series, x, y);
  return verbena::format("<rect class=\"m{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"7\" height=\"7\"/>", series,
                         x - 3.5, y - 3.5);
}

std::string axes(const Chart& chart, const Rulers& rulers) {
  std::string text;
  for (const Ruler::Tick& each : rulers.y.ticks(8)) {
    const double y = kBottom - each.place * (kBottom - kTop);
    text += verbena::format(
        "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text class=\"tick end\" x=\"{}\" "
        "y=\"{:.1f}\">{}</text>\n",
        kLeft, y, kRight, kLeft - 8, y + 4, each.label);
  }
  for (const Ruler::Tick& each : rulers.x.ticks(9)) {
    const double x = kLeft + each.place * (kRight - kLeft);
    text += verbena::format(
        "<path class=\"grid\" d=\"M{:.1f} {}V{}\"/><text class=\"tick middle\" x=\"{:.1f}\" "
        "y=\"{}\">{}</text>\n",
        x, kTop, kBottom + 5, x, kBottom + 22, each.label);
  }
  return text + verbena::format(
                    "<path class=\"axis\" d=\"M{0} {1}V{2}H{3}\"/>\n"
                    "<text class=\"label middle\" x=\"{4}\" y=\"{5}\">{6}</text>\n"
                    "<text class=\"label middle\" transform=\"translate(20 {7})rotate(-90)\">{8}</text>\n",
                    kLeft, kTop, kBottom, kRight, (kLeft + kRight) / 2, kBottom + 48, escaped(chart.x.label),
                    (kTop + kBottom) / 2, escaped(chart.y.label));
}

std::string line_of(const Series& series, std::size_t index, const Rulers& rulers) {
  std::string path, markers;
  for (const ChartPoint& each : series.points) {
    const double x = across(rulers.x, each.x), y = down(rulers.y, each.y);
    path += verbena::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x, y);
    if (series.points.size() <= kMaxMarkers) markers += marker(index, x, y);
  }
  return verbena::format("<path class=\"line s{}\" d=\"{}\"/>{}\n", index, path, markers);
}

std::string legend_of(const Series& series, std::size_t index) {
  const double y = kTop + 8 + static_cast<double>(index) * kLegendStep;
  return verbena::format(
      "<path class=\"line s{}\" d=\"M{} {}h28\"/>{}<text class=\"label\" x=\"{}\" y=\"{}\">{}</text>\n",
      index, kLegend, y, marker(index, kLegend + 14, y), kLegend + 38, y + 5, escaped(series.name));
}

// The contents of a chart, without the element around them.
std::string drawing(const Chart& given) {
  const Chart chart = without_unplaceable(given);
  const Rulers rulers = rulers_of(chart);
  std::string text =
      verbena::format("<rect class=\"ground\" width=\"{}\" height=\"{}\"/>\n", kWidth, kHeight);
  text += verbena::format("<text class=\"title\" x=\"{}\" y=\"26\">{}</text>\n", kLeft, escaped(chart.title));
  text += axes(chart, rulers);
  const std::size_t shown = std::min(chart.series.size(), kMaxSeries);
  for (std::size_t i = 0; i < shown; ++i)
    text += line_of(chart.series[i], i, rulers) + legend_of(chart.series[i], i);
  if (chart.series.size() > shown) {
    text +=
        verbena::format("<text class=\"tick\" x=\"{}\" y=\"{}\">{} more are not drawn</text>\n", kLegend,
                        kTop + 12 + static_cast<double>(shown) * kLegendStep, chart.series.size() - shown);
  }
  return text;
}

std::string rules(const std::array<const char*, kMaxSeries>& colours, const char* ground, const char* ink,
                  const char* grid) {
  std::string text = verbena::format(
      ".chart .ground{{fill:{0}}}.chart text{{fill:{1}}}.chart .axis{{stroke:{1}}}.chart "
      ".grid{{stroke:{2}}}\n",
      ground, ink, grid);
  for (std::size_t i = 0; i < colours.size(); ++i)
    text += verbena::format(".chart .s{0}{{stroke:{1}}}.chart .m{0}{{fill:{2};stroke:{1}}}\n", i, colours[i],
                            i < colours.size() / 2 ? colours[i] : ground);
  return text;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string made;
  for (const char each : text) {
    switch (each) {
      case '&':
        made += "&amp;";
        break;
      case '<':
        made += "&lt;";
        break;
      case '>':
        made += "&gt;";
        break;
      case '"':
        made += "&quot;";
        break;
      default:
        made += each;
    }
  }
  return made;
}

std::string chart_style() {
  return ".chart text{font-family:system-ui,'DejaVu Sans',sans-serif;font-size:13px}\n"
         ".chart .title{font-size:16px;font-weight:600}.chart .tick{font-size:12px}\n"
         ".chart .end{text-anchor:end}.chart .middle{text-anchor:middle}\n"
         ".chart .grid,.chart .axis,.chart .line{fill:none}.chart .line{stroke-width:2}\n"
         ".chart .s4,.chart .s5,.chart .s6,.chart .s7{stroke-dasharray:6 3}\n"
         ".chart circle,.chart rect{stroke-width:1.5}.chart .ground{stroke:none}\n" +
         rules(kLight, "#ffffff", "#1b1b1b", "#dddddd") + "@media (prefers-color-scheme:dark){\n" +
         rules(kDark, "#16181c", "#e8e8e8", "#3a3d44") + "}\n";
}

std::string svg_chart(const Chart& chart) {
  return verbena::format(
      "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\">\n{}</svg>\n",
      kWidth, kHeight, escaped(chart.title), drawing(chart));
}

std::string svg_file(const std::vector<Chart>& charts) {
  const double height = kHeight * static_cast<double>(charts.size());
  std::string text = verbena::format(
      "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 "
      "{0} {1}\">\n"
      "<style>\n{2}</style>\n",
      kWidth, height, chart_style());
  for (std::size_t i = 0; i < charts.size(); ++i)
    text += verbena::format("<g transform=\"translate(0 {})\">\n{}</g>\n", static_cast<double>(i) * kHeight,
                            drawing(charts[i]));
  return text + "</svg>\n";
}

}  // namespace verbena::perf
