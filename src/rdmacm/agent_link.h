// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "agent_client/connection.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "protocol/connection_messages.h"
#include "rdmacm/identifier.h"
#include "rdmacm/identifier_table.h"

namespace verbena::rdmacm {

// The process's connection to the agent, made at first use. When the agent dies, the next call or a thread of
// ours, whoever comes first, reaches or starts another one and tells it what there is (restoration.h).
//
// Any thread may call; calls are serialized. Two locks: mutex_ is held for as long as the agent takes, and
// taken before that of the table of identifiers.
class AgentLink {
 public:
  explicit AgentLink(IdentifierTable& identifiers);

  // Opens a channel there and adds it to the table of identifiers.
  Result<void> open(const std::shared_ptr<Channel>& channel);
  // Makes the identifier known there, under the number it has, and adds it to the table of identifiers.
  Result<void> create(Identifier& identifier);

  template <class Reply = protocol::PlainReply, class Request>
  Result<Reply> call(protocol::MessageType type, const Request& request) {
    const std::lock_guard lock(mutex_);
    return exchange<Reply>(type, [&]() -> Result<Request> { return request; });
  }

  // The same, for what only the agent of `generation` knows. ECONNRESET: it is dead; its successor gives the
  // numbers that it gave to others.
  template <class Reply = protocol::PlainReply, class Request>
  Result<Reply> call_agent_of(uint32_t generation, protocol::MessageType type, const Request& request) {
    const std::lock_guard lock(mutex_);
    return exchange<Reply>(type, [&]() -> Result<Request> {
      if (generation != generation_) return fail(ECONNRESET);
      return request;
    });
  }

  // The same for an identifier, whose number is filled in. It is in state `during` from before the agent is
  // asked, as the answering event may overtake the reply, and in its old one again if that fails.
  template <class Reply = protocol::PlainReply, class Request>
  Result<Reply> call(Identifier& identifier, protocol::MessageType type, Request request,
                     std::optional<State> during = {}) {
    const std::lock_guard lock(mutex_);
    const InCall in_call(*this, identifier, during);
    auto reply = exchange<Reply>(type, [&]() -> Result<Request> {
      const uint32_t numbered_by = identifier.numbered_by;
      if (numbered_by != 0 && numbered_by != generation_) return fail(ECONNRESET);
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
  uint32_t generation() const { return generation_.load(std::memory_order_acquire); }

  // In a child after fork(), instead of all else: the agent must see the end of the parent when it ends.
  void close_in_child();

 private:
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

  // `make_request` answers a Result, made for the agent that is there now. REQUIRES: mutex_ is held
  template <class Reply, class MakeRequest>
  Result<Reply> exchange(protocol::MessageType type, const MakeRequest& make_request,
                         std::span<const int> fds = {}) {
    // What a new agent has to be told first does not count.
    const auto deadline = [] { return MonotonicClock::now() + agent_client::kCallTimeout; };
    for (int attempt = 0;; ++attempt) {
      if (!connection_ || connection_->lost()) {
        if (const auto connected = connect(deadline()); !connected) return fail(connected.error().code);
      }
      const auto request = make_request();
      if (!request) return fail(request.error().code);
      auto answer = connection_->call<Reply>(type, *request, 0, deadline(), fds);
      if (answer) return answer->message;
      if (!connection_->lost() || attempt > 0) return fail(answer.error().code);
    }
  }

  Result<void> connect(TimePoint deadline);                                     // REQUIRES: mutex_ is held
  Result<void> greet(agent_client::Connection connection, TimePoint deadline);  // REQUIRES: mutex_ is held
  void disconnect();                                                            // REQUIRES: mutex_ is held

  void start_monitor();
  void monitor();
  Duration look_after_agent(bool readable);
  void wake_monitor();

  IdentifierTable& identifiers_;
  const agent_client::ConnectOptions options_;
  std::mutex mutex_;
  std::optional<agent_client::Connection> connection_;
  UniqueFd agent_events_;  // where its end shows first
  // What the next agent needs to have the wire again (agent/vault.h), where we are trusted with it: whoever
  // greets it first should bring it, or it serves without.
  UniqueFd vault_;
  std::array<std::atomic<int>, 3> sockets_{-1, -1, -1};  // those three, for close_in_child()
  std::atomic<uint32_t> generation_{0};
  Identifier* calling_ = nullptr;
  State before_call_{};
  uid_t agent_uid_ = agent_client::kNoAgentYet;
  bool monitored_ = false;
  UniqueFd wakeup_;
  Duration retry_{};
};

}  // namespace verbena::rdmacm
