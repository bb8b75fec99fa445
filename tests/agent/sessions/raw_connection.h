// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/unique_fd.h"
#include "control/model/message_socket.h"
#include "control/protocol/messages.h"

namespace verbena::test {

// A connection to an agent on which a test can send arbitrary bytes.
class RawConnection {
 public:
  // Connects to the agent of this user.
  explicit RawConnection(uid_t agent = ::geteuid()) : RawConnection(control::AgentAddress(agent)) {}
  explicit RawConnection(const control::AgentAddress& address)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    connected_ = ::connect(socket_.get(), address.address(), address.length) == 0;
  }
  bool connected() const { return connected_; }
  int fd() const { return socket_.get(); }
  int events() const { return greeting_.at(0).get(); }

  bool send(ConstBytes message, std::span<const int> fds = {}) {
    return control::send_message(socket_.get(), message, fds).has_value();
  }
  // Returns the error code of the next reply; nullopt if the agent has hung up or none comes within two
  // seconds. `last` receives the reply's last descriptor.
  std::optional<int> reply(UniqueFd* last = nullptr) {
    pollfd entry{socket_.get(), POLLIN, 0};
    if (::poll(&entry, 1, 2000) != 1) return std::nullopt;
    std::array<std::byte, protocol::kMaxAgentMessageBytes> buffer;
    auto received = control::receive_message(socket_.get(), buffer);
    if (!received || received->bytes < sizeof(protocol::MessageHeader)) return std::nullopt;
    protocol::MessageHeader header;
    std::memcpy(&header, buffer.data(), sizeof header);
    last_fds_ = received->fds.size();
    if (last != nullptr && !received->fds.empty()) *last = std::move(received->fds.back());
    // Keep the event socket open: the session ends when it closes.
    if (!greeted_) greeting_ = std::move(received->fds);
    greeted_ = greeted_ || header.error == 0;
    return header.error;
  }
  // Whether the agent hangs up within two seconds. Discards messages before that.
  bool is_hung_up() {
    for (;;) {
      pollfd entry{socket_.get(), POLLIN, 0};
      if (::poll(&entry, 1, 2000) != 1) return false;
      std::array<std::byte, protocol::kMaxAgentMessageBytes> buffer;
      const auto received = control::receive_message(socket_.get(), buffer);
      if (!received || received->bytes == 0) return true;
    }
  }
  size_t last_fds() const { return last_fds_; }
  bool hello(std::span<const int> fds = {}) {
    protocol::HelloRequest request{};
    request.header = protocol::request_header(protocol::MessageType::kHello, 1);
    return send(protocol::bytes_of(request), fds) && reply() == 0;
  }

 private:
  UniqueFd socket_;
  bool connected_ = false;
  size_t last_fds_ = 0;
  bool greeted_ = false;
  std::vector<UniqueFd> greeting_;
};

}  // namespace verbena::test
