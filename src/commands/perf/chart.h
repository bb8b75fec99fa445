// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// A chart with lines, independent of where it is drawn.
namespace verbena::perf {

// The scale of an axis. kLinear begins at zero. kBytes and kPowers double from one step to the next. kNines
// is for parts of all messages: 0.9, 0.99 and 0.999 are equally far apart.
enum class Scale : std::uint8_t { kLinear, kLog, kBytes, kPowers, kNines };

struct Axis {
  std::string label;  // with the unit
  Scale scale = Scale::kLinear;
};
struct ChartPoint {
  double x = 0;
  double y = 0;
};
struct Series {
  std::string name;
  std::vector<ChartPoint> points;
};
struct Chart {
  std::string title;
  Axis x;
  Axis y;
  std::vector<Series> series;
};
inline constexpr std::size_t kMaxSeries = 8;    // as many as readers and palettes can tell apart
inline constexpr double kMaxFigure = 1e18;      // larger ones are of no test
inline constexpr std::size_t kMaxMarkers = 32;  // of a series; more of them would hide its line

// Places values on an axis.
class Ruler {
 public:
  // Takes the nearest values that the scale can place. REQUIRES: least <= most
  Ruler(Scale scale, double least, double most);

  // Returns a place from 0 to 1 for the values between least and most.
  double place(double value) const;

  struct Tick {
    double place;
    std::string label;
  };
  // Returns at most `count` labelled places.
  std::vector<Tick> ticks(std::size_t count) const;

 private:
  double transformed(double value) const;

  Scale scale_;
  double low_, high_;  // transformed
  double step_ = 1;    // of kLinear
};

// Whether a scale has room for a value: none for less than a million millionth or more than a million million
// millions, so that all axes are short. Zero has no logarithm. A part of all messages is less than one.
bool can_place(Scale scale, double value);

// Returns a chart without the points that its scales cannot place: a test whose messages were all lost has
// latencies of zero or infinity, and a peer may say anything.
Chart without_unplaceable(Chart chart);

// Returns the rulers of a chart that has only points which its scales can place, or none.
struct Rulers {
  Ruler x;
  Ruler y;
};
Rulers rulers_of(const Chart& chart);

}  // namespace verbena::perf
