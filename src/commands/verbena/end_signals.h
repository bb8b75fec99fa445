// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>

#include <sys/signalfd.h>

#include "base/unique_fd.h"

namespace verbena::commands {

// Lets a command that runs until Ctrl-C finish its output. After construction, SIGINT, SIGTERM and SIGHUP do
// not end the process but make fd() readable. A write to a closed pipe fails with EPIPE instead of ending the
// process. REQUIRES: no other threads run yet, since they would not block the signals
class EndSignals {
 public:
  EndSignals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    fd_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    std::signal(SIGPIPE, SIG_IGN);
  }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace verbena::commands
