// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include <sys/types.h>

#include "agent/agent_host.h"
#include "agent/event_loop.h"
#include "agent/links/link_publisher.h"
#include "agent/sessions/client_sockets.h"
#include "base/bytes.h"
#include "base/quota.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/model/slot_messages.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// Counts the channels that were sent to a client and that the client has not acknowledged, by the user of the
// process at the other end. At most protocol::kMaxChannelsUnseen may be unacknowledged, and a user other than
// root and the client's gets only a share of that number (base/quota.h). Otherwise one user could use it up:
// a user can make its channels take long to close, and the client acknowledges no more channels of that user
// meanwhile (control::AgentNews).
class UnseenChannels {
 public:
  // `own` is the client's user. Channels to processes of this user may use up the whole number.
  explicit UnseenChannels(uid_t own) : shares_({protocol::kMaxChannelsUnseen, 0}, own) {}

  bool allow(uid_t other) const { return shares_.allows(other); }
  void add(uint32_t number, uid_t other) {
    shares_.take(other);
    users_.emplace(number, other);
  }
  // Forgets a channel with this number, which the client's acknowledgement has named. If there is none,
  // forgets any other channel: the acknowledgement of a client of another version may have another number.
  void remove(uint32_t number) {
    if (users_.empty()) return;
    const auto found = users_.find(number);
    const auto channel = found != users_.end() ? found : users_.begin();
    shares_.give_back(channel->second);
    users_.erase(channel);
  }

 private:
  Quota shares_;
  std::multimap<uint32_t, uid_t> users_;  // by the message's number
};

// The agent's end of a client's event socket: sends messages that the client did not request, and receives
// the client's answers. The socket of a client that does not read holds at most one links message, and a
// limited number of peer, channel, capture and trace messages.
class ClientEvents {
 public:
  // Receives what the client sends. Implemented by Session.
  class Client {
   public:
    virtual ~Client() = default;
    // The client asks for a socket to the process with this slot in an XRC domain.
    virtual void on_ask_peer(uint64_t domain, uint32_t slot) = 0;
    // The client asks for a channel between its slot and a peer's.
    virtual void on_ask_channel(uint32_t own_slot, uint32_t peer_slot) = 0;
    // The client has acknowledged a message about the end of a lease: slot `ended`, to which the client's
    // slot `own_slot` may have a channel, was returned.
    virtual void on_end_heard(uint32_t own_slot, uint32_t ended) = 0;
    // The socket has room again, after await_room().
    virtual void on_room() = 0;
    // The client has closed its end, or sent descriptors.
    virtual void on_end() = 0;
  };
  // `user` is the client's user. `share` is the quota share in which the session counts until its sockets are
  // closed. REQUIRES: the references outlive this object
  ClientEvents(EventLoop& loop, ClientSockets& sockets, uid_t user, const LinkPublisher& links,
               Client& client, QuotaShare share = {})
      : loop_(loop),
        sockets_(sockets),
        user_(user),
        links_(links),
        client_(client),
        share_(std::move(share)),
        unseen_channels_(user) {}
  ~ClientEvents();

  // Creates the socket pair and returns the client's end, or the kernel's error. `version` is the protocol
  // version that both sides know.
  Result<UniqueFd> open(uint16_t version);
  // Stops reading and sending. Called when the session is about to end.
  void stop() { stopped_ = true; }

