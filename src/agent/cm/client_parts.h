// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <sys/types.h>

#include "agent/cm/connection_trace.h"
#include "agent/cm/identifier.h"
#include "agent/cm/service.h"
#include "agent/event_loop.h"
#include "agent/sessions/client_files.h"
#include "base/quota.h"
#include "control/model/admin_error.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

// The agent's end of a program's event channel: sends events, and queues those for which the socket has no
// room. For the agent's thread.
class EventChannel {
 public:
  // Maximum size of unread messages in the socket, as the kernel counts them: some 50 events. The program may
  // make the socket's buffer larger, but the agent sends nothing beyond this. Messages that the program
  // itself has written count, too.
  static constexpr int kMaxUnreadBytes = 64 << 10;

  // Counters of events queued in the agent: of the client, and of all users. The channel updates both.
  struct Tallies {
    size_t& client;
    Quota& users;
  };

  // `user`: the program's user. `socket`: the agent's end. `generation`: CmChannelRequest::generation, which
  // is copied into every event. REQUIRES: the counters in `waiting` outlive this object
  EventChannel(EventLoop& loop, uid_t user, ClientFile socket, uint32_t generation, Tallies waiting);
  ~EventChannel();

  // Sends or queues the event; never blocks. Returns the event's number on this channel, counted from 1.
  uint64_t send(protocol::CmEvent event);
  // Returns the number of the last event that the program has read, estimated from the unread bytes in the
  // socket. Messages that the program itself has written to the channel are in the same socket, and make the
  // estimate too low.
  uint64_t taken() const;
  // Number of identifiers that use the channel, updated by the owner of the identifiers.
  size_t identifiers = 0;

  // Moves up to `most` queued events of an identifier to another channel, the oldest first. For a listener,
  // these include CONNECT_REQUEST events. Returns the number of moved events.
  size_t move_events(uint32_t id, EventChannel& other, size_t most = SIZE_MAX);
  // Drops up to `most` queued events about the identifier, the oldest first. Returns their number.
  // CONNECT_REQUEST events of a listener are about other identifiers and stay.
  size_t drop_events(uint32_t id, size_t most = SIZE_MAX);
  // Drops up to `most` queued events of any identifier, the oldest first. Returns their number.
  size_t drop_some(size_t most);

 private:
  // Queued events by number, which is their order.
  using Queue = std::map<uint64_t, protocol::CmEvent>;
  using Index = std::set<std::pair<uint32_t, uint64_t>>;

  // Returns the first event of the identifier in the index with number `from` or higher, or queue_.end().
  Queue::iterator next_of(const Index& index, uint32_t id, uint64_t from);
  void take_out(Queue::iterator event);
  bool is_named();
  bool transmit(const protocol::CmEvent& event);
  // Sends up to 16 queued events. Returns false if the socket has no room or no events are left. In the first
  // case the loop calls again when the program has read a message (EventLoop::watch_for()).
  bool on_writable();
  void watch(bool wanted);
  // Watches the socket in a turn of the user, if events are queued then.
  void watch_later(TimePoint when);
  void tally(size_t more, size_t less);

  static constexpr Duration kNamePatience = std::chrono::milliseconds(10);

  EventLoop& loop_;
  const uid_t user_;
  ClientFile socket_;  // the program may have a copy of it, and write anything to it
  const uint32_t generation_;
  const Tallies waiting_;
  bool watching_ = false;
  bool is_named_ = false;  // events wait until the socket has a name
  std::optional<UserTimers::Id> watch_later_;
  uint64_t sent_ = 0;     // events passed to send()
  int message_cost_ = 0;  // bytes that SIOCOUTQ counts for an unread event; 0: not measured yet
  Queue queue_;           // events for which the socket had no room
  // Indexes into the queue, which avoid a search through all events.
  Index by_id_;
  Index by_listener_;  // events that have a listener
};

// Limits the identifiers, event channels, queued events and multicast groups of one client. A user other than
// root and the agent's own has limits for all its programs together, too. For the agent's thread.
class ClientLimits {
 public:
  // Maximum numbers for one client.
  static constexpr size_t kMaxIdentifiers = 131072;
  static constexpr size_t kMaxChannels = 16384;
  static constexpr size_t kMaxWaitingEvents = 65536;  // queued in the agent, in all channels of the client
  static constexpr size_t kMaxGroups = 4096;          // of one identifier
  // Returns the quota of event channels for all clients, if the agent may open `descriptors` descriptors.
  // Each channel needs one, and all channels together may use a quarter of them.
  static constexpr Quota::Size channels_with(size_t descriptors) { return Quota::Size::of(descriptors / 4); }

  // REQUIRES: service outlives this object
  ClientLimits(CmService& service, uid_t user) : service_(service), user_(user) {}

