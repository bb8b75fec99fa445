// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "base/bytes.h"
#include "control/protocol/mad_messages.h"

namespace verbena::umad {

// The beginning of a request whose response has not arrived. If the agent ends, the program gets this part
// back as timed out.
struct AwaitedAnswer {
  protocol::UserMad header{};
  std::array<std::byte, protocol::kLeastSentMadBytes> mad{};
};

// A port that this process has open, with the data to open the port at the next agent.
struct OpenedPort {
  uint64_t number = 0;  // the agent's number for the port
  std::string device;
  bool takes_long = false;  // the agent accepts messages longer than a MAD
  bool is_lost = false;     // the last attempt to move the port to another agent has failed
  std::map<uint32_t, protocol::MadRegisterRequest> agents;  // MAD agents, by the program's numbers
  // Identifies a request by MAD agent, management class, and low 32 bits of the transaction ID.
  using AnswerKey = std::tuple<uint32_t, uint8_t, uint32_t>;
  std::map<AnswerKey, AwaitedAnswer> awaited;
};

// The open ports of this process, by descriptor. A child after fork() inherits them. Thread-safe; the lock is
// never held during a call that waits.
class OpenPorts {
 public:
  static OpenPorts& current();

  void add(int socket, OpenedPort port);
  void remove(int socket);
  // Stores the port's number with its new agent, and forgets the awaited responses.
  void renumber(int socket, uint64_t number);
  void set_lost(int socket, bool is_lost);
  // Returns a copy of the port's data; nullopt if this process does not have the port open.
  std::optional<OpenedPort> find(int socket);
  // takes_long() tells whether the agent accepts messages longer than a MAD for the port. cuts_for() tells
  // whether this MAD agent leaves RMPP segmentation to the daemon. Both return false for an unknown port or
  // MAD agent.
  bool takes_long(int socket);
  bool cuts_for(int socket, uint32_t agent);

  void add_agent(int socket, uint32_t agent, const protocol::MadRegisterRequest& request);
  void remove_agent(int socket, uint32_t agent);
  // sent() stores a request that expects a response. received() forgets the request when its response or its
  // timeout arrives, not_sent() when sending has failed. sent() and not_sent() need a `mad` with at least the
  // header.
  void sent(int socket, const protocol::UserMad& header, ConstBytes mad);
  void not_sent(int socket, const protocol::UserMad& header, ConstBytes mad);
  void received(int socket, const protocol::UserMad& header, ConstBytes mad);

  std::mutex& mutex() { return mutex_; }

 private:
  std::mutex mutex_;
  std::map<int, OpenedPort> ports_;
};

}  // namespace verbena::umad
