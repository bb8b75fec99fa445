// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/time.h"
#include "control/client/agent_session.h"
#include "control/protocol/connection_messages.h"
#include "libraries/librdmacm/identifier.h"
#include "libraries/librdmacm/identifier_table.h"

namespace verbena::rdmacm {

protocol::CmChannelRequest open_request(const Channel& channel, uint32_t generation);
protocol::CmCreateRequest create_request(const Identifier& identifier);

// An event to be put into a channel: an identifier's that was in the middle of something.
struct Told {
  std::shared_ptr<Channel> channel;
  protocol::CmEvent event;
};

// Whether an event that a restoration told still says something new: what the dead agent had sent before may
// have been read first.
bool still_concerns(State state, rdma_cm_event_type type);

// Tells a new agent what the process has: channels, and identifiers that are bound, listen, or are connected.
// What was under way when the last one died cannot be saved; its identifiers are told so. One use, by
// AgentLink in a turn of its session.
class Restoration {
 public:
  Restoration(const control::NewAgent& agent, IdentifierTable& identifiers)
      : connection_(agent.connection),
        identifiers_(identifiers),
        generation_(agent.generation),
        deadline_(agent.deadline) {}

  // This one is being asked about, and will be again: it is restored as it was before.
  void keep(Identifier& identifier, State before) { kept_ = {&identifier, before}; }
  // ECONNRESET: this agent, too, is dead. ETIMEDOUT: it has stopped to answer.
  Result<void> run();
  // What identifiers are to hear, whatever run() answered.
  const std::vector<Told>& told() const { return told_; }

 private:
  struct Plan;
  static Plan plan_for(State state, const Identifier& identifier);
  void restore(Identifier& identifier);
  bool create(Identifier& identifier, const Plan& plan);
  void repeat(Identifier& identifier, State state);
  void tell(Identifier& identifier, rdma_cm_event_type type);

  bool is_over() const { return connection_.lost() || timed_out_; }
  template <class Reply = protocol::PlainReply, class Request>
  bool call(protocol::MessageType type, const Request& request, std::span<const int> fds = {}) {
    if (is_over()) return false;
    const auto answer = connection_.call<Reply>(type, request, 0, deadline_, fds);
    if (!answer && answer.error().code == ETIMEDOUT) timed_out_ = true;
    return answer.has_value();
  }

  control::AgentConnection& connection_;
  IdentifierTable& identifiers_;
  const uint32_t generation_;
  const TimePoint deadline_;
  bool timed_out_ = false;
  std::pair<Identifier*, State> kept_{};
  std::vector<Told> told_;
};

}  // namespace verbena::rdmacm
