// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "adapter/net/udp/sender.h"
#include "adapter/net/udp/udp_port.h"
#include "agent/event_loop.h"
#include "base/bytes.h"
#include "base/result.h"
#include "base/time.h"
#include "management/cm/events.h"
#include "management/cm/messages.h"

namespace verbena::agent {

// Counters of datagrams to and from QP1. The connection manager has counters of its own messages.
struct GsiCounters {
  uint64_t bad_qkey = 0;
  uint64_t unknown_class = 0;  // of a management class without a handler
};

// Sends packets without payload to the network. An interface, so that tests see the packets.
class HeaderSender {
 public:
  virtual ~HeaderSender() = default;
  // Stages a packet, which flush() sends.
  virtual void send_headers(const roce::Headers& headers, const roce::Path& path) = 0;
  virtual void flush() = 0;
};

// QP1, the General Services Interface (IBTA volume 1, 13.5): sends and receives management datagrams through
// slot 0's socket. There is one for all devices: the IP address of a RoCEv2 packet names its device.
// Connection management, and datagrams to groups, are sent from UDP port 4791 itself. Untrusted programs
// cannot send from that port, so other agents know that such a datagram comes from an agent. All other
// packets leave by other sockets and by runs of their own: users and other hosts choose their destinations,
// and could fill what connections need. For the agent's thread.
class GsiPort final : public HeaderSender, private net::PacketHandler {
 public:
  using OnMad = std::function<void(ConstBytes mad, const cm::Arrival& arrival)>;
  // Handles a datagram. Returns false if the datagram has no receiver.
  using OnOther = std::function<bool(ConstBytes mad, const cm::Arrival& arrival)>;
  using OnHeard = std::function<void(const cm::Arrival& arrival)>;

  // `on_mad`: called with each datagram of communication management.
  GsiPort(EventLoop& loop, OnMad on_mad);
  ~GsiPort() override;

  // Opens the UDP port `port` with a copy of slot 0's socket, and starts to receive.
  Result<void> open(int slot_socket, uint16_t port);
  bool is_open() const { return port_ != nullptr; }
  // Stops sending and receiving.
  void close();

  // Stages a datagram to QP1 of path.destination; flush() sends it. Flushes first if no more datagrams can be
  // staged. The datagram is lost if that does not help, or if the port is closed; also if the path's next hop
  // does not answer ARP and half of the socket's buffer is in use.
  void send(const cm::Mad& mad, const roce::Path& path) { send_to(roce::Qpn(cm::kGsiQpn), mad, path); }
  // Like send(), to all members of a multicast group.
  void send_to_group(const cm::Mad& mad, const roce::Path& path) { send_to(roce::kMulticastQpn, mad, path); }
  // Used to answer for QPs whose process is stopped (StoppedProcesses).
  void send_headers(const roce::Headers& headers, const roce::Path& path) override;
  // Sends the staged packets. While the socket is full, tries again every millisecond.
  void flush() override;
  // Sets two handlers. `on_other` gets the datagrams of all classes except communication management.
  // `on_heard` learns the sender of each datagram of communication management, before `on_mad` gets it.
  void give_others_to(OnOther on_other, OnHeard on_heard) {
    on_other_ = std::move(on_other);
    on_heard_ = std::move(on_heard);
  }

  const GsiCounters& counters() const { return counters_; }

 private:
  void send_to(roce::Qpn queue_pair, const cm::Mad& mad, const roce::Path& path);
  template <class Half>
  void send_by(Half& half, const transport::OutgoingPacket& packet);
  bool is_half_full() const;
  void on_packet(const transport::IncomingPacket& packet) override;
  void answer_unknown(ConstBytes mad, const cm::Arrival& arrival);

  EventLoop& loop_;
  OnMad on_mad_;
  OnOther on_other_;
  OnHeard on_heard_;
  std::unique_ptr<net::UdpPort> port_;
  std::unique_ptr<net::Sender> others_;  // sends what is neither connection management nor for a group
  uint16_t udp_port_ = 0;
  int watched_ = -1;
  bool retrying_ = false;
  uint32_t psn_ = 0;
  GsiCounters counters_;
};

// Keeps messages for listeners and connections that do not exist yet, for 100 ms or longer, because they may
// appear soon. Programs that agree on a port over another connection (perftest's -R) race: one is about to
// listen, the other to connect. In the kernel the listener wins, because its calls are answered faster than
// by this agent. A late refusal does no harm, while perftest fails at an early one. After an agent was
// killed, its clients restore their listeners and connections with the next one. A peer that ends a
// connection meanwhile must not be told that the connection is unknown. Otherwise the program would never
// learn of the end. For the agent's thread.
class EarlyMessages {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(100);  // minimum wait for a listener
  static constexpr size_t kMax = 64;                                     // maximum number of messages

  struct Message {
    cm::Mad mad;
    cm::Arrival arrival;
    TimePoint came;      // when the message arrived
    TimePoint deadline;  // when to process the message again; it may be kept again then
  };

  // Returns whether another message of this sender may be kept. One that has waited for kPatience may use
  // only half of kMax. If all places are taken, a sender gets one of another that has more.
  bool has_room(const roce::Address& sender, Duration waited) const;
  // Keeps a message, unless the same bytes from the same address are kept already. Returns a message that is
  // not kept any more, to be processed now: the oldest of the sender with the most, if all places were taken.
  // REQUIRES: `mad` is a whole MAD; has_room() is true; deadlines never decrease
  std::optional<Message> keep(ConstBytes mad, const cm::Arrival& arrival, TimePoint came, TimePoint deadline);
  // Returns the earliest deadline, or kNever if no message is kept.
  TimePoint deadline() const { return messages_.empty() ? kNever : messages_.front().deadline; }
  // Removes and returns the first message if its deadline has passed, otherwise returns nullopt.
  std::optional<Message> take_overdue(TimePoint now);
  // Drops a kept REQ if `mad` is the REJ by which its sender gives it up. Called for each arriving datagram.
  void hear_rejection(ConstBytes mad, const cm::Arrival& arrival);
  // Removes and returns all messages. Called after a listener or a connection has appeared.
  std::deque<Message> take_all() { return std::exchange(messages_, {}); }

 private:
  size_t count(const roce::Address& sender) const;
  // Returns the oldest message of the sender with the most messages. REQUIRES: a message is kept
  std::deque<Message>::const_iterator oldest_of_most() const;

  std::deque<Message> messages_;
};

// Detects forged messages of connection management that come from an address of this host. Every program of
// this host can send a datagram from such an address to QP1, and so forge messages of any connection whose
// IDs it knows. Only the agent may send such messages here, so one that it has not sent is forged.
//
// Keeps a keyed digest of each sent message until the message arrives here. There is room for 32,768 digests;
// newer ones replace the oldest. For one thread.
class OwnMessages {
 public:
  explicit OwnMessages(uint64_t secret) : secret_(secret), digests_(kSets * kWays) {}

  // Records a message that the agent is sending.
  void said(ConstBytes mad);
  // Called for each message that arrives from this host. Returns whether its digest is stored, and removes
  // the digest. So a message that the agent sent counts as forged when it arrives a second time.
  bool heard(ConstBytes mad);

 private:
  static constexpr size_t kSets = 4096;  // a power of two
  static constexpr size_t kWays = 8;

  uint64_t digest_of(ConstBytes mad) const;
  uint64_t* set_of(uint64_t digest) { return &digests_[(digest & (kSets - 1)) * kWays]; }

  const uint64_t secret_;
  std::vector<uint64_t> digests_;  // each set: the oldest comes first, and is replaced first; 0: free
};

}  // namespace verbena::agent
