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

// An event to put into a channel, for an identifier whose operation the agent's death has interrupted.
struct Told {
  std::shared_ptr<Channel> channel;
  protocol::CmEvent event;
};

// Whether an event that a restoration posted is still news: the application may first have read events that
// the dead agent sent.
bool still_concerns(State state, rdma_cm_event_type type);

// Tells a new agent about the process's channels, and about identifiers that are bound, listen or are
// connected. Operations in progress when the last agent died are lost; their identifiers get an error event.
// Used once, by AgentLink in a turn of its session.
class Restoration {
 public:
  Restoration(const control::NewAgent& agent, IdentifierTable& identifiers)
      : connection_(agent.connection),
        identifiers_(identifiers),
        generation_(agent.generation),
        deadline_(agent.deadline) {}

  // Restores this identifier in the state `before`: a request about it is in progress and will be repeated.
  void keep(Identifier& identifier, State before) { kept_ = {&identifier, before}; }
  // ECONNRESET: this agent is dead, too. ETIMEDOUT: this agent does not answer.
  Result<void> run();
  // The events to post, whatever run() returned.
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
