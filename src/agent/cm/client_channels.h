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

// Owns the event channels of one client, and sends its events through them. Disconnects a client whose queued
// events exceed its limits (ClientLimits). For the agent's thread.
class ClientChannels {
 public:
  // REQUIRES: loop, host and limits outlive this object
  ClientChannels(EventLoop& loop, CmClientHost& host, const ClientLimits& limits,
                 std::shared_ptr<ConnectionTrace> trace)
      : loop_(loop), host_(host), limits_(limits), trace_(std::move(trace)) {}
  ~ClientChannels();
  ClientChannels(const ClientChannels&) = delete;
  ClientChannels& operator=(const ClientChannels&) = delete;

  // Opens a channel. `events`: the agent's end of a socket pair that the program has created. Fails with
  // EEXIST, EMFILE (too many channels) or EINVAL (no SOCK_SEQPACKET socket).
  control::AdminResult<void> open(const protocol::CmChannelRequest& request, ClientFile events);
  // Closes the channel and drops its queued events. REQUIRES: the channel exists and has no identifiers
  void close(uint32_t number);
  EventChannel* find(uint32_t number);
  // Makes send() drop all further events. Called when the client has gone.
  void hang_up() { hung_up_ = true; }
  // Closes channels and drops queued events, up to `most` in total. Returns their number. REQUIRES: hang_up()
  size_t clear(size_t most);

  // Sends the event on the identifier's channel. Returns the event's number on that channel. Returns 0 if the
  // event was not sent: the channel does not exist, or the client is being disconnected.
  uint64_t send(CmIdentifier& id, const protocol::CmEvent& event) { return send(id, event, id); }
  // Like send(id, event), but traces the event as one of `about`. Used for CONNECT_REQUEST, which goes to the
  // listener's channel and is about the request's identifier.
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
