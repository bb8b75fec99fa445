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

// Another slot of this host, and the shared-memory route to its process ("the other process" below). There
// may be two lines (channels) for a while: one that we asked for, and one that the other process asked for.
// If both asked at once, only one line stays: the one that the process with the lower slot number asked for.
// Packets are received from both lines and sent by one. While no line is open, sent packets are lost, and the
// QPs' timers send them again.
//
// A LocalPeer lives as long as the shard, because QPs keep its route. The slot may later belong to another
// process. For the shard's lock holder.
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
  // Sends a copy of a datagram that is also sent by another route. Drops the copy if there is no room. The
  // datagram is counted and captured by the other route only.
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
  // Replaces the line of that side; nullptr: by none.
  void set_line(Side side, std::unique_ptr<LocalLine> line);
  // Chooses the line for sending. Called when a line has opened or was lost.
  void lines_changed();
  // Calls LocalLine::resume() for all lines, for the calls that they have put off. Returns the time at which
  // to call this again, or kNever if nothing is left.
  TimePoint resume(int poll_set) {
    TimePoint next = kNever;
    for (const auto& line : lines_) {
      if (line != nullptr) next = std::min(next, line->resume(poll_set));
    }
    return next;
  }
  // For a child after fork(): lets go of the lines without effect on the parent's.
  void abandon();

  // Sets where packets are recorded from now on, besides being sent; null: nowhere.
  void set_tap(CaptureTap* tap) { tap_ = tap; }

  // Asks the other process for copies of what it sends to the multicast group.
  LocalLine::Asked ask_for(const GroupKey& group) {
    return sends_by_ != nullptr ? sends_by_->ask_for(group) : LocalLine::Asked::kNo;
  }
  // Asks the other process to send no more such copies.
  void decline(const GroupKey& group) {
    for (const auto& line : lines_) {
      if (line != nullptr) line->decline(group);
    }
  }
  // Calls visit(GroupKey) for each group of which the other process wants copies.
  template <class Visit>
  void for_each_wanted(Visit visit) const {
    for (const auto& line : lines_) {
      if (line == nullptr || !line->is_open()) continue;
      for (const GroupKey& group : line->wanted()) visit(group);
    }
  }

  // Calls visit(PeerMemory&) for each line by which the other process's memory is reached.
  template <class Visit>
  void for_each_memory(Visit visit) const {
    for (const auto& line : lines_) {
      if (line != nullptr && line->peer_memory() != nullptr) visit(*line->peer_memory());
    }
  }

  // Returns the writer of the line that is used for sending; nullptr: no line is open.
  PacketWriter* writer() const { return sends_by_ != nullptr ? &sends_by_->writer() : nullptr; }
  // Calls visit(LaneWriter&, RingUse&) for the writer of each line that has lanes.
  template <class Visit>
  void for_each_lane(Visit visit) const {
    for (const auto& line : lines_) {
      if (line == nullptr || !line->has_lanes()) continue;
      visit(line->writer().lane(), line->writer().ring_use());
    }
  }

  // Sends the acknowledgement that waits in the writer, if any. Rings (wakes) the other process if it sleeps
  // and new packets were put. Returns false if there was no room for the acknowledgement.
  bool push();
  bool has_room();
  // Asks to be rung when there is room. Returns false if there already is, or no line is open.
  bool wait_for_room();

  // asked_until: until then an answer is awaited. refused_until: until then asking again is pointless.
  TimePoint asked_until = TimePoint::min();
  TimePoint refused_until = TimePoint::min();
  // The user of the process at the slot, as the agent said last; kUnknownUser: not known.
  uid_t user = kUnknownUser;

  // The program itself has named a QP of this slot while there was no channel (else the slot is a guest).
  bool is_wanted = false;
  // The slot occupies one of the places for guests (GuestPlaces).
  bool is_guest = false;
  // We have asked for a channel, and the agent or the other process has not answered yet.
  bool is_asking = false;
  // The number of times that we asked without a final answer: none came, or EAGAIN. 0 after any other answer.
  uint8_t questions = 0;
  // The socket of a channel that the other process asked for, while we wait for the channel that we asked
  // for, which has priority. The socket is used if we do not get our channel, and closed if our channel
  // opens. Empty: none.
  ForeignSocket put_off;
  // The errno value of the last question for a channel that failed; 0: none failed.
  int refusal = 0;
  // A connecting thread has waited for this slot without success; the next ones do not wait.
  bool kept_waiting = false;

  // Returns how QPs to this slot reach the other process's memory, for resource tracking (rdma tool).
  protocol::QpWay way() const { return sends_by_ != nullptr ? sends_by_->way() : protocol::QpWay::kMemory; }

  bool was_open = false;                               // is_open() when its QPs were last rerouted
  protocol::QpWay was_way = protocol::QpWay::kMemory;  // way() when its QPs last reported it
  // Called when a part of the other process's memory has been mapped here. May be empty.
  std::function<void()> on_mapping;
  ListHook full_hook;    // in the list of peers whose lane is full
  ReadyList waiting;     // QPs that wait for room in the lane
  ListHook staged_hook;  // in the list of peers that have packets to be rung for (staged_in)
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
  CaptureTap* tap_ = nullptr;  // looked at for each packet, so it lies next to sends_by_
  StreamWays stream_ways_;
  uint64_t streamed_ = 0;          // bytes of payloads of at least StreamWays::kLong, that were sent
  uint64_t stream_looked_at_ = 0;  // streamed_ when stream_ways_ was last asked
  bool has_mappings_ = false;
};

}  // namespace verbena::engine
