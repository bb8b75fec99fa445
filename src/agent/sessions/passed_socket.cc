// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/passed_socket.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/paths/users.h"
#include "control/model/message_socket.h"

namespace verbena::agent {
namespace {

constexpr int kFirst = 3;  // SD_LISTEN_FDS_START

int number_in(const char* variable) {
  const char* text = ::secure_getenv(variable);
  const std::string_view word = text != nullptr ? text : "";
  int number = 0;
  const auto read = std::from_chars(word.data(), word.data() + word.size(), number);
  return read.ec == std::errc() && read.ptr == word.data() + word.size() ? number : 0;
}

int option_of(int socket, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

bool listens_for_us(int socket) {
  sockaddr_un address{};
  socklen_t length = sizeof address;
  const control::AgentAddress own(paths::own_user());
  return option_of(socket, SO_TYPE) == SOCK_SEQPACKET && option_of(socket, SO_ACCEPTCONN) == 1 &&
         ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0 && length == own.length &&
         std::memcmp(&address, own.address(), length) == 0;
}

}  // namespace

UniqueFd take_passed_socket() {
  const bool is_ours = number_in("LISTEN_PID") == ::getpid() && number_in("LISTEN_FDS") >= 1;
  for (const char* variable : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(variable);
  if (!is_ours) return {};
  if (!listens_for_us(kFirst)) {
    log_warning("the socket that the service manager has passed is not the one of this user's agent");
    return {};
  }
  if (::fcntl(kFirst, F_SETFL, O_RDWR | O_NONBLOCK) != 0 || ::fcntl(kFirst, F_SETFD, FD_CLOEXEC) != 0)
    return {};
  return UniqueFd(kFirst);
}

}  // namespace verbena::agent
