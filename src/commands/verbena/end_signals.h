// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>

#include <sys/signalfd.h>

#include "base/unique_fd.h"

namespace verbena::commands {

// SIGINT, SIGTERM and SIGHUP end a command well that goes on until then: what it has is written. From its
// making on they make fd() readable, and do nothing else; a write to a closed pipe answers EPIPE.
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
