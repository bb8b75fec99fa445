// SPDX-License-Identifier: Apache-2.0
// The libraries that ours depend on: only those of C and C++.
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "libraries/libibverbs/command.h"

namespace verbena {
namespace {

std::set<std::string> needed_by(const std::string& library) {
  std::istringstream lines(run_command("readelf -dW " VERBENA_LIBRARIES "/" + library).output);
  std::set<std::string> needed;
  std::string line;
  while (std::getline(lines, line)) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    const size_t from = line.find('[') + 1;
    needed.insert(line.substr(from, line.find(']') - from));
  }
  return needed;
}

class LibrariesNeededBy : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Libraries, LibrariesNeededBy,
                         ::testing::Values("libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1", "libefa.so.1",
                                           "libibumad.so.3"),
                         [](const auto& param) {
                           const std::string name = param.param;
                           return name.substr(0, name.find('.'));
                         });

TEST_P(LibrariesNeededBy, AreThoseOfTheLanguage) {
  std::set<std::string> allowed = {"libc.so.6",
                                   "libm.so.6",
                                   "libstdc++.so.6",
                                   "libgcc_s.so.1",
                                   "ld-linux-x86-64.so.2",
                                   "ld-linux-aarch64.so.1"};
  if (GetParam() == std::string("librdmacm.so.1")) allowed.insert("libibverbs.so.1");
  const auto needed = needed_by(GetParam());
  EXPECT_TRUE(needed.contains("libc.so.6"));
  for (const std::string& library : needed) EXPECT_TRUE(allowed.contains(library)) << library;
}

}  // namespace
}  // namespace verbena
