// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "adapter/shm/call_costs.h"
#include "adapter/shm/channel_memory.h"
#include "adapter/shm/group_key.h"
#include "adapter/shm/kept_files.h"
#include "adapter/shm/local_packets.h"
#include "adapter/shm/own_board.h"
#include "adapter/shm/peer_memory.h"
#include "adapter/shm/unread_files.h"
#include "base/bell.h"
#include "base/foreign_socket.h"
#include "base/own_fd.h"
#include "base/plain_calls.h"
#include "base/result.h"
#include "base/time.h"

namespace verbena::engine {

// A channel to another slot of this host ("the peer" below is the process at that slot): memory that both
// processes have mapped, and a socket between them. One process offers the memory by the socket, and the
// other accepts it. Later the socket shows whether the peer is still there. Between different users each
// process has one half of the memory and writes only to that (shm::ChannelHalf). When the peer hangs up,
// packets that it has written are still read.
//
// "To ring" is to wake a sleeping process. A process gives its wake-up descriptor (Bell) to processes of its
// own user. All others ring it by a byte on the socket.
//
// Everything that comes by the memory or the socket is untrusted. For the shard's lock holder. Nothing
// blocks.
class LocalLine {
 public:
  enum class State : uint8_t {
    kOffered,   // our memory, or our half; the peer has not answered
    kAwaiting,  // the peer is to offer its memory
    kOpen,
    kLost,  // the peer has hung up, refused, or does not keep to the rules
  };

  // Makes the memory and offers it by the socket. Errors: ENOMEM, EMFILE and others of the kernel; EPIPE if
  // the offer cannot be sent, for example because the peer has hung up; EDQUOT if the peer's user keeps files
  // of earlier channels (kept_files.h).
  // `board`: our export table, by which the peer may access our memory directly. If it is null, the peer gets
  // no access, and is treated like a process of another user.
  // `bell`: our wake-up, which the peer rings; null: the peer uses the socket. Must outlive the line.
  // `accounts`: the time of calls for a process of another user is added to them. Their pointers must remain
  // valid as long as the line lives.
  static Result<std::unique_ptr<LocalLine>> offer(ForeignSocket socket, OwnBoard* board = nullptr,
                                                  const Bell* bell = nullptr, ChannelAccounts accounts = {});
  // Makes a line to this process itself: one lane, which is written and read here. Errors: the kernel's.
  static Result<std::unique_ptr<LocalLine>> loop(const Bell* bell = nullptr);
  // Waits for the peer to offer its memory. Arguments as for offer().
  static std::unique_ptr<LocalLine> await(ForeignSocket socket, OwnBoard* board = nullptr,
                                          const Bell* bell = nullptr, ChannelAccounts accounts = {});
  ~LocalLine();
  LocalLine(const LocalLine&) = delete;
  LocalLine& operator=(const LocalLine&) = delete;

  State state() const { return state_; }
  bool is_open() const { return state_ == State::kOpen; }
  int fd() const { return socket_.get(); }
  // Registers the socket in an epoll set, which then reports when to call read_socket(). The event's data is
  // this LocalLine*. The set must outlive the line, unless abandon() is called. Returns false if the socket
  // cannot be registered.
  bool announce_in(int poll_set) { return entry_.join(poll_set, socket_.get(), this); }
  // Reads messages that have come by the socket: the offer, the answer to it, others, the end of the
  // connection, and at most one ring. A malformed message makes the line kLost. If calls on this socket have
  // taken too much time (CallCosts), reads nothing, and takes the socket out of the epoll set until resume().
  void read_socket();
  // Notes that we have asked the peer for one ring, because our reader is about to sleep or our writer waits
  // for room. So the next read_socket() counts as caused by us and not by the peer (CallCosts::Cause).
  void expect_ring() { asked_rings_ = std::min(asked_rings_ + 1, kMaxAskedRings); }
  // Rings the peer, which sleeps. If such calls have taken too much time, it is rung later, in resume().
  void ring(CallCosts::Cause cause = CallCosts::Cause::kOurs);
  // Rings the peer if ring() has put this off, and puts the socket back into the epoll set if read_socket()
  // has taken it out, each if CallCosts allows it now. Returns the time from which the rest is allowed, or
  // kNever if nothing is left.
  TimePoint resume(int poll_set);
  // Returns whether the peer is a process of another user, so that calls for it count in the accounts.
  bool is_foreign() const { return !is_ours_ && !own_end_; }
  const CallAccounts& accounts() const { return was_open_ ? accounts_.open : accounts_.handshake; }
  // Marks the line as lost. The peer notices when this line is destroyed.
  void lose() { state_ = State::kLost; }
  // Returns whether the line was ever open.
  bool was_open() const { return was_open_; }
  // For a child after fork(): releases the socket, the epoll set and the peer's memory. This has no effect on
  // the parent's line.
  void abandon();

  // The maximum number of groups of which one end gets copies.
  static constexpr size_t kMaxGroups = 64;
  enum class Asked : uint8_t { kNo, kJustNow, kBefore };
  // Asks the peer for a copy of each datagram that it sends to the multicast group (MulticastWays). Returns
  // kBefore if the peer was asked before, and kJustNow if it is asked now. Returns kNo if its library is too
  // old, kMaxGroups are reached, or the message cannot be sent now.
  Asked ask_for(const GroupKey& group);
  void decline(const GroupKey& group);
  // wanted(): the groups of which the peer wants copies. wanted_changes() counts the changes of that list.
  const std::vector<GroupKey>& wanted() const { return wanted_; }
  uint32_t wanted_changes() const { return wanted_changes_; }

