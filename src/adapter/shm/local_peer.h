// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <sys/types.h>

#include "adapter/net/port.h"
#include "adapter/shm/local_line.h"
#include "adapter/shm/local_ways.h"
#include "adapter/shm/stream_ways.h"
#include "adapter/transport/packet_io.h"
#include "adapter/transport/route.h"
#include "base/foreign_socket.h"
#include "base/intrusive_list.h"
#include "base/time.h"

namespace verbena::engine {

class CaptureTap;

// Another slot of this host, and the way to it by memory. There may be two lines for a while: the one that we
// asked for, and the one that the other did; when both asked at once, that of the lower slot stays. Packets
// are taken from both and sent by one. While there is none that is open, what is sent is lost, and the timers
// of the QPs find out.
//
// It lives as long as the shard, as QPs keep its route; the process at the slot may change. For the shard's
// lock holder.
class LocalPeer final : public transport::PacketSink, public transport::DirectAccess {
 public:
  enum Side : uint8_t { kAskedByUs, kAskedByThem };

  LocalPeer(uint32_t slot, net::PortCounters& counters);

  uint32_t slot() const { return slot_; }
  const transport::Route& route() const { return route_; }
  bool is_open() const { return sends_by_ != nullptr; }
  bool has_line() const { return lines_[kAskedByUs] != nullptr || lines_[kAskedByThem] != nullptr; }
  transport::SendStatus send(const transport::OutgoingPacket& packet) override;
  transport::SendStatus send_plain(const roce::Path& path, const transport::PlainSend& message) override;
  uint32_t put_so_far() const override;
  bool is_taken(uint32_t so_far) const override;
  // Of a datagram that goes another way, too: now or not at all. It is counted and captured there.
  void send_copy(const transport::OutgoingPacket& packet);
  bool is_of_our_user() const override;
  bool is_best_for(const Run& run) override;
  bool lends() const override;
  bool read(const transport::PeerRange& range, uint32_t offset, uint32_t bytes,
            std::span<const ConstBytes> to) override;
  bool write(const transport::PeerRange& range, uint32_t offset, uint32_t bytes,
             std::span<const ConstBytes> from) override;
  std::optional<uint64_t> change(const transport::PeerRange& range,
                                 const transport::AtomicChange& change) override;

  LocalLine* line(Side side) const { return lines_[side].get(); }
  // Another line in place of the one there, or none.
  void set_line(Side side, std::unique_ptr<LocalLine> line);
  // A line has opened, or was lost.
  void lines_changed();
  // Does what lines had to put off (LocalLine::resume()). Returns when there is more; kNever: nothing is
  // left.
  TimePoint resume(int poll_set) {
    TimePoint next = kNever;
    for (const auto& line : lines_) {
      if (line != nullptr) next = std::min(next, line->resume(poll_set));
    }
    return next;
  }
  // In a child after fork(): all of it is the parent's.
  void abandon();

  // Where to put what is sent, too, from now on; null: nowhere.
  void set_tap(CaptureTap* tap) { tap_ = tap; }

  // Asks the other for copies of what it sends to the group.
  LocalLine::Asked ask_for(const GroupKey& group) {
    return sends_by_ != nullptr ? sends_by_->ask_for(group) : LocalLine::Asked::kNo;
  }
  // Not any more.
  void decline(const GroupKey& group) {
    for (const auto& line : lines_) {
      if (line != nullptr) line->decline(group);
    }
  }
  // Calls visit(GroupKey) for each group of which the other wants copies.
  template <class Visit>
  void for_each_wanted(Visit visit) const {
    for (const auto& line : lines_) {
      if (line == nullptr || !line->is_open()) continue;
      for (const GroupKey& group : line->wanted()) visit(group);
    }
  }

  // Calls visit(PeerMemory&) for each line by which the other's memory is reached.
  template <class Visit>
  void for_each_memory(Visit visit) const {
    for (const auto& line : lines_) {
      if (line != nullptr && line->peer_memory() != nullptr) visit(*line->peer_memory());
    }
  }

  // That of the line which is sent by; nullptr: none.
  PacketWriter* writer() const { return sends_by_ != nullptr ? &sends_by_->writer() : nullptr; }
  // Calls visit(LaneWriter&, RingUse&) for that of each line.
  template <class Visit>
  void for_each_lane(Visit visit) const {
    for (const auto& line : lines_) {
      if (line == nullptr || !line->has_lanes()) continue;
      visit(line->writer().lane(), line->writer().ring_use());
    }
  }

  // Puts out what the writer keeps back, and rings the other if it sleeps and has got something. False: there
  // is no room for it.
  bool push();
  bool has_room();
  // Asks to be rung when there is room. False: there is.
  bool wait_for_room();

  // Until when an answer is awaited, or there is no use in asking again.
  TimePoint asked_until = TimePoint::min();
  TimePoint refused_until = TimePoint::min();
  // The user of the process at the slot, as the agent said last.
  uid_t user = kUnknownUser;

  // The program itself has named it, once at least, while there was no channel.
  bool is_wanted = false;
  // It has a place among the guests.
  bool is_guest = false;
  // Our own question is under way, from the agent's ear to the other's answer.
  bool is_asking = false;
  // It has been asked so often, and no answer came, or that it cannot be just now. 0: there was an answer.
  uint8_t questions = 0;
  // What the other asked for meanwhile, if ours is the one that counts. It waits until ours has come to
  // something, or to nothing.
  ForeignSocket put_off;
  // The errno value of the last question for a channel that failed; 0: none failed.
  int refusal = 0;
  // Somebody has waited for it in vain.
  bool kept_waiting = false;

  // By what is sent to it, as its QPs say to those who look.
  protocol::QpWay way() const { return sends_by_ != nullptr ? sends_by_->way() : protocol::QpWay::kMemory; }

  bool was_open = false;                               // when its QPs were last moved
  protocol::QpWay was_way = protocol::QpWay::kMemory;  // when they last said
  // Called when some of the other's memory has been mapped.
  std::function<void()> on_mapping;
  ListHook full_hook;    // in the list of those without room
  ReadyList waiting;     // QPs, while it is one of them
  ListHook staged_hook;  // in the list of those that have got something
  IntrusiveList<LocalPeer, &LocalPeer::staged_hook>* staged_in = nullptr;

 private:
  transport::SendStatus put(const transport::OutgoingPacket& packet);
  void note_sent(uint32_t packets, uint32_t bytes);
  transport::SendStatus note_unsent(transport::SendStatus status);
  transport::SendStatus put_and_capture(const transport::OutgoingPacket& packet);
  PeerMemory* memory() const { return sends_by_ != nullptr ? sends_by_->peer_memory() : nullptr; }
  void used(const PeerMemory& memory);
  void follow_stream(uint32_t bytes);
  bool may_lend() const;

  const uint32_t slot_;
  net::PortCounters& counters_;
  transport::Route route_;
  std::array<std::unique_ptr<LocalLine>, 2> lines_;
  LocalLine* sends_by_ = nullptr;
  CaptureTap* tap_ = nullptr;  // looked at with each packet, as what is before it
  StreamWays stream_ways_;
  uint64_t streamed_ = 0;          // bytes of long payloads
  uint64_t stream_looked_at_ = 0;  // streamed_, when the ways were
  bool has_mappings_ = false;
};

}  // namespace verbena::engine
