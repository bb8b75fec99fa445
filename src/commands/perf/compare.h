// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace verbena::perf {

// A mean and half the width of its confidence interval of 95 %, from the averages of equal parts of a test.
// Neighbouring parts are alike, so the interval is a little too narrow.
struct Estimate {
  double mean = 0;
  double margin = 0;
};
Estimate estimate(const std::vector<double>& parts);

// How much the second mean differs from the first, as a part of the first, with the interval of 95 % (Welch).
Estimate relative_difference(const std::vector<double>& first, const std::vector<double>& second);

// `verbena perf --compare A.json B.json`: prints the difference of each result that both files have. Returns
// the exit status. Throws std::runtime_error if a file is no report of --json.
int compare(const std::string& first, const std::string& second);

}  // namespace verbena::perf
