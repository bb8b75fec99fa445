// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "adapter/shm/call_costs.h"
#include "adapter/shm/channel_memory.h"
#include "adapter/shm/group_key.h"
#include "adapter/shm/local_packets.h"
#include "adapter/shm/own_board.h"
#include "adapter/shm/peer_memory.h"
#include "base/bell.h"
#include "base/foreign_socket.h"
#include "base/own_fd.h"
#include "base/plain_calls.h"
#include "base/result.h"

namespace verbena::engine {

// A channel to another slot of this host: memory that both processes have, and a socket between them. By the
// socket the memory is offered and accepted; then it shows that the other process is there. Two processes of
// different users have a half each, which only its owner writes (shm::ChannelHalf). When the other hangs up,
// what it has written is still taken. A process that sleeps is rung by its bell, which it gives to processes
// of its own user, or else by a byte on the socket.
//
// Nothing that comes by either is trusted. For the shard's lock holder; nothing blocks.
class LocalLine {
 public:
  enum class State : uint8_t {
    kOffered,   // our memory, or our half; the other has not answered
    kAwaiting,  // the other is to offer its memory
    kOpen,
    kLost,  // the other has hung up, refused, or does not keep to the rules
  };

  // Makes the memory and offers it. Errors: ENOMEM, EMFILE, EPIPE when the other has hung up already.
  // `board`: the export table by which the other process reaches our memory directly. If it is null, that
  // process does not, and is treated like one of another user.
  // `bell`: what the other is to ring; null: the socket. It outlives the line.
  static Result<std::unique_ptr<LocalLine>> offer(ForeignSocket socket, OwnBoard* board = nullptr,
                                                  const Bell* bell = nullptr);
  // To ourselves: one lane, which is written and read here.
  static Result<std::unique_ptr<LocalLine>> loop(const Bell* bell = nullptr);
  // The other will offer its own.
  static std::unique_ptr<LocalLine> await(ForeignSocket socket, OwnBoard* board = nullptr,
                                          const Bell* bell = nullptr);
  ~LocalLine();
  LocalLine(const LocalLine&) = delete;
  LocalLine& operator=(const LocalLine&) = delete;

  State state() const { return state_; }
  bool is_open() const { return state_ == State::kOpen; }
  int fd() const { return socket_.get(); }
  // From now on this epoll set tells when read_socket() has something to do, its data a LocalLine*. It must
  // outlive the line, or be forgotten by abandon(). False: that cannot be.
  bool announce_in(int poll_set) { return entry_.join(poll_set, socket_.get(), this); }
  // Counts long calls on the socket in these costs, which outlive the line.
  void count_in(CallCosts& costs) { costs_ = &costs; }
  // Takes what has come by the socket: the offer, the answer, bells, the end; and of rings one. Loses the
  // line if the other has rung much more often than it was asked to.
  void read_socket();
  // Notes that the other is asked to ring once: the reader is about to sleep, or the writer waits for room.
  void expect_ring() { rings_left_ = std::min(rings_left_ + 1, kSpareRings); }
  // Wakes the other, who sleeps. Loses the line if that, or reading the socket, takes long again and again.
  void ring();
  // It is of no use any more. The socket tells of it, to us as well.
  void lose();
  // Whether packets ever went by it.
  bool was_open() const { return was_open_; }
  // Returns whether the line was lost because calls on its socket took long.
  bool was_slow() const { return was_slow_; }
  // In a child after fork(): the line is the parent's, and so is what it leads to, and the epoll set.
  void abandon();

  // Of how many groups one end has copies.
  static constexpr size_t kMaxGroups = 64;
  enum class Asked : uint8_t { kNo, kJustNow, kBefore };
  // Asks the other for a copy of each datagram that it sends to the group (MulticastWays). kNo: it is of an
  // older version, or it cannot be said just now.
  Asked ask_for(const GroupKey& group);
  void decline(const GroupKey& group);
  // What the other has asked for; how often that has changed.
  const std::vector<GroupKey>& wanted() const { return wanted_; }
  uint32_t wanted_changes() const { return wanted_changes_; }

