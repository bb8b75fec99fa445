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

// Return the requests that create a channel or an identifier at the agent.
protocol::CmChannelRequest open_request(const Channel& channel, uint32_t generation);
protocol::CmCreateRequest create_request(const Identifier& identifier);

// An event to put into a channel: the agent's death has interrupted an operation of the identifier, or the
// next agent could not restore the identifier.
struct Told {
  std::shared_ptr<Channel> channel;
  protocol::CmEvent event;
};

// Whether the application should still get an event of `type` that a restoration posted, now that the
// identifier is in `state`. Events of the dead agent, read before that event, may have ended the operation.
bool still_concerns(State state, rdma_cm_event_type type);

// Recreates the process's channels and identifiers at a new agent. Connection requests that the program has
// not answered cannot be restored and get state kLost. Resolutions and connection setups in progress when the
// last agent died are lost; their identifiers get an error event. AgentLink uses one object for each
// restoration, while no other thread uses the session.
class Restoration {
 public:
  Restoration(const control::NewAgent& agent, IdentifierTable& identifiers)
      : connection_(agent.connection),
        identifiers_(identifiers),
        generation_(agent.generation),
        deadline_(agent.deadline) {}

  // Makes run() restore this identifier in the state `before`, because a request about the identifier is in
  // progress and will be repeated.
  void keep(Identifier& identifier, State before) { kept_ = {&identifier, before}; }
  // Restores everything. Returns ECONNRESET if this agent is dead, too, and ETIMEDOUT if it does not answer.
  Result<void> run();
  // The events to post after run(), whether or not run() has failed.
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
