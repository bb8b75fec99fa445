// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <functional>
#include <utility>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace verbena::test {

inline constexpr uid_t kOther = 65534;

// A process of another user that runs `work`. It synchronizes with the test by say() and hear(). `work`
// returns 0, or a number that tells the failed step. REQUIRES: the test is root.
class Stranger {
 public:
  class Line {
   public:
    explicit Line(int socket) : socket_(socket) {}
    void say() const {
      const char byte = 's';
      [[maybe_unused]] const ssize_t said = ::send(socket_, &byte, 1, MSG_NOSIGNAL);
    }
    // Waits for say() of the other side. False: the other side has ended.
    bool hear() const {
      char byte;
      return ::recv(socket_, &byte, 1, 0) == 1;
    }

   private:
    int socket_;
  };

  Stranger(uid_t uid, const std::function<int(const Line&)>& work) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
    ours_.reset(ends[0]);
    child_ = ::fork();
    if (child_ == 0) {
      ::close(ends[0]);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::setgid(uid) != 0 || ::setuid(uid) != 0) ::_exit(99);
      ::_exit(work(Line(ends[1])));
    }
    ::close(ends[1]);
  }
  ~Stranger() { end(); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  bool hear() const { return Line(ours_.get()).hear(); }
  void say() const { Line(ours_.get()).say(); }
  // Waits for the end of the process and returns its exit status.
  int end() {
    ours_.reset();
    if (child_ <= 0) return 98;
    int status = 0;
    ::waitpid(std::exchange(child_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  UniqueFd ours_;
  pid_t child_ = -1;
};

inline bool has_strangers() {
  return Stranger(kOther, [](const Stranger::Line&) { return 0; }).end() == 0;
}

}  // namespace verbena::test
