// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "agent/cm/client_host.h"
#include "agent/cm/client_limits.h"
#include "agent/cm/connection_trace.h"
#include "agent/cm/event_channel.h"
#include "agent/cm/identifier.h"
#include "agent/event_loop.h"
#include "agent/sessions/foreign_closer.h"
#include "control/model/admin_error.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

// The event channels of one client, and how events leave by them. A client that does not read its events is
// hung up on. Of the agent's thread.
class ClientChannels {
 public:
  // REQUIRES: all of them outlive this
  ClientChannels(EventLoop& loop, CmClientHost& host, const ClientLimits& limits,
                 std::shared_ptr<ConnectionTrace> trace)
      : loop_(loop), host_(host), limits_(limits), trace_(std::move(trace)) {}
  ~ClientChannels();
  ClientChannels(const ClientChannels&) = delete;
  ClientChannels& operator=(const ClientChannels&) = delete;

  control::AdminResult<void> open(const protocol::CmChannelRequest& request, ClientFile events);
  // REQUIRES: the channel is there, and no identifier has it
  void close(uint32_t number);
  EventChannel* find(uint32_t number);
  // The client has gone: nothing is sent any more.
  void hang_up() { hung_up_ = true; }
  // Then closes them and drops what waits in them, so much at most; how much it was.
  size_t clear(size_t most);

  // Sends the event by the identifier's channel. Its number there; 0: it was not sent.
  uint64_t send(CmIdentifier& id, const protocol::CmEvent& event) { return send(id, event, id); }
  // The same of an event that is about another one: a request to a listener.
  uint64_t send(CmIdentifier& id, const protocol::CmEvent& event, const CmIdentifier& about);

 private:
  EventLoop& loop_;
  CmClientHost& host_;
  const ClientLimits& limits_;
  const std::shared_ptr<ConnectionTrace> trace_;
  size_t waiting_events_ = 0;
  std::unordered_map<uint32_t, std::unique_ptr<EventChannel>> channels_;
  bool hung_up_ = false;
};

}  // namespace verbena::agent
