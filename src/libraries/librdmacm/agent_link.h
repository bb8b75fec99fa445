// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <span>

#include "base/own_fd.h"
#include "base/result.h"
#include "control/client/agent_session.h"
#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// Return the requests that create a channel or an identifier at the agent.
protocol::CmChannelRequest open_request(const Channel& channel, uint32_t generation);
protocol::CmCreateRequest create_request(const Identifier& identifier);

// An event for the application, to put into `channel` after a restoration. It says that the agent's death has
// interrupted an operation of the identifier, or that the next agent could not restore the identifier.
struct Told {
  std::shared_ptr<Channel> channel;
  protocol::CmEvent event;
};

// Returns whether the application should still get an event of `type` that a restoration posted, when the
// identifier is in `state`. The event is out of date if the operation has ended meanwhile, by an event of the
// dead agent that was read before.
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

  // Makes run() restore this identifier in the state `before`, which it had before the current request. The
  // request was in progress when the agent died, and the caller repeats it after the restoration.
  void keep(Identifier& identifier, State before) { kept_ = {&identifier, before}; }
  // Restores everything. Returns ECONNRESET if this agent is dead, too, and ETIMEDOUT if it does not answer.
  // Returns ETOOMANYREFS if no descriptors can be sent now.
  Result<void> run();
  // Returns the events to post after run(), whether or not run() has failed.
  const std::vector<Told>& told() const { return told_; }

 private:
  struct Plan {
    uint32_t restored;
    int told;
  };
  static Plan plan_for(State state, const Identifier& identifier);
  void restore(Identifier& identifier);
  bool create(Identifier& identifier, const Plan& plan);
  void repeat(Identifier& identifier, State state);
  void tell(Identifier& identifier, rdma_cm_event_type type);

  bool is_over() const { return connection_.lost() || error_ != 0; }
  template <class Reply = protocol::PlainReply, class Request>
  bool call(protocol::MessageType type, const Request& request, std::span<const int> fds = {}) {
    if (is_over()) return false;
    const auto answer = connection_.call<Reply>(type, request, 0, deadline_, fds);
    const int error = answer ? 0 : answer.error().code;
    if (error == ETIMEDOUT || error == ETOOMANYREFS) error_ = error;
    return error == 0;
  }

  control::AgentConnection& connection_;
  IdentifierTable& identifiers_;
  const uint32_t generation_;
  const TimePoint deadline_;
  int error_ = 0;  // with which the restoration has ended early
  std::pair<Identifier*, State> kept_{};
  std::vector<Told> told_;
};

// This process's connection to the agent, for connection management: sends requests about event channels and
// identifiers. The first request connects to the agent. When the agent dies, the next call or the monitor
// thread reaches or starts another agent, and restores the channels and identifiers there (Restoration).
//
// Thread-safe; calls are serialized. Lock order: the session (Turn), then IdentifierTable's lock.
class AgentLink final : private control::Restorer {
 public:
  explicit AgentLink(IdentifierTable& identifiers, std::unique_ptr<control::AgentDialer> dialer =
                                                       std::make_unique<control::NamespaceDialer>());

  // Opens the event channel at the agent and adds it to the IdentifierTable, which lists channels as well.
  Result<void> open(const std::shared_ptr<Channel>& channel);
  // Creates the identifier at the agent, under the number that it already has, and adds it to the
  // IdentifierTable.
  Result<void> create(Identifier& identifier);

  // Sends a request to the agent, and returns the reply. Connects to an agent first if necessary.
  // `generation` is for an object that only the agent of that generation knows. Returns ECONNRESET if that
  // agent is dead: the next agent uses the same numbers for other objects.
  template <class Reply = protocol::PlainReply, class Request>
  Result<Reply> call(protocol::MessageType type, const Request& request,
                     std::optional<uint32_t> generation = {}) {
    Turn turn(session_);
    return exchange<Reply>(turn, type, [&]() -> Result<Request> {
      if (generation && generation != session_.generation()) return fail(ECONNRESET);
      return request;
    });
  }

