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

// A request that was sent and that an answer was not seen to: what is given back of it, should the agent end.
struct AwaitedAnswer {
  protocol::UserMad header{};
  std::array<std::byte, protocol::kLeastSentMadBytes> mad{};
};

// A port that this process has open: what the next agent is to be told of it.
struct OpenedPort {
  uint64_t number = 0;  // by which the agent knows it
  std::string device;
  bool takes_long = false;                                    // as the agent said
  bool is_lost = false;                                       // no agent has come for it
  std::map<uint32_t, protocol::MadRegisterRequest> agents;    // by the numbers that the program knows
  using AnswerKey = std::tuple<uint32_t, uint8_t, uint32_t>;  // agent, class, the program's part of the ID
  std::map<AnswerKey, AwaitedAnswer> awaited;
};

// The ports of this process by their descriptors. A child after fork() has them as well. Any thread; the lock
// is never held across anything that waits.
class OpenPorts {
 public:
  static OpenPorts& current();

  void add(int socket, OpenedPort port);
  void remove(int socket);
  // It has another agent now.
  void renumber(int socket, uint64_t number);
  void set_lost(int socket, bool is_lost);
  // As it is now. Nothing: it was not opened here.
  std::optional<OpenedPort> find(int socket);
  // Whether long messages go by it, and of its agent whether it has them cut. False: of none that is known.
  bool takes_long(int socket);
  bool cuts_for(int socket, uint32_t agent);

  void add_agent(int socket, uint32_t agent, const protocol::MadRegisterRequest& request);
  void remove_agent(int socket, uint32_t agent);
  // What the program sends and gets. `mad`: the header at least.
  void sent(int socket, const protocol::UserMad& header, ConstBytes mad);
  void not_sent(int socket, const protocol::UserMad& header, ConstBytes mad);
  void received(int socket, const protocol::UserMad& header, ConstBytes mad);

 private:
  static OpenedPort::AnswerKey key_of(const protocol::UserMad& header, ConstBytes mad);
  static void before_fork() { current().mutex_.lock(); }
  static void after_fork() { current().mutex_.unlock(); }

  std::mutex mutex_;
  std::map<int, OpenedPort> ports_;

  friend struct WatchForksOfPorts;
};

}  // namespace verbena::umad
