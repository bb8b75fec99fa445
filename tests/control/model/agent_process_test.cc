// SPDX-License-Identifier: Apache-2.0
// How programs start the agent.
#include "control/model/agent_process.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/sessions/silent_file.h"
#include "base/format.h"
#include "base/unique_fd.h"

namespace verbena::control {
namespace {

// Returns whether the other end of a pipe is closed within ten seconds.
bool ends(const UniqueFd& pipe) {
  pollfd entry{pipe.get(), POLLIN, 0};
  return ::poll(&entry, 1, 10'000) == 1 && (entry.revents & POLLHUP) != 0;
}

TEST(StartAgent, TellsWhenTheProgramHasEnded) {
  const auto started = start_agent("/bin/true");
  ASSERT_TRUE(started);
  EXPECT_TRUE(ends(*started));
}

TEST(StartAgent, FailsWithoutAProgram) {
  EXPECT_EQ(start_agent("/proc/self/agent").error().code, ENOENT);
  EXPECT_EQ(start_agent_alone("/proc/self/agent", {}).error().code, ENOENT);
}

TEST(StartAgent, IsNoChildOfTheCaller) {
  ASSERT_TRUE(start_agent("/bin/true"));
  EXPECT_EQ(::waitpid(-1, nullptr, __WALL), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(StartAgent, PassesNoDescriptorOn) {
  char directory[] = "/tmp/verbena-start-XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string path = verbena::format("{}/fifo", directory);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  UniqueFd fifo(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  int ends_of_pipe[2];
  ASSERT_EQ(::pipe(ends_of_pipe), 0);  // without O_CLOEXEC
  const UniqueFd read_end(ends_of_pipe[0]);
  UniqueFd write_end(ends_of_pipe[1]);
  EXPECT_TRUE(start_agent_alone("/bin/cat", {path}));  // ends when we close the FIFO
  write_end.reset();
  EXPECT_TRUE(ends(read_end)) << "it has a copy";
  fifo.reset();
  ::unlink(path.c_str());
  ::rmdir(directory);
}

// A peer may have sent it. The program waits until the server ends, but not the caller.
TEST(StartAgent, DoesNotWaitForFilesThatDoNotAnswer) {
  const test::SilentFile file;
  if (file.fd() < 0) GTEST_SKIP() << "no FUSE here";
  EXPECT_TRUE(start_agent("/bin/true"));
  EXPECT_TRUE(start_agent_alone("/bin/true", {}));
  ::kill(file.server(), SIGKILL);
  ::waitpid(file.server(), nullptr, 0);
}

}  // namespace
}  // namespace verbena::control