  // REQUIRES for both: has_lanes(). Lanes exist once the line has been open.
  PacketWriter& writer() { return *writer_; }
  PacketReader& reader() { return *reader_; }
  bool has_lanes() const { return writer_.has_value(); }
  // Returns whether the peer is a process of our user in the same pid namespace, or this process itself. Only
  // such a peer may learn addresses of our memory.
  bool is_shown() const { return is_ours_ || own_end_; }
  // Exchanges the counts of read entries between the line's reader and writer. The next entry that we write
  // will tell the peer how many of its entries we have read. And our writer learns how many of our entries
  // the peer has read, as its latest entry says. REQUIRES: has_lanes(), an entry has been read, and no entry
  // that was read is in use any more
  void tell_taken() {
    const shm::LaneReader& read = reader_->lane();
    writer_->lane().say_taken(read.read_so_far());
    writer_->lane().hear_taken(read.taken_by_writer());
  }
  // Returns the peer's memory; nullptr: it is reached only by packets.
  PeerMemory* peer_memory() { return peer_memory_.get(); }
  // Returns how far the peer's memory is reached, or why not.
  protocol::QpWay way() const { return way_; }
  // Returns whether an access of the peer to our memory has lasted too long (AccessWatch). If so, the line
  // should be given up.
  bool is_overdue() const { return visitor_ != nullptr && visitor_->is_overdue(); }

 private:
  LocalLine(ForeignSocket socket, State state, OwnBoard* board, const Bell* bell, ChannelAccounts accounts);
  bool try_to_send(ConstBytes message, std::span<const int> files = {});
  // As try_to_send(), for messages that the line needs: if it fails, the line is lost.
  bool send(ConstBytes message, std::span<const int> files = {});
  bool may_bring_file() const;
  // Makes calls on the socket and adds their time to the accounts. Calls for another process of our user are
  // not measured, because such a process could stop us anyway.
  template <class Calls>
  void measure(CallCosts::Cause cause, const Calls& calls);
  bool may_call(CallCosts::Cause cause) const { return !is_foreign() || accounts().allow(cause); }
  CallCosts::Cause cause_of_read() const;
  void tell_of_pause() const {
    if (accounts_.open.on_pause != nullptr) (*accounts_.open.on_pause)();
  }
  uid_t peer_user() const { return accounts_.open.user_id; }
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
  // Makes calls on halves of a channel. Waiting counts as well, not only processor time.
  template <class Calls>
  void measure_waits(const Calls& calls) const {
    is_foreign() ? accounts().measure_waits(calls) : calls();
  }
  void open();

  // The first member, so it is destroyed last: when the channel's memory is unmapped, the channel's
  // descriptors are closed already.
  std::shared_ptr<ChannelMapping> mapping_;
  std::optional<OwnHalf> our_half_;  // of a channel to another user's process, which has no mapping_
  std::optional<TheirHalf> their_half_;
  ForeignSocket socket_;
  SentFiles sent_files_;  // by the socket
  PollEntry entry_;
  OwnFd own_end_;        // the other end of the socket, of a line to ourselves
  GivenFile offered_;    // the file of an offer with memory, until it is answered
  GivenFile half_file_;  // of our_half_
  State state_;
  bool was_open_ = false;
  const ChannelAccounts accounts_;
  // Rings that the peer was asked for: for as many readings of the socket this process is the cause.
  static constexpr int kMaxAskedRings = 64;
  int asked_rings_ = 0;
  bool is_paused_ = false;                     // the socket has left the epoll set
  std::optional<CallCosts::Cause> owed_ring_;  // the ring that had to wait, and its cause
  OwnBoard* const board_;
  const Bell* const bell_;  // ours
  std::optional<Bell> their_bell_;
  bool takes_bells_ = false;      // the peer's library knows bells
  bool sends_copies_ = false;     // the peer's library can send copies to groups
  std::vector<GroupKey> asked_;   // groups whose copies we asked the peer for
  std::vector<GroupKey> wanted_;  // groups of which the peer wants copies
  uint32_t wanted_changes_ = 0;
  bool awaits_presentation_ = false;
  bool is_presented_ = false;
  bool is_ours_ = false;  // the peer is a process of our user, and sees_the_same_
  // The peer's greeting came from a process of our user in our pid namespace that sees the same processes as
  // we. Both the peer and the kernel say so. A peer whose library is older says nothing.
  bool sees_the_same_ = false;
  bool hung_up_ = false;  // the peer has closed its end
  shm::Lane* our_lane_ = nullptr;
  shm::Lane* their_lane_ = nullptr;
  std::shared_ptr<AccessWatch::Visitor> visitor_;  // the peer, in our memory
  std::unique_ptr<PeerMemory> peer_memory_;
  protocol::QpWay way_ = protocol::QpWay::kMemory;
  std::optional<PacketWriter> writer_;
  std::optional<PacketReader> reader_;
};

}  // namespace verbena::engine
