// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/format.h"
#include "commands/perf/size_text.h"

namespace verbena::perf {
namespace {

constexpr double kTolerance = 1e-9;  // of logarithms
constexpr double kSteps[] = {1, 2, 5};
constexpr double kMinFigure = 1e-12;

bool has_logarithm(Scale scale) {
  return scale == Scale::kLog || scale == Scale::kBytes || scale == Scale::kPowers;
}

// Returns the lower limit for what is no number.
double limited(double value, double least, double most) {
  return std::max(least, std::min(value, most));
}

// Returns the nearest value that the scale can place.
double nearest(Scale scale, double value) {
  if (scale == Scale::kNines) return limited(value, 0, 1 - kMinFigure);
  return value > 0 || has_logarithm(scale) ? limited(value, kMinFigure, kMaxFigure) : 0;
}

std::string number_text(double value) {
  return value >= 1000 ? verbena::format("{:.0f}", value) : verbena::format("{:g}", value);
}

std::string bytes_label(double bytes) {
  const std::string text = size_text(static_cast<std::uint64_t>(bytes));
  if (text.ends_with('K')) return text.substr(0, text.size() - 1) + " KiB";
  if (text.ends_with('M')) return text.substr(0, text.size() - 1) + " MiB";
  return text + " B";
}

// The numbers 1, 2 and 5 times powers of ten from one to another, a step more at both ends. REQUIRES: both
// are finite and not zero
std::vector<double> round_numbers(double least, double most) {
  std::vector<double> all;
  const int last = static_cast<int>(std::ceil(std::log10(most))) + 1;
  for (int power = static_cast<int>(std::floor(std::log10(least))) - 1; power <= last; ++power) {
    for (const double step : kSteps) all.push_back(step * std::pow(10, power));
  }
  return all;
}

double round_up(double value) {
  for (const double each : round_numbers(value, value)) {
    if (each >= value * (1 - kTolerance)) return each;
  }
  return value;
}

double round_down(double value) {
  double found = value;
  for (const double each : round_numbers(value, value)) {
    if (each <= value * (1 + kTolerance)) found = each;
  }
  return found;
}

}  // namespace

Ruler::Ruler(Scale scale, double least, double most) : scale_(scale), low_(0), high_(1) {
  constexpr double kIntervals = 5;
  least = nearest(scale, least);
  most = nearest(scale, most);
  switch (scale) {
    case Scale::kLinear:
      if (most > 0) step_ = round_up(most / kIntervals);
      high_ = std::max(std::ceil(most / step_ - kTolerance), 1.0) * step_;
      return;
    case Scale::kLog:
      low_ = transformed(round_down(least));
      high_ = transformed(round_up(most));
      break;
    case Scale::kNines:
      high_ = transformed(most);
      break;
    default:
      low_ = std::floor(transformed(least) + kTolerance);
      high_ = std::ceil(transformed(most) - kTolerance);
  }
  if (high_ - low_ < kTolerance) high_ = low_ + 1;
}

double Ruler::transformed(double value) const {
  switch (scale_) {
    case Scale::kLinear:
      return value;
    case Scale::kLog:
      return std::log10(value);
    case Scale::kNines:
      return -std::log10(std::max(1 - value, std::numeric_limits<double>::min()));
    default:
      return std::log2(value);
  }
}

double Ruler::place(double value) const {
  return limited((transformed(value) - low_) / (high_ - low_), 0, 1);
}

std::vector<Ruler::Tick> Ruler::ticks(std::size_t count) const {
  std::vector<double> values;
  const auto add_log = [&](bool only_tens) {
    values.clear();
    for (const double each : round_numbers(std::pow(10, low_), std::pow(10, high_))) {
      const double power = std::log10(each);
      if (only_tens && std::abs(power - std::round(power)) > kTolerance) continue;
      if (power >= low_ - kTolerance && power <= high_ + kTolerance) values.push_back(each);
    }
  };
  switch (scale_) {
    case Scale::kLinear:
      for (int i = 0; i <= static_cast<int>(std::lround(high_ / step_)); ++i) values.push_back(i * step_);
      break;
    case Scale::kLog:
      add_log(false);
      if (values.size() > count) add_log(true);
      break;
    case Scale::kNines:
      values = {0, 0.5};
      for (double rest = 0.1; - std::log10(rest) <= high_ + kTolerance; rest /= 10)
        values.push_back(1 - rest);
      break;
    default:
      for (int power = static_cast<int>(low_); power <= static_cast<int>(high_); ++power)
        values.push_back(std::exp2(power));
  }
  const std::size_t each = (values.size() + count - 1) / count;
  std::vector<Tick> ticks;
  for (std::size_t i = 0; i < values.size(); i += each) {
    const double value = values[i];
    ticks.push_back({place(value), scale_ == Scale::kBytes   ? bytes_label(value)
                                   : scale_ == Scale::kNines ? verbena::format("{:.6g} %", value * 100)
                                                             : number_text(value)});
  }
  return ticks;
}

bool can_place(Scale scale, double value) {
  return nearest(scale, value) == value;
}

Chart without_unplaceable(Chart chart) {
  for (Series& series : chart.series) {
    std::erase_if(series.points, [&](const ChartPoint& each) {
      return !can_place(chart.x.scale, each.x) || !can_place(chart.y.scale, each.y);
    });
  }
  return chart;
}

Rulers rulers_of(const Chart& chart) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  ChartPoint least{kInfinity, kInfinity}, most{-kInfinity, -kInfinity};
  for (const Series& series : chart.series) {
    for (const ChartPoint& each : series.points) {
      least = {std::min(least.x, each.x), std::min(least.y, each.y)};
      most = {std::max(most.x, each.x), std::max(most.y, each.y)};
    }
  }
  if (least.x > most.x) {  // an empty chart has axes, too
    const auto usual = [](Scale scale) {
      return Ruler(scale, scale == Scale::kNines ? 0 : 1, scale == Scale::kNines ? 0.9 : 2);
    };
    return {usual(chart.x.scale), usual(chart.y.scale)};
  }
  return {Ruler(chart.x.scale, least.x, most.x), Ruler(chart.y.scale, least.y, most.y)};
}

}  // namespace verbena::perf
