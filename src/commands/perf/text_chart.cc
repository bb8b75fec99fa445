// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/text_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "base/format.h"

namespace verbena::perf {
namespace {

constexpr int kColumns = 66, kRows = 16;       // of the plot
constexpr int kMargin = 9;                     // columns of the labels before it
constexpr int kDotsAcross = 2, kDotsDown = 4;  // of a Braille character
constexpr std::array<const char*, kMaxSeries> kMarkers{"●", "■", "▲", "◆", "○", "□", "△", "◇"};
constexpr std::array<int, kMaxSeries> kColours{36, 33, 32, 35, 34, 31, 37, 96};  // ANSI

// Text of one column for each cell. A cell shows a marker or up to eight dots, in the colour of its series.
class Canvas {
 public:
  // x from 0 to 1 is left to right, y from 0 to 1 bottom to top.
  void mark(double x, double y, std::size_t series) {
    Cell& cell = at(dot(x, kColumns * kDotsAcross) / kDotsAcross, dot(1 - y, kRows * kDotsDown) / kDotsDown);
    if (cell.marker == nullptr) cell = {0, kMarkers[series], series};
  }
  void line(const ChartPoint& from, const ChartPoint& to, std::size_t series) {
    constexpr int kSamples = kColumns * kDotsAcross;
    for (int i = 0; i <= kSamples; ++i) {
      const double part = static_cast<double>(i) / kSamples;
      set(from.x + (to.x - from.x) * part, from.y + (to.y - from.y) * part, series);
    }
  }
  std::string row(int row, bool has_colours) const {
    std::string text;
    for (int column = 0; column < kColumns; ++column) {
      const Cell& cell = cells_[static_cast<std::size_t>(row * kColumns + column)];
      const std::string shown = cell.marker != nullptr ? cell.marker
                                : cell.dots != 0       ? braille(cell.dots)
                                                       : " ";
      text += has_colours && shown != " " ? verbena::format("\x1b[{}m{}\x1b[0m", kColours[cell.series], shown)
                                          : shown;
    }
    return text;
  }

 private:
  struct Cell {
    std::uint8_t dots = 0;
    const char* marker = nullptr;
    std::size_t series = 0;
  };

  static int dot(double place, int count) { return static_cast<int>(std::lround(place * (count - 1))); }
  Cell& at(int column, int row) { return cells_[static_cast<std::size_t>(row * kColumns + column)]; }
  void set(double x, double y, std::size_t series) {
    // Unicode numbers the dots of the first three rows column by column, and those of the fourth after them.
    constexpr std::uint8_t kBits[kDotsDown][kDotsAcross] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const int across = dot(x, kColumns * kDotsAcross), down = dot(1 - y, kRows * kDotsDown);
    Cell& cell = at(across / kDotsAcross, down / kDotsDown);
    cell.dots |= kBits[down % kDotsDown][across % kDotsAcross];
    cell.series = cell.marker != nullptr ? cell.series : series;
  }
  // The UTF-8 form of U+2800 and the dots.
  static std::string braille(std::uint8_t dots) {
    return {static_cast<char>(0xe2), static_cast<char>(0xa0 | dots >> 6),
            static_cast<char>(0x80 | (dots & 0x3f))};
  }

  std::array<Cell, static_cast<std::size_t>(kColumns* kRows)> cells_{};
};

// Puts labels below the axis: each begins below its place, unless the one before it is still there.
std::string labels_below(const Ruler& ruler) {
  std::string line(kMargin + 1, ' ');
  for (const Ruler::Tick& each : ruler.ticks(kColumns / 9)) {
    const auto at = static_cast<std::size_t>(kMargin + 1 + std::lround(each.place * (kColumns - 1)));
    const std::size_t start =
        std::min(at, static_cast<std::size_t>(kMargin + 1 + kColumns) - each.label.size());
    if (start < line.size() + (line.back() == ' ' ? 0 : 1)) continue;
    line.resize(start, ' ');
    line += each.label;
  }
  return line;
}

void draw(Canvas& canvas, const Chart& chart, const Rulers& rulers) {
  for (std::size_t i = 0; i < std::min(chart.series.size(), kMaxSeries); ++i) {
    std::vector<ChartPoint> places;
    for (const ChartPoint& each : chart.series[i].points)
      places.push_back({rulers.x.place(each.x), rulers.y.place(each.y)});
    for (std::size_t k = 1; k < places.size(); ++k) canvas.line(places[k - 1], places[k], i);
    if (places.size() > kMaxMarkers) continue;
    for (const ChartPoint& each : places) canvas.mark(each.x, each.y, i);
  }
}

}  // namespace

std::string text_chart(const Chart& given, bool has_colours) {
  const Chart chart = without_unplaceable(given);
  const Rulers rulers = rulers_of(chart);
  Canvas canvas;
  draw(canvas, chart, rulers);
  std::array<std::string, kRows> labels;
  for (const Ruler::Tick& each : rulers.y.ticks(kRows / 2))
    labels[static_cast<std::size_t>(std::lround((1 - each.place) * (kRows - 1)))] = each.label;
  std::string text = verbena::format("\n{}: {}\n", chart.title, chart.y.label);
  for (int row = 0; row < kRows; ++row) {
    const std::string& label = labels[static_cast<std::size_t>(row)];
    text += verbena::format("{:>{}} {}{}\n", label, kMargin - 1, label.empty() ? "│" : "┤",
                            canvas.row(row, has_colours));
  }
  text += std::string(kMargin, ' ') + "└";
  for (int column = 0; column < kColumns; ++column) text += "─";
  text += "\n" + labels_below(rulers.x) + "\n" +
          verbena::format("{:>{}}\n", chart.x.label, kMargin + 1 + kColumns);
  for (std::size_t i = 0; i < std::min(chart.series.size(), kMaxSeries); ++i) {
    const std::string marker =
        has_colours ? verbena::format("\x1b[{}m{}\x1b[0m", kColours[i], kMarkers[i]) : kMarkers[i];
    text += verbena::format("  {} {}\n", marker, chart.series[i].name);
  }
  if (chart.series.size() > kMaxSeries)
    text += verbena::format("  {} more lines are not drawn\n", chart.series.size() - kMaxSeries);
  return text;
}

}  // namespace verbena::perf
