// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "agent_client/connection.h"
#include "agent_client/link_table_file.h"
#include "agent_client/message_socket.h"
#include "protocol/messages.h"

namespace verbena::agent_client::test {

// The other end of a client's connection, in a thread of its own: it answers what a test says, in the version
// of the protocol that the test wants.
class FakeAgent {
 public:
  // What came: the header, and how long the message was.
  struct Request {
    protocol::MessageHeader header;
    size_t bytes;
    protocol::MessageType type() const { return static_cast<protocol::MessageType>(header.type); }
  };
  // What to answer: bytes (a reply with its header) and descriptors; nothing: no answer.
  struct Answer {
    std::vector<std::byte> bytes;
    std::vector<UniqueFd> fds;
  };
  using Script = std::function<Answer(const Request&)>;

  explicit FakeAgent(Script script) : script_(std::move(script)) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
    clients_.reset(ends[0]);
    own_.reset(ends[1]);
    thread_ = std::thread([this] { run(); });
  }
  ~FakeAgent() {
    ::shutdown(own_.get(), SHUT_RDWR);
    thread_.join();
  }

  // Once.
  Connection connection() { return Connection(std::move(clients_), ::geteuid()); }
  std::vector<Request> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  template <class Reply>
  static Answer say(const Reply& reply, size_t bytes = sizeof(Reply)) {
    Answer answer;
    answer.bytes.resize(bytes);
    std::memcpy(answer.bytes.data(), &reply, std::min(bytes, sizeof reply));
    return answer;
  }
  static protocol::MessageHeader header(const Request& request, uint16_t version, int error = 0) {
    return {protocol::kProtocolMagic, version, static_cast<uint16_t>(request.header.type | protocol::kReply),
            request.header.sequence, error};
  }
  // As an agent of `version` greets; as long as the message was in version `bytes_as`.
  static Answer greet(const Request& request, uint16_t version, uint64_t capabilities = 0) {
    protocol::HelloReply reply{};
    reply.header = header(request, version);
    reply.capabilities = capabilities;
    Answer answer = say(reply, protocol::bytes_in<protocol::HelloReply>(version));
    int events[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, events) == 0) {
      answer.fds.emplace_back(events[0]);
      ::close(events[1]);
    }
    answer.fds.push_back(std::move(*write_link_file({})));
    return answer;
  }
  static Answer refuse(const Request& request, uint16_t version, int error, std::string_view text = {}) {
    protocol::ErrorReply reply{};
    reply.header = header(request, version, error);
    std::copy(text.begin(), text.end(), reply.text);
    return say(reply);
  }

 private:
  void run() {
    for (;;) {
      std::array<std::byte, protocol::kMaxMessageBytes> buffer;
      const auto received = wait_for_message(own_.get(), buffer);
      if (!received || received->bytes < sizeof(protocol::MessageHeader)) return;
      Request request{{}, received->bytes};
      std::memcpy(&request.header, buffer.data(), sizeof request.header);
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      const Answer answer = script_(request);
      if (answer.bytes.empty()) continue;
      std::vector<int> fds;
      for (const UniqueFd& fd : answer.fds) fds.push_back(fd.get());
      if (!send_message(own_.get(), answer.bytes, fds)) return;
    }
  }

  const Script script_;
  UniqueFd clients_;
  UniqueFd own_;
  std::mutex mutex_;
  std::vector<Request> requests_;
  std::thread thread_;
};

}  // namespace verbena::agent_client::test
