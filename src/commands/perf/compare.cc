// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "base/format.h"

namespace verbena::perf {
namespace {

// Student's t for a probability of 95 %, by degrees of freedom from 1; 1.96 above.
constexpr std::array kStudent{12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                              2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                              2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
                              2.040, 2.037, 2.035, 2.032, 2.030, 2.028, 2.026, 2.024, 2.023, 2.021};

double student(double freedom) {
  const auto index = static_cast<std::size_t>(std::max(freedom, 1.0)) - 1;
  return index < kStudent.size() ? kStudent[index] : 1.96;
}

double mean_of(const std::vector<double>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0) / static_cast<double>(parts.size());
}

// The variance of the mean.
double variance_of_mean(const std::vector<double>& parts) {
  const auto count = static_cast<double>(parts.size());
  const double mean = mean_of(parts);
  double squares = 0;
  for (const double each : parts) squares += (each - mean) * (each - mean);
  return parts.size() > 1 ? squares / (count - 1) / count : 0;
}

nlohmann::json read(const std::string& name) {
  std::ifstream file(name);
  if (!file) throw std::runtime_error(verbena::format("cannot open '{}'", name));
  nlohmann::json report = nlohmann::json::parse(file, nullptr, false);
  if (!report.is_object() || !report.contains("test") || !report["results"].is_array())
    throw std::runtime_error(verbena::format("'{}' is no report of verbena perf --json", name));
  return report;
}

// Rows of a sweep also have their queue pairs and depth.
bool is_same_point(const nlohmann::json& a, const nlohmann::json& b) {
  return std::ranges::all_of(std::array{"bytes", "unit", "queue_pairs", "send_depth"}, [&](const char* each) {
    return a.contains(each) == b.contains(each) && (!a.contains(each) || a.at(each) == b.at(each));
  });
}

void print_row(const nlohmann::json& a, const nlohmann::json& b, bool less_is_better) {
  const auto first = a.at("parts").get<std::vector<double>>(),
             second = b.at("parts").get<std::vector<double>>();
  const double mean = a.at("average").get<double>(), other = b.at("average").get<double>();
  std::printf(" %-9lu %12.2f %12.2f  %+7.1f %%", a.at("bytes").get<unsigned long>(), mean, other,
              (other / mean - 1) * 100);
  if (first.size() < 2 || second.size() < 2) {
    std::printf("  no interval\n");
    return;
  }
  const Estimate difference = relative_difference(first, second);
  const double low = difference.mean - difference.margin, high = difference.mean + difference.margin;
  const bool is_less = high<0, is_more = low> 0;
  const char* const verdict = !is_less && !is_more        ? "no difference"
                              : is_less == less_is_better ? "better"
                                                          : "worse";
  std::printf("  %+7.1f to %+.1f %%  %s\n", low * 100, high * 100, verdict);
}

}  // namespace

Estimate estimate(const std::vector<double>& parts) {
  if (parts.empty()) return {};
  return {mean_of(parts),
          student(static_cast<double>(parts.size()) - 1) * std::sqrt(variance_of_mean(parts))};
}

Estimate relative_difference(const std::vector<double>& first, const std::vector<double>& second) {
  const double base = mean_of(first);
  const double a = variance_of_mean(first), b = variance_of_mean(second);
  const double freedom = a + b == 0 ? 1
                                    : (a + b) * (a + b) /
                                          (a * a / (static_cast<double>(first.size()) - 1) +
                                           b * b / (static_cast<double>(second.size()) - 1));
  return {mean_of(second) / base - 1, student(freedom) * std::sqrt(a + b) / base};
}

int compare(const std::string& first, const std::string& second) {
  const nlohmann::json a = read(first), b = read(second);
  try {
    const auto test = a.at("test").get<std::string>();
    if (test != b.at("test").get<std::string>())
      throw std::runtime_error("the files have results of different tests");
    bool has_rows = false;
    for (const nlohmann::json& row : a.at("results")) {
      for (const nlohmann::json& other : b.at("results")) {
        if (!is_same_point(row, other)) continue;
        if (!has_rows) {
          std::printf("%s, average in %s, A: %s, B: %s\n", test.c_str(),
                      row.at("unit").get<std::string>().c_str(), first.c_str(), second.c_str());
          std::printf(" #bytes               A            B      B - A  with 95 %% confidence\n");
        }
        has_rows = true;
        print_row(row, other, test.ends_with("_lat"));
      }
    }
    if (has_rows) return 0;
  } catch (const nlohmann::json::exception& wrong) {
    throw std::runtime_error(verbena::format("a file is no report of verbena perf --json: {}", wrong.what()));
  }
  throw std::runtime_error("the files have no size and unit in common");
}

}  // namespace verbena::perf
