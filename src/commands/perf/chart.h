// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// A chart with lines, independent of where it is drawn.
namespace verbena::perf {

// The scale of an axis. kLinear begins at zero. kLog is logarithmic, with ticks at 1, 2 and 5 times powers of
// ten. kBytes and kPowers are logarithmic, with ticks at powers of two. kBytes labels them in B, KiB and MiB.
// kNines shows fractions from 0 to 1, such as a part of all messages. On it, 0.9, 0.99 and 0.999 are equally
// far apart.
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
inline constexpr double kMaxFigure = 1e18;      // no test has larger figures
inline constexpr std::size_t kMaxMarkers = 32;  // a series with more points has none, so that its line shows

// Places values on an axis.
class Ruler {
 public:
  // Makes a ruler for the values from `least` to `most`. With kLinear and kNines, the axis begins at 0
  // instead of `least`. A limit that the scale cannot show is replaced by the nearest value that it can show
  // (see can_place()). REQUIRES: least <= most
  Ruler(Scale scale, double least, double most);

  // Returns the position of a value on the axis: 0 is the beginning of the axis, 1 is its end. Values beyond
  // the ends get 0 or 1.
  double place(double value) const;

  struct Tick {
    double place;
    std::string label;
  };
  // Returns at most `count` labelled positions on the axis.
  std::vector<Tick> ticks(std::size_t count) const;

 private:
  double transformed(double value) const;

  Scale scale_;
  double low_, high_;  // transformed
  double step_ = 1;    // of kLinear
};

// Returns whether a scale can show a value. Scales show values from 1e-12 to kMaxFigure, so that a
// logarithmic axis covers at most 30 powers of ten. kLinear also shows 0. kNines shows values from 0 to 1 -
// 1e-12.
bool can_place(Scale scale, double value);

// Returns the chart without the points that its scales cannot show (see can_place()). There are such points:
// a test whose messages were all lost has latencies of zero or infinity, and a peer may send any figures.
Chart without_unplaceable(Chart chart);

// The rulers of both axes of a chart. rulers_of() returns them, also for a chart without points. REQUIRES:
// the scales can place all points (see without_unplaceable())
struct Rulers {
  Ruler x;
  Ruler y;
};
Rulers rulers_of(const Chart& chart);

}  // namespace verbena::perf
