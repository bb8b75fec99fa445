// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "control/client/agent_connection.h"
#include "control/model/link.h"
#include "control/model/message_socket.h"
#include "control/protocol/messages.h"

namespace verbena::control::test {

// An agent whose replies, including their protocol version, are scripted by the test. Serves any number of
// connections, each in a thread of its own, one request at a time, until it dies.
class FakeAgent {
 public:
  // A received message, and the number of descriptors that came with it.
  struct Request {
    protocol::MessageHeader header;
    std::vector<std::byte> message;
    size_t fds;
    protocol::MessageType type() const { return static_cast<protocol::MessageType>(header.type); }
    template <class Message>
    Message as() const {
      Message read{};
      std::memcpy(&read, message.data(), std::min(message.size(), sizeof read));
      return read;
    }
  };
  // The reply to a request: bytes with a message header, and descriptors. Without bytes, nothing is sent.
  struct Answer {
    std::vector<std::byte> bytes;
    std::vector<UniqueFd> fds;
    UniqueFd events;    // the agent's end of the client's event socket
    bool dies = false;  // the agent dies without replying
  };
  using Script = std::function<Answer(const Request&)>;

  explicit FakeAgent(Script script, uid_t user = ::geteuid()) : script_(std::move(script)), user_(user) {}
  ~FakeAgent() {
    die();
    for (Client& client : clients_) client.thread.join();
  }
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;

  AgentConnection connection() {
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    const std::lock_guard lock(mutex_);
    Client& client = clients_.emplace_back();
    client.socket.reset(ends[1]);
    if (dead_) ::shutdown(ends[1], SHUT_RDWR);
    client.thread = std::thread([this, &client] { serve(client.socket.get()); });
    return AgentConnection(UniqueFd(ends[0]), user_);
  }

  // Closes all connections and event sockets, as the end of an agent's process does.
  void die() {
    const std::lock_guard lock(mutex_);
    die_locked();
  }
  bool is_dead() {
    const std::lock_guard lock(mutex_);
    return dead_;
  }
  std::vector<Request> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  size_t count(protocol::MessageType type) {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::ranges::count(requests_, type, &Request::type));
  }
  // Sends an event to every client that was greeted.
  void send_event(ConstBytes message, std::span<const int> fds = {}) {
    const std::lock_guard lock(mutex_);
    for (const UniqueFd& events : events_)
      [[maybe_unused]] const auto sent = send_message(events.get(), message, fds);
  }

  // Returns the next message that a greeted client has sent on its event socket; empty if there is none.
  std::vector<std::byte> read_event() {
    const std::lock_guard lock(mutex_);
    for (const UniqueFd& events : events_) {
      std::array<std::byte, protocol::kMaxAgentMessageBytes> buffer;
      const auto received = receive_message(events.get(), buffer);
      if (received && received->bytes > 0) return {buffer.begin(), buffer.begin() + received->bytes};
    }
    return {};
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
  static Answer agree(const Request& request) {
    return say(protocol::PlainReply{header(request, protocol::kProtocolVersion)});
  }
  // Returns the greeting of an agent of `version`, with the message length of that version.
  static Answer greet(const Request& request, uint16_t version = protocol::kProtocolVersion,
                      uint64_t capabilities = 0, const LinkSnapshot& links = {}) {
    protocol::HelloReply reply{};
    reply.header = header(request, version);
    reply.capabilities = capabilities;
    Answer answer = say(reply, protocol::bytes_in<protocol::HelloReply>(version));
    int events[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, events) == 0) {
      answer.fds.emplace_back(events[0]);
      answer.events.reset(events[1]);
    }
    answer.fds.push_back(std::move(*write_link_file(links)));
    return answer;
  }
  static Answer refuse(const Request& request, uint16_t version, int error, std::string_view text = {}) {
    protocol::ErrorReply reply{};
    reply.header = header(request, version, error);
    std::copy(text.begin(), text.end(), reply.text);
    return say(reply);
  }
  static Answer death() {
    Answer answer;
    answer.dies = true;
    return answer;
  }

 private:
  struct Client {
    UniqueFd socket;
    std::thread thread;
  };

  void serve(int socket) {
    for (;;) {
      std::array<std::byte, protocol::kMaxAgentMessageBytes> buffer;
      const auto received = wait_for_message(socket, buffer);
      if (!received || received->bytes < sizeof(protocol::MessageHeader)) return;
      Request request{{}, {buffer.begin(), buffer.begin() + received->bytes}, received->fds.size()};
      std::memcpy(&request.header, buffer.data(), sizeof request.header);
      if (!carry_out(socket, request)) return;
    }
  }

  bool carry_out(int socket, const Request& request) {
    const std::lock_guard lock(mutex_);
    if (dead_) return false;
    requests_.push_back(request);
    Answer answer = script_(request);
    if (answer.events) events_.push_back(std::move(answer.events));
    if (answer.dies) die_locked();
    if (answer.bytes.empty()) return true;
    std::vector<int> fds;
    for (const UniqueFd& fd : answer.fds) fds.push_back(fd.get());
    return send_message(socket, answer.bytes, fds).has_value();
  }

  void die_locked() {
    dead_ = true;
    // shutdown(), not only close(): a child process of the test may have copies.
    for (const UniqueFd& events : events_) ::shutdown(events.get(), SHUT_RDWR);
    events_.clear();
    for (const Client& client : clients_) ::shutdown(client.socket.get(), SHUT_RDWR);
  }

  const Script script_;
  const uid_t user_;
  std::mutex mutex_;
  bool dead_ = false;
  std::vector<Request> requests_;
  std::vector<UniqueFd> events_;
  std::list<Client> clients_;
};

}  // namespace verbena::control::test
