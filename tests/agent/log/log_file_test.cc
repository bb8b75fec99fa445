// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/log/agent_log.h"
#include "base/unique_fd.h"

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Standard error is a pipe, as under `verbena run X 2>&1 | tail`.
class LogFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    reader_.reset(ends[0]);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
  }
  void TearDown() override {
    ::dup2(kept_.get(), STDERR_FILENO);
    fs::remove_all(folder_);
  }
  bool is_pipe_closed() const {
    pollfd entry{reader_.get(), POLLIN, 0};
    ::poll(&entry, 1, 0);
    return (entry.revents & POLLHUP) != 0;
  }
  static std::string text_of(const fs::path& path) {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static fs::path make_folder() {
    std::string name = testing::TempDir() + "log_file_test_XXXXXX";
    return ::mkdtemp(name.data());
  }

  const UniqueFd kept_{::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10)};
  const fs::path folder_ = make_folder();
  const fs::path path_ = folder_ / "log";
  const fs::path old_path_ = folder_ / "old-log";
  UniqueFd reader_;
};

TEST_F(LogFileTest, ClosesThePipeOfTheProgramThatStartedTheAgent) {
  ASSERT_TRUE(LogFile::is_needed());
  EXPECT_FALSE(is_pipe_closed());
  LogFile file(path_, old_path_);
  EXPECT_TRUE(is_pipe_closed());
  EXPECT_FALSE(LogFile::is_needed());
  EXPECT_TRUE(file.put("served\n"));
  EXPECT_EQ(text_of(path_), "served\n");
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(LogFileTest, WaitsForNobodyWhoHasPutAPipeThere) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0666), 0);
  LogFile file(path_, old_path_);
  EXPECT_TRUE(is_pipe_closed());
  EXPECT_TRUE(file.put("lost\n"));
}

TEST_F(LogFileTest, LiesInNoFolderOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t kNobodysUid = 3999999994;
  const fs::path home = "/tmp/verbena-" + std::to_string(kNobodysUid);
  fs::create_directory(home);
  const pid_t child = ::fork();
  if (child == 0)
    ::_exit(::setresuid(kNobodysUid, kNobodysUid, kNobodysUid) == 0 && log_file_path().empty() ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  fs::remove(home);
  EXPECT_EQ(status, 0);
}

TEST_F(LogFileTest, AFullOneBecomesTheOldOne) {
  std::ofstream(path_) << "the first " << std::string(200, 'x');
  LogFile file(path_, old_path_, 100);
  file.put("the second\n");
  EXPECT_THAT(text_of(old_path_), HasSubstr("the first"));
  EXPECT_THAT(text_of(path_), HasSubstr("the second"));
}

TEST_F(LogFileTest, OneThatBecomesFullIsReplacedAtOnce) {
  LogFile file(path_, old_path_, 100);
  std::string line(102, 'x');
  line.back() = '\n';
  file.put(line);
  file.put("the second\n");
  EXPECT_THAT(text_of(old_path_), HasSubstr("xxx"));
  EXPECT_EQ(text_of(path_), "the second\n");
}

TEST_F(LogFileTest, FollowsNoSymbolicLink) {
  const fs::path target = folder_ / "target";
  fs::create_symlink(target, path_);
  LogFile file(path_, old_path_);
  file.put("lost\n");
  EXPECT_TRUE(is_pipe_closed());
  EXPECT_FALSE(fs::exists(target));
}

}  // namespace
}  // namespace verbena::agent
