// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <stdexcept>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace verbena {
namespace {

class Log : public ::testing::Test {
 protected:
  void TearDown() override { set_log_level(before_); }

  // Returns the text that `body` writes to standard error at this log level.
  template <class Body>
  std::string heard(LogLevel level, Body&& body) {
    set_log_level(level);
    ::testing::internal::CaptureStderr();
    body();
    return ::testing::internal::GetCapturedStderr();
  }

 private:
  const LogLevel before_ = log_level();
};

TEST_F(Log, SaysOneLineWithItsProcessAndLevel) {
  const std::string line = heard(LogLevel::kWarning, [] { log_warning("{} of {}", 3, "four"); });
  EXPECT_EQ(line, "verbena[" + std::to_string(::getpid()) + "] warning: 3 of four\n");
}

TEST_F(Log, KeepsSilentAboveItsLevel) {
  const auto all = [] {
    log_error("e");
    log_warning("w");
    log_info("i");
    log_debug("d");
  };
  EXPECT_EQ(heard(LogLevel::kNone, all), "");
  const std::string some = heard(LogLevel::kInfo, all);
  EXPECT_NE(some.find("error: e"), std::string::npos);
  EXPECT_NE(some.find("info: i"), std::string::npos);
  EXPECT_EQ(some.find("debug: d"), std::string::npos);
}

struct Unprintable {};

}  // namespace
}  // namespace verbena

template <>
struct fmt::formatter<verbena::Unprintable> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(const verbena::Unprintable&, Context& context) const -> decltype(context.out()) {
    throw std::runtime_error("cannot be printed");
  }
};

namespace verbena {
namespace {

TEST_F(Log, IsNeverTheCallersProblem) {
  EXPECT_EQ(heard(LogLevel::kError, [] { log_error("{}", Unprintable{}); }), "");
}

}  // namespace
}  // namespace verbena