  // Like call(), for an identifier; sets `request.id` to the identifier's number. Sets the identifier's state
  // to `during` before the request, because the resulting event may arrive before the reply. Restores the old
  // state if the request fails. Returns ECONNRESET if the agent that knew the identifier is dead.
  template <class Reply = protocol::PlainReply, class Request>
  Result<Reply> call(Identifier& identifier, protocol::MessageType type, Request request,
                     std::optional<State> during = {}) {
    Turn turn(session_);
    const InCall in_call(*this, identifier, during);
    auto reply = exchange<Reply>(turn, type, [&]() -> Result<Request> {
      const uint32_t numbered_by = identifier.numbered_by;
      if (numbered_by != 0 && numbered_by != session_.generation()) return fail(ECONNRESET);
      request.id = identifier.number;
      return request;
    });
    if (!reply) in_call.failed();
    // The agent does not know the identifier: it is the successor of the agent that did.
    if (!reply && reply.error().code == ENOENT) return fail(ECONNRESET);
    return reply;
  }

  // Puts an event that this process generates into a channel. If the channel is full, the monitor thread adds
  // the event when there is room.
  void post(Channel& channel, const protocol::CmEvent& event) {
    if (!channel.post(event)) wake_monitor();
  }
  uint32_t generation() const { return session_.generation(); }

  // Closes a child's copy of the session after fork(). With an open copy, the agent would not notice when the
  // parent ends. Called in the child only.
  void close_in_child() { session_.abandon(); }

 private:
  using Turn = control::AgentSession::Turn;

  // Records the identifier and its old state during a request, for a restoration that happens meanwhile.
  class InCall {
   public:
    InCall(AgentLink& link, Identifier& identifier, std::optional<State> during)
        : link_(link), identifier_(identifier), during_(during) {
      const std::lock_guard lock(identifier.mutex);
      link.calling_ = &identifier;
      link.before_call_ = identifier.state;
      if (during) identifier.state = *during;
    }
    ~InCall() { link_.calling_ = nullptr; }
    InCall(const InCall&) = delete;
    InCall& operator=(const InCall&) = delete;
    void failed() const {
      const std::lock_guard lock(identifier_.mutex);
      if (during_ && identifier_.state == *during_) identifier_.state = link_.before_call_;
    }

   private:
    AgentLink& link_;
    Identifier& identifier_;
    const std::optional<State> during_;
  };

  // Sends the request that make_request() returns for the connected agent. If that agent is found dead, calls
  // make_request() again for the next agent, once. An error of make_request() ends the exchange.
  template <class Reply, class MakeRequest>
  static Result<Reply> exchange(Turn& turn, protocol::MessageType type, const MakeRequest& make_request,
                                std::span<const int> fds = {}) {
    auto answer = turn.call_made<Reply>(type, make_request, 0, fds);
    if (!answer) return fail(answer.error().code);
    return answer->message;
  }

  // control::Restorer
  Result<void> restore(const control::NewAgent& agent) override;
  bool needs_agent() override { return !identifiers_.empty(); }

  void start_monitor();
  void monitor(uint32_t number);
  void attend_once(uint32_t number);
  bool may_watch(uint32_t number) {
    const std::lock_guard lock(wakeup_mutex_);
    return number == monitors_ && wakeup_.is_ours();
  }
  void wake_monitor();

  IdentifierTable& identifiers_;
  control::AgentSession session_;
  // Used only by the thread that has the session (Turn):
  Identifier* calling_ = nullptr;
  State before_call_{};
  bool monitored_ = false;

  std::mutex wakeup_mutex_;
  OwnFd wakeup_;           // wakes the monitor thread, which ends if the application closes wakeup_
  uint32_t monitors_ = 0;  // the number of monitor threads started so far
};

}  // namespace verbena::rdmacm
