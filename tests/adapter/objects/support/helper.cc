// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/support/helper.h"

#include <cerrno>
#include <csignal>
#include <map>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace verbena::adapter::testing {
namespace {

constexpr const char* kOption = "--helper";
constexpr int kLineFd = 3;

std::map<std::string, std::function<void(Line&)>>& bodies() {
  static auto& all = *new std::map<std::string, std::function<void(Line&)>>;
  return all;
}

}  // namespace

bool Line::write_all(const void* from, size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t some = ::send(fd_.get(), at, bytes, MSG_NOSIGNAL);
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) return false;
    at += some;
    bytes -= static_cast<size_t>(some);
  }
  return true;
}

bool Line::read_all(void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t some = ::read(fd_.get(), at, bytes);
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) return false;
    at += some;
    bytes -= static_cast<size_t>(some);
  }
  return true;
}

void Line::await_end() {
  char ignored;
  while (read_all(&ignored, 1)) {
  }
}

Helper Helper::start(const std::string& name) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  std::string program = "/proc/self/exe";
  std::string option = kOption;
  std::string wanted = name;
  char* arguments[] = {program.data(), option.data(), wanted.data(), nullptr};
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (ends[1] == kLineFd) {
      ::fcntl(kLineFd, F_SETFD, 0);
    } else {
      ::dup2(ends[1], kLineFd);
    }
    ::execv(arguments[0], arguments);
    ::_exit(127);
  }
  EXPECT_GT(pid, 0);
  ::close(ends[1]);
  return Helper(pid, UniqueFd(ends[0]));
}

Helper::~Helper() {
  kill(SIGKILL);
  wait();
}

void Helper::kill(int signal) {
  if (pid_ > 0) ::kill(pid_, signal);
}

int Helper::wait() {
  int status = -1;
  if (pid_ > 0) ::waitpid(std::exchange(pid_, -1), &status, 0);
  return status;
}

HelperBody::HelperBody(const std::string& name, std::function<void(Line&)> body) {
  bodies()[name] = std::move(body);
}

std::optional<int> run_helper(int argc, char** argv) {
  if (argc < 3 || std::string(argv[1]) != kOption) return std::nullopt;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::testing::InitGoogleTest(&argc, argv);
  const auto body = bodies().find(argv[2]);
  if (body == bodies().end()) return 126;
  {
    Line line{UniqueFd(kLineFd)};
    body->second(line);
  }
  return ::testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace verbena::adapter::testing