  // Sends the new link table later, in a turn of the user (UserTurns). If the client has not acknowledged the
  // previous table yet, waits for that first.
  void links_changed();
  // Sends the client a socket to another process in an XRC domain, or an error. `other` is the user of the
  // process at the socket's other end. Returns false if the message is not sent: too many messages are
  // unacknowledged, the client's user pauses (SlowUsers), or one of the two users may have no more
  // descriptors.
  bool tell_peer(control::DomainPeer peer, uid_t other);
  // Sends the client its end of a channel to another slot, or an error. Returns false if the message is not
  // sent, for the reasons of tell_peer(). Also returns false if the client's version has no channels, or if
  // too many channels of the other slot's user are unacknowledged. With the error ESTALE, the message says
  // that the other slot's lease has ended. It is sent however many messages are unacknowledged.
  bool tell_channel(control::SlotChannel channel);
  // Calls Client::on_room() once the socket has room, in a turn of the user (UserTurns). REQUIRES: this call
  // is in a turn of the user, too
  void await_room();
  // Returns whether messages about ended leases are queued for this client, or wait for room in its socket.
  // ChannelRequests sets this.
  bool is_telling() const { return is_telling_; }
  void set_telling(bool is_telling) { is_telling_ = is_telling; }
  // Tells the client that the capture of a slot starts, if capture.ring is valid, or ends. Returns false if
  // the message is not sent: for the reasons of tell_peer(), or because the client's version has no captures.
  // The limit of unacknowledged messages applies only to starts: there are no more ends than starts.
  bool tell_capture(control::SlotCapture capture);
  // Tells the client to start or end the tracing of each packet. Returns false if the message is not sent:
  // for the reasons of tell_peer(), or because the client's version has no traces. The limit of
  // unacknowledged messages applies only to starts.
  bool tell_trace(bool on);

 private:
  bool on_event(uint32_t events);
  // Handles one message. Returns false if there is none, or the client must be disconnected.
  bool on_readable();
  void take(ConstBytes message);
  void take_channel_heard(uint32_t number);
  void push_links();
  bool has_room_for_ends(uid_t other) const;
  // A kind of messages that the client acknowledges.
  struct Kind {
    protocol::MessageType message;
    protocol::MessageType acknowledgement;
    uint16_t since;  // the first protocol version with these messages
    uint32_t max_unseen;
    uint32_t unseen = 0;
  };
  bool knows(const Kind& kind) const { return version_ >= kind.since; }
  // Fills in the message's header and sends the message, with `file` if it is valid. Returns false if the
  // message is not sent. With `is_limited`, it is not sent while kind.max_unseen messages of this kind are
  // unacknowledged.
  template <class Message>
  bool say(Kind& kind, Message message, int error, const UniqueFd& file, bool is_limited = true);

  EventLoop& loop_;
  ClientSockets& sockets_;
  const uid_t user_;
  const LinkPublisher& links_;
  Client& client_;
  const QuotaShare share_;
  UnseenChannels unseen_channels_;
  std::optional<ClientSocket> socket_;
  uint16_t version_ = protocol::kProtocolVersion;
  bool stopped_ = false;
  uint32_t sequence_ = 0;
  bool links_unseen_ = false;    // a links message is unacknowledged
  bool links_outdated_ = false;  // the table is newer than the last one sent
  bool awaits_room_ = false;
  bool is_telling_ = false;
  Kind peers_{protocol::MessageType::kPeer, protocol::MessageType::kPeerSeen,
              protocol::kOldestProtocolVersion, protocol::kMaxPeersUnseen};
  Kind channels_{protocol::MessageType::kChannel, protocol::MessageType::kChannelSeen,
                 protocol::kFirstVersionWithChannels, protocol::kMaxChannelsUnseen};
  Kind captures_{protocol::MessageType::kCapture, protocol::MessageType::kCaptureSeen,
                 protocol::kFirstVersionWithCaptures, protocol::kMaxCapturesUnseen};
  Kind traces_{protocol::MessageType::kTraceDetails, protocol::MessageType::kTraceDetailsSeen,
               protocol::kFirstVersionWithTraces, protocol::kMaxTracesUnseen};
};

// Calls a method of the session's ClientEvents and returns its result: whether the message was sent. Returns
// false if the session does not exist.
template <auto Method, class... Arguments>
bool tell(AgentHost& agent, uint64_t session, Arguments&&... arguments) {
  ClientEvents* const events = agent.events_of(session);
  return events != nullptr && (events->*Method)(std::forward<Arguments>(arguments)...);
}

}  // namespace verbena::agent
