// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

// Runs a copy of this program that is set-user-ID, as another user, who asks for all lines.
TEST_F(Log, OfASetUserIdProgramIsNotForItsUserToChoose) {
  if (::getauxval(AT_SECURE) != 0) ::_exit(log_level() == LogLevel::kNone ? 0 : 1);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can start a program as another user";
  const std::filesystem::path copy = testing::TempDir() + "log_test_set_user_id";
  std::filesystem::copy_file("/proc/self/exe", copy, std::filesystem::copy_options::overwrite_existing);
  ASSERT_EQ(::chmod(copy.c_str(), 04755), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65533) != 0 || ::setuid(65533) != 0) ::_exit(99);
    ::setenv("VERBENA_LOG", "debug", 1);
    ::execl(copy.c_str(), copy.c_str(), "--gtest_filter=Log.OfASetUserIdProgramIsNotForItsUserToChoose",
            nullptr);
    ::_exit(99);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  std::filesystem::remove(copy);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);  // so it skips, too, where a file system gives no privileges
}

TEST_F(Log, IsNeverTheCallersProblem) {
  EXPECT_EQ(heard(LogLevel::kError, [] { log_error("{}", Unprintable{}); }), "");
}

}  // namespace
}  // namespace verbena