  // REQUIRES for both: has_lanes(), which is so when the line is or was open
  PacketWriter& writer() { return *writer_; }
  PacketReader& reader() { return *reader_; }
  bool has_lanes() const { return writer_.has_value(); }
  // Whether the other is a process of our user that sees the same processes, or this one.
  bool is_shown() const { return is_shown_; }
  // What has been read is used no more: so the other is told with what is put next. And what it has told is
  // known to our writer. REQUIRES: as above, and something has been read
  void tell_taken() {
    const shm::LaneReader& read = reader_->lane();
    writer_->lane().say_taken(read.read_so_far());
    writer_->lane().hear_taken(read.taken_by_writer());
  }
  // The other's memory; nullptr: it is not reached but by packets.
  PeerMemory* peer_memory() { return peer_memory_.get(); }
  // Whether it is, or why not.
  protocol::QpWay way() const { return way_; }
  // The other has been in our memory for too long.
  bool is_overdue() const { return visitor_ != nullptr && visitor_->is_overdue(); }

 private:
  LocalLine(ForeignSocket socket, State state, OwnBoard* board, const Bell* bell);
  bool try_to_send(ConstBytes message, std::span<const int> files = {});
  // What the line cannot do without.
  bool send(ConstBytes message, std::span<const int> files = {});
  bool may_bring_file() const;
  // Makes calls on the socket, and loses the line if such calls take long. Another process of our user could
  // stop us anyway, so calls for it are not measured.
  template <class Calls>
  void measure(const Calls& calls);
  bool is_foreign() const { return !is_ours_ && !own_end_; }
  void read_messages();
  bool take_ring();
  bool take(ConstBytes bytes, ForeignMessage& message);
  bool take_offer(int file);
  bool take_acceptance();
  bool offer_half();
  bool take_half(int file);
  bool say_of_group(const GroupKey& group, bool asks);
  bool hear_of_group(ConstBytes message, bool asks);
  void want(const GroupKey& group, bool wanted);
  bool take_presentation(ConstBytes bytes, const std::optional<ucred>& sender, UniqueFd file);
  void present_ourselves();
  void give_bell();
  bool take_bell(UniqueFd file);
  void expect_no_presentation();
  void use(ChannelMapping mapping, size_t ours, size_t theirs);
  void use(TheirHalf theirs);
  void open();

  // The last to go: where the channel is seen to be gone, so are its descriptors.
  std::shared_ptr<ChannelMapping> mapping_;
  std::optional<OwnHalf> our_half_;  // of a channel to another user's process, which has no mapping_
  std::optional<TheirHalf> their_half_;
  ForeignSocket socket_;
  PollEntry entry_;
  OwnFd own_end_;  // of the socket, of a line to ourselves
  OwnFd offered_;  // the file of an offer, until it is answered
  State state_;
  bool was_open_ = false;
  bool was_slow_ = false;
  CallCosts own_costs_;
  CallCosts* costs_ = &own_costs_;
  // Rings of another user's process that are taken for needed. A process rings once when it is asked to, so
  // nearly all are spare.
  static constexpr int kSpareRings = 64;
  int rings_left_ = kSpareRings;
  OwnBoard* const board_;
  const Bell* const bell_;  // ours
  std::optional<Bell> their_bell_;
  bool takes_bells_ = false;      // the other
  bool sends_copies_ = false;     // it can
  std::vector<GroupKey> asked_;   // of the other
  std::vector<GroupKey> wanted_;  // by it
  uint32_t wanted_changes_ = 0;
  bool awaits_presentation_ = false;
  bool is_ours_ = false;       // the other is a process of our user
  bool is_shown_ = false;      // and may see what we show of ourselves
  bool sees_the_same_ = true;  // the other is in our pid namespace, or does not say
  bool hung_up_ = false;       // it
  shm::Lane* our_lane_ = nullptr;
  shm::Lane* their_lane_ = nullptr;
  std::shared_ptr<AccessWatch::Visitor> visitor_;  // the other, in our memory
  std::unique_ptr<PeerMemory> peer_memory_;
  protocol::QpWay way_ = protocol::QpWay::kMemory;
  std::optional<PacketWriter> writer_;
  std::optional<PacketReader> reader_;
};

}  // namespace verbena::engine