  // Return whether the client may have one more item of the kind. `held` is the number that it has now. For
  // groups, the limit is per identifier: `held_by_identifier` is the number that the identifier has now.
  bool allows_identifier(size_t held) const;
  bool allows_channel(size_t held) const;
  bool allows_group(size_t held_by_identifier) const;
  // Returns whether the client may cause another event. `waiting` is the number of its queued events. Returns
  // false if it has queued events and its user's share is used up. The caller refuses the request in this
  // case, but does not disconnect the client: other users may have taken all room.
  bool allows_event(size_t waiting) const { return waiting == 0 || allows_another(waiting_events()); }

  // Like allows_identifier(). At the limit, first destroys identifiers of the user's ended programs.
  bool make_room_for_identifier(size_t held) const;
  void take_identifier() const { service_.shares().identifiers.take(user_); }
  void give_back_identifier() const { service_.shares().identifiers.give_back(user_); }
  void take_group() const { service_.shares().groups.take(user_); }
  void give_back_groups(size_t count) const { service_.shares().groups.give_back(user_, count); }
  Quota& waiting_events() const { return service_.shares().waiting_events; }
  void take_channel() const { service_.channels().take(user_); }
  void give_back_channels(size_t count) const { service_.channels().give_back(user_, count); }

 private:
  bool allows_another(const Quota& items) const;

  CmService& service_;
  const uid_t user_;
};

// Owns the event channels of one client, and sends its events through them. Disconnects a client that has
// more than ClientLimits::kMaxWaitingEvents queued events. For the agent's thread.
class ClientChannels {
 public:
  // REQUIRES: loop, host and limits outlive this object
  ClientChannels(EventLoop& loop, CmClientHost& host, const ClientLimits& limits,
                 std::shared_ptr<ConnectionTrace> trace)
      : loop_(loop), host_(host), limits_(limits), trace_(std::move(trace)) {}
  ~ClientChannels();

  // Opens a channel. `events`: the agent's end of a socket pair that the program has created. Fails with
  // EEXIST, EMFILE (too many channels) or EINVAL (no SOCK_SEQPACKET socket).
  control::AdminResult<void> open(const protocol::CmChannelRequest& request, ClientFile events);
  // Closes the channel and drops its queued events. REQUIRES: the channel exists and has no identifiers
  void close(uint32_t number);
  EventChannel* find(uint32_t number);
  // Returns whether a request or a peer's REQ may cause another event. Events with other causes are always
  // queued: an identifier has only a few of them, and the number of identifiers is limited.
  bool has_room_for_event() const { return limits_.allows_event(waiting_events_); }
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
  std::map<uint32_t, std::unique_ptr<EventChannel>> channels_;  // no hash: the program chooses the numbers
  bool hung_up_ = false;
};

class CmClient;

// Owns the identifiers of one client, by number: those that its program has created, and one for each request
// that came to its listeners. For the agent's thread.
class ClientIdentifiers {
 public:
  // Ordered by number, so that an iteration in steps can continue after the last number.
  using Map = std::map<uint32_t, std::unique_ptr<CmIdentifier>>;

  // `client`: the client of these identifiers. REQUIRES: all arguments outlive this object
  ClientIdentifiers(CmClient& client, CmService& service, const ClientLimits& limits,
                    ClientChannels& channels)
      : client_(client), service_(service), limits_(limits), channels_(channels) {}
  ~ClientIdentifiers();

  CmIdentifier* find(uint32_t number);
  const Map& all() const { return ids_; }

  // Creates an idle identifier, with number and channel from the request. Errors: EINVAL if the number is in
  // use or from the agent's range, or if the port space is unknown or does not fit the QP type. ENOENT if
  // there is no such channel, ENOMEM if there are too many identifiers.
  control::AdminResult<CmIdentifier*> make(const protocol::CmCreateRequest& request);
  // Adds `request`, the identifier of an incoming request. The identifier gets its listener's channel and a
  // new number from the agent's range (the bit kCmAgentsNumber is set).
  CmIdentifier& add(std::unique_ptr<CmIdentifier> request, const CmIdentifier& listener);
  bool has_room() const { return limits_.make_room_for_identifier(ids_.size()); }

  // Destroys the identifier, and releases its port, connection and groups. The connection manager still sends
  // the peer the message that ends the connection.
  void erase(CmIdentifier& id);
  // Erases identifiers of the channel, starting at number `from`. Examines at most `most` identifiers,
  // including those of other channels. Returns the number at which to continue, or 0 if all were examined.
  uint32_t erase_some_of(uint32_t channel, uint32_t from, size_t most);
  // Destroys up to `most` identifiers of a client that has gone. Unlike erase(), also disconnects XRC
  // targets. Returns the number of destroyed identifiers.
  size_t clear(size_t most);

 private:
  CmIdentifier& keep(std::unique_ptr<CmIdentifier> id);
  void say_farewell(CmIdentifier& id);
  void discard(CmIdentifier& id);

  CmClient& client_;
  CmService& service_;
  const ClientLimits& limits_;
  ClientChannels& channels_;
  Map ids_;
  uint32_t next_agents_number_ = 1;
};

}  // namespace verbena::agent
