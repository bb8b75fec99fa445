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
#include "base/time.h"

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
  // `accounts`: count calls for a process of another user. Their pointers remain valid as long as the line.
  static Result<std::unique_ptr<LocalLine>> offer(ForeignSocket socket, OwnBoard* board = nullptr,
                                                  const Bell* bell = nullptr, CallAccounts accounts = {});
  // To ourselves: one lane, which is written and read here.
  static Result<std::unique_ptr<LocalLine>> loop(const Bell* bell = nullptr);
  // The other will offer its own.
  static std::unique_ptr<LocalLine> await(ForeignSocket socket, OwnBoard* board = nullptr,
                                          const Bell* bell = nullptr, CallAccounts accounts = {});
  ~LocalLine();
  LocalLine(const LocalLine&) = delete;
  LocalLine& operator=(const LocalLine&) = delete;

  State state() const { return state_; }
  bool is_open() const { return state_ == State::kOpen; }
  int fd() const { return socket_.get(); }
  // From now on this epoll set tells when read_socket() has something to do, its data a LocalLine*. It must
  // outlive the line, or be forgotten by abandon(). False: that cannot be.
  bool announce_in(int poll_set) { return entry_.join(poll_set, socket_.get(), this); }
  // Takes what has come by the socket: the offer, the answer, bells, the end; and of rings one. If such calls
  // have taken too much time, the line leaves the epoll set until resume().
  void read_socket();
  // Notes that the other is asked to ring once: the reader is about to sleep, or the writer waits for room.
  void expect_ring() { asked_rings_ = std::min(asked_rings_ + 1, kMaxAskedRings); }
  // Wakes the other, who sleeps; in resume() if such calls have taken too much time.
  void ring(CallCosts::Cause cause = CallCosts::Cause::kOurs);
  // Does what had to wait, if it may be done now. Returns from when on the rest may be done; kNever if
  // nothing is left.
  TimePoint resume(int poll_set);
  // Whether calls for it count, and in which accounts.
  bool is_foreign() const { return !is_ours_ && !own_end_; }
  const CallAccounts& accounts() const { return accounts_; }
  // It is of no use any more. The other sees the end when this line is destroyed.
  void lose() { state_ = State::kLost; }
  // Whether packets ever went by it.
  bool was_open() const { return was_open_; }
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
  LocalLine(ForeignSocket socket, State state, OwnBoard* board, const Bell* bell, CallAccounts accounts);
  bool try_to_send(ConstBytes message, std::span<const int> files = {});
  // What the line cannot do without.
  bool send(ConstBytes message, std::span<const int> files = {});
  bool may_bring_file() const;
  // Makes calls on the socket, whose time counts. Another process of our user could stop us anyway, so calls
  // for it are not measured.
  template <class Calls>
  void measure(CallCosts::Cause cause, const Calls& calls);
  bool may_call(CallCosts::Cause cause) const { return !is_foreign() || accounts_.allow(cause); }
  CallCosts::Cause cause_of_read() const;
  void tell_of_pause() const {
    if (accounts_.on_pause != nullptr) (*accounts_.on_pause)();
  }
  void read_messages();
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
  void drop_offer();
  // Makes calls on halves, whose time counts even where they only wait.
  template <class Calls>
  void measure_waits(const Calls& calls) const {
    is_foreign() ? accounts_.measure_waits(calls) : calls();
  }
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
  const CallAccounts accounts_;
  // Rings that the other was asked for: reading the socket is our own wish as often.
  static constexpr int kMaxAskedRings = 64;
  int asked_rings_ = 0;
  bool is_paused_ = false;                     // the socket has left the epoll set
  std::optional<CallCosts::Cause> owed_ring_;  // that had to wait
  OwnBoard* const board_;
  const Bell* const bell_;  // ours
  std::optional<Bell> their_bell_;
  bool takes_bells_ = false;      // the other
  bool sends_copies_ = false;     // it can
  std::vector<GroupKey> asked_;   // of the other
  std::vector<GroupKey> wanted_;  // by it
  uint32_t wanted_changes_ = 0;
  bool awaits_presentation_ = false;
  bool is_presented_ = false;
  bool is_ours_ = false;       // the other is a process of our user and says that it sees the same as we
  bool is_shown_ = false;      // and may see what we show of ourselves
  bool sees_the_same_ = true;  // so says the other, or it is older and does not say
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
