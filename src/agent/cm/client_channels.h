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

// The event channels of one client; sends its events. Disconnects a client that does not read them. For the
// agent's thread.
class ClientChannels {
 public:
  // REQUIRES: all of them outlive this object
  ClientChannels(EventLoop& loop, CmClientHost& host, const ClientLimits& limits,
                 std::shared_ptr<ConnectionTrace> trace)
      : loop_(loop), host_(host), limits_(limits), trace_(std::move(trace)) {}
  ~ClientChannels();
  ClientChannels(const ClientChannels&) = delete;
  ClientChannels& operator=(const ClientChannels&) = delete;

  control::AdminResult<void> open(const protocol::CmChannelRequest& request, ClientFile events);
  // REQUIRES: the channel exists and has no identifiers
  void close(uint32_t number);
  EventChannel* find(uint32_t number);
  // Stops sending, after the client has gone.
  void hang_up() { hung_up_ = true; }
  // After hang_up(): closes channels and drops waiting events, up to `most`. Returns their number.
  size_t clear(size_t most);

  // Sends the event by the identifier's channel. Returns the event's number there, or 0 if it was not sent.
  uint64_t send(CmIdentifier& id, const protocol::CmEvent& event) { return send(id, event, id); }
  // Like send(id, event), for an event about another identifier: a request to a listener.
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
