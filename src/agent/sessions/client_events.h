// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <sys/types.h>

#include "agent/event_loop.h"
#include "agent/links/link_publisher.h"
#include "agent/sessions/client_sockets.h"
#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/model/domain_peer.h"
#include "control/model/slot_capture.h"
#include "control/model/slot_channel.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// A client's event socket: what it is told without having asked, and what it says to that. A client that does
// not read costs one message of links and a bounded number of peers, channels and captures.
class ClientEvents {
 public:
  struct Surroundings {
    std::function<void(uint64_t domain, uint32_t slot)> on_ask_peer;
    std::function<void(uint32_t own_slot, uint32_t peer_slot)> on_ask_channel;
    std::function<void()> on_end;  // the client has closed its end
  };
  // `user`: whose the client is.
  ClientEvents(EventLoop& loop, ClientSockets& sockets, uid_t user, const LinkPublisher& links,
               Surroundings surroundings);
  ~ClientEvents();
  ClientEvents(const ClientEvents&) = delete;
  ClientEvents& operator=(const ClientEvents&) = delete;

  // Begins; answers the client's end. `version`: of the protocol, that both speak.
  Result<UniqueFd> open(uint16_t version);
  // Nothing more is read or said.
  void stop() { stopped_ = true; }

  // The link table is a new one.
  void links_changed();
  // Tells of another process in a domain, or that there is none. False: the client has not read what it was
  // told before, and will not hear of this. `other`: the user who has the other end of the socket.
  bool tell_peer(control::DomainPeer peer, uid_t other);
  // Tells of a channel to another slot, or that there is none. False: as above, or the client speaks a
  // version without channels.
  bool tell_channel(control::SlotChannel channel, uid_t other);
  // Tells that a slot is captured, or no longer. False: as above. An end is always told: there are no more of
  // them than beginnings.
  bool tell_capture(control::SlotCapture capture);
  // Tells that each packet is to be traced, or no longer. False: as above; an end is always told, likewise.
  bool tell_trace(bool on);

 private:
  bool knows_channels() const { return version_ >= protocol::kFirstVersionWithChannels; }
  bool knows_captures() const { return version_ >= protocol::kFirstVersionWithCaptures; }
  bool knows_traces() const { return version_ >= protocol::kFirstVersionWithTraces; }
  // Handles one message. False: there is none now.
  bool on_readable();
  void take(ConstBytes message);
  void push_links();
  bool say_peer(const control::DomainPeer& peer);
  bool say_channel(const control::SlotChannel& channel);
  // With the file, if there is one; counted until the client has seen it.
  template <class Message>
  bool say(const Message& message, const UniqueFd& file, uint32_t& unseen);

  EventLoop& loop_;
  ClientSockets& sockets_;
  const uid_t user_;
  const LinkPublisher& links_;
  const Surroundings surroundings_;
  std::optional<ClientSocket> socket_;
  uint16_t version_ = protocol::kProtocolVersion;
  bool stopped_ = false;
  uint32_t sequence_ = 0;
  bool links_unseen_ = false;    // one is on its way, or lies unread
  bool links_outdated_ = false;  // and there is a newer table than it told of
  uint32_t peers_unseen_ = 0;
  uint32_t channels_unseen_ = 0;
  uint32_t captures_unseen_ = 0;
  uint32_t traces_unseen_ = 0;
};

}  // namespace verbena::agent
