// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace verbena::perf {

// A mean with its confidence interval of 95 %, which reaches from mean - margin to mean + margin. estimate()
// calculates it from the averages of equal parts of a test. Neighbouring parts are alike, so the interval is
// a little too narrow. REQUIRES: there are two parts or more
struct Estimate {
  double mean = 0;
  double margin = 0;
};
Estimate estimate(const std::vector<double>& parts);

// Returns the difference of the second mean from the first, divided by the first, with the interval of 95 %
// (Welch). Each argument has the averages of the parts of one test.
Estimate relative_difference(const std::vector<double>& first, const std::vector<double>& second);

// `verbena perf --compare A.json B.json`: prints the difference of each result that both files have. Returns
// the exit status. Throws std::runtime_error if a file is no report of --json.
int compare(const std::string& first, const std::string& second);

}  // namespace verbena::perf
