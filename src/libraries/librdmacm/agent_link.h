// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "base/own_fd.h"
#include "base/result.h"
#include "control/client/agent_session.h"
#include "control/protocol/connection_messages.h"
#include "libraries/librdmacm/identifier.h"
#include "libraries/librdmacm/identifier_table.h"

namespace verbena::rdmacm {

// What this process has at the agent of connection management: its channels and identifiers. The session is
// made at first use. When the agent dies, the next call or a thread of ours reaches or starts another one,
// and it is told what there is (restoration.h).
//
// Any thread may call; calls are serialized. A turn of the session is taken before the lock of the table of
// identifiers.
class AgentLink final : private control::Restorer {
 public:
  explicit AgentLink(IdentifierTable& identifiers, std::unique_ptr<control::AgentDialer> dialer =
                                                       std::make_unique<control::NamespaceDialer>());

  // Opens a channel there and adds it to the table of identifiers.
  Result<void> open(const std::shared_ptr<Channel>& channel);
  // Makes the identifier known there, under the number it has, and adds it to the table of identifiers.
  Result<void> create(Identifier& identifier);

  template <class Reply = protocol::PlainReply, class Request>
  Result<Reply> call(protocol::MessageType type, const Request& request) {
    Turn turn(session_);
    return exchange<Reply>(turn, type, [&]() -> Result<Request> { return request; });
  }

  // The same, for what only the agent of `generation` knows. ECONNRESET: it is dead; its successor gives the
  // numbers that it gave to others.
  template <class Reply = protocol::PlainReply, class Request>
  Result<Reply> call_agent_of(uint32_t generation, protocol::MessageType type, const Request& request) {
    Turn turn(session_);
    return exchange<Reply>(turn, type, [&]() -> Result<Request> {
      if (generation != session_.generation()) return fail(ECONNRESET);
      return request;
    });
  }

  // The same for an identifier, whose number is filled in. It is in state `during` from before the agent is
  // asked, as the answering event may overtake the reply, and in its old one again if that fails.
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
    // An agent that does not know it is the successor of the one that did.
    if (!reply && reply.error().code == ENOENT) return fail(ECONNRESET);
    return reply;
  }

  // Puts an event of our own into a channel, now or when there is room.
  void post(Channel& channel, const protocol::CmEvent& event);
  uint32_t generation() const { return session_.generation(); }

  // In a child after fork(), instead of all else: the agent must see the end of the parent when it ends.
  void close_in_child() { session_.abandon(); }

 private:
  using Turn = control::AgentSession::Turn;

  // The identifier that is being asked about, for restorations that happen meanwhile.
  class InCall {
   public:
    InCall(AgentLink& link, Identifier& identifier, std::optional<State> during);
    ~InCall() { link_.calling_ = nullptr; }
    InCall(const InCall&) = delete;
    InCall& operator=(const InCall&) = delete;
    void failed() const;

   private:
    AgentLink& link_;
    Identifier& identifier_;
    const std::optional<State> during_;
  };

  // `make_request` answers a Result, made for the agent that is there now.
  template <class Reply, class MakeRequest>
  static Result<Reply> exchange(Turn& turn, protocol::MessageType type, const MakeRequest& make_request,
                                std::span<const int> fds = {}) {
    auto answer = turn.call_made<Reply>(type, make_request, 0, fds);
    if (!answer) return fail(answer.error().code);
    return answer->message;
  }

  // Restorer
  Result<void> restore(const control::NewAgent& agent) override;
  bool needs_agent() override { return !identifiers_.empty(); }

  void start_monitor();
  void monitor(uint32_t number);
  void attend_once(uint32_t number);
  bool may_watch(uint32_t number);
  void wake_monitor();

  IdentifierTable& identifiers_;
  control::AgentSession session_;
  // In turns of the session:
  Identifier* calling_ = nullptr;
  State before_call_{};
  bool monitored_ = false;

  std::mutex wakeup_mutex_;
  OwnFd wakeup_;           // of the thread that watches; none: it has ended, as it cannot be woken any more
  uint32_t monitors_ = 0;  // that there have been
};

}  // namespace verbena::rdmacm
