// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "adapter/engine/alarms.h"
#include "adapter/engine/input.h"
#include "adapter/engine/multicast_ways.h"
#include "adapter/engine/shard.h"
#include "adapter/shm/local_peer.h"
#include "adapter/shm/local_ways.h"
#include "adapter/shm/wide_rings.h"
#include "base/own_fd.h"
#include "control/model/slot_messages.h"

namespace verbena::engine {

class CaptureTap;

// A multicast group in which a shard has QPs, as seen by LocalPeers, which brings copies of its packets by
// shared memory. REQUIRES: the shard's lock is held
class GroupMember {
 public:
  virtual ~GroupMember() = default;
  virtual GroupKey key() const = 0;
  // Returns whether an address belongs to the group's link.
  virtual bool is_ours(const roce::Address& address) const = 0;
  // Returns whether a QP of the group accepts datagrams with this Q_Key.
  virtual bool has_qkey(uint32_t qkey) const = 0;
  virtual void on_copy(const transport::IncomingPacket& packet) = 0;

  ListHook member_hook;
};

// Counts guests: slots that have a channel with this process, or are asked for one, although the program has
// not named a QP of theirs. Any process of the host, of any user, can become one. Each channel costs a
// descriptor, memory, and a check in every poll, so all shards of the process share kMax places. Any thread.
class GuestPlaces {
 public:
  static constexpr uint32_t kMax = 64;

  // Takes a place. Returns false if all are taken.
  bool take() {
    uint32_t taken = taken_.load(std::memory_order_relaxed);
    while (taken < kMax) {
      if (taken_.compare_exchange_weak(taken, taken + 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  void give_back() { taken_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> taken_{0};
};

// The other slots of this host that a shard reaches by shared memory, and the packets from them. The agent
// introduces both processes to each other (connect()). A QP that is connected to an address of this host uses
// memory as soon as there is a channel. Until then it uses its port, and always so if the other process
// refuses.
class LocalPeers final : public Input, public LocalWays, private Alarm {
 public:
  // Asks the agent for a socket to a slot. Never blocks. If it returns no error, connect() brings the answer.
  using Ask = std::function<Result<void>(uint32_t slot)>;

  // Returns whether shared memory may be used: false if VERBENA_LOCAL is "off" or "0".
  static bool is_wanted();

  // `board`: this process's export table for the others; null: they do not access its memory directly.
  // `guests`: the process's places for guests, which outlive this object; null: no other shard has any.
  LocalPeers(Shard& shard, Ask ask, OwnBoard* board = nullptr, GuestPlaces* guests = nullptr);
  ~LocalPeers() override;

  // ---- any thread, not inside Shard::exclusively()

  // Called with a message of the agent about another slot. It brings a socket to the slot's process, for
  // which this process or the other has asked, or an error. ESTALE: the process has returned the slot;
  // channels to it are given up.
  void connect(control::SlotChannel news);
  // Sets the addresses of this host's links. `unreachable` are GIDs of its links that get no packets but that
  // QPs may name as their source.
  void set_addresses(std::vector<roce::Address> addresses, std::vector<roce::Address> unreachable = {});
  // Captures the packets that are sent by shared memory from now on: also writes them into the ring of this
  // file. An empty descriptor ends the capture. The process that reads the ring is not trusted.
  void capture(const UniqueFd& ring);
  // The longest time that await() waits. The other process answers within a fraction of a millisecond if it
  // runs at all. A QP that uses its port meanwhile is moved later.
  static constexpr Duration kPatience = std::chrono::milliseconds(20);
  // Called before a QP is connected: asks for a channel to the destination's process, if there can be one,
  // and waits for the answer.
  void await(const roce::Path& path, roce::Qpn destination, Duration patience = kPatience);

  // ---- inside Shard::exclusively()

  // For tests: measures calls on sockets of other users by this clock, which outlives us.
  void measure_calls_by(const CallClock& clock) { call_clock_ = &clock; }
  // Lets the group receive copies by shared memory. When the first packet of a process of this host to the
  // group has come, this object asks that process for copies. REQUIRES: forget() is called before the group
  // or this object is destroyed
  void add(GroupMember& member) { members_.push_back(member); }
  void forget(GroupMember& member);
  // Called when a packet to the group has come by the wire. Asks its sender for copies, if the sender can be
  // reached by shared memory. If the program has not named a QP of the sender, the sender needs a place as a
  // guest (GuestPlaces). Returns true if a copy of this packet may come, or have come, by memory; then the
  // caller must drop the packet or the copy.
  bool heard(const GroupMember& member, const transport::IncomingPacket& packet);

  // Returns whether await() would wait.
  bool is_worth_waiting_for(const roce::Path& path, roce::Qpn destination);

  // LocalWays
  const transport::Route* find(const roce::Path& path, roce::Qpn destination) override;
  const transport::Route* find_open(const roce::Path& path, roce::Qpn destination) override;
  std::string obstacle(const roce::Path& path, roce::Qpn destination) const override;
  bool is_pending(const roce::Path& path, roce::Qpn destination) override;
  const transport::Route& find_group(const roce::Path& path, const transport::Route& by_port) override {
    return groups_.find(path, by_port);
  }
  bool is_full(uint32_t port) const override { return peers_[port - kFirst]->full_hook.is_linked(); }
  protocol::QpWay way(uint32_t port) const override { return peers_[port - kFirst]->way(); }
  void note_full(uint32_t port) override;
  void wait(transport::QueuePair& qp) override;
  bool flush(ReadyList& ready) override;
  void push() override;
  bool is_quiet() const override;

  // Input
  int fd() const override { return poll_set_.get(); }
  bool has_set() const override { return true; }
  const Bell* bell() const override { return bell_ ? &*bell_ : nullptr; }
  bool is_memory() const override { return true; }
  uint32_t receive(uint32_t budget, TimePoint now) override;
  void on_woken() override {
    must_read_sockets_ = true;
    listening_ = false;
  }
  bool listen(bool on) override;
  bool is_whole() const override { return poll_set_.is_ours(); }
  void abandon() override;

 private:
  // A line (channel) from which packets are read.
  struct Source {
    LocalPeer* peer;
    LocalLine* line;
  };

  void on_alarm() override;
  void set_alarm();
  bool is_awaited(LocalPeer& peer);
  bool ask(LocalPeer& peer, TimePoint now);
  bool admit(LocalPeer& peer);
  ptrdiff_t guests_of(uid_t user) const;
  void dismiss(LocalPeer& peer, TimePoint now);
  bool is_candidate(const roce::Path& path, roce::Qpn destination) const;
  LocalPeer* peer_at(uint32_t slot);
  void open_poll_set();
  void loop(LocalPeer& peer);
  void end_lines(LocalPeer& peer);
  void avoid(LocalPeer& peer, Duration time);
  ChannelAccounts accounts_of(const LocalPeer& peer);
  void take_asked(LocalPeer& peer, ForeignSocket& socket, int error);
  void take_invitation(LocalPeer& peer, ForeignSocket& socket);
  void accept(LocalPeer& peer, ForeignSocket socket);
  bool question_came_to_nothing(LocalPeer& peer);
  void note_wait_in_vain(LocalPeer& peer);
  bool watch(LocalLine& line);
  void set_line(LocalPeer& peer, LocalPeer::Side side, std::unique_ptr<LocalLine> line);
  void read_sockets();
  void ask_for_bells_again();
  uint32_t read(Source source, uint32_t budget);
  bool comes_from_here(PacketReader& reader) const;
  static bool may_take(const transport::QueuePair& qp, const LocalPeer& peer, const roce::Headers& headers);
  void take(const LocalPeer& peer, const transport::IncomingPacket& incoming);
  bool take_plain(const LocalPeer& peer, const transport::PlainSend& message, const roce::Path& path);
  void take_copy(const LocalPeer& peer, const transport::IncomingPacket& incoming);
  void wanted_groups_changed();
  void remove_lost();
  void lines_changed();
  void reroute_to(const LocalPeer& peer);
  void show_way_to(LocalPeer& peer);
  template <class Wanted>
  void reroute_those(Wanted wanted);
  void tell_waiters();
  void note_full(LocalPeer& peer) {
    if (!peer.full_hook.is_linked()) full_.push_back(peer);
  }
  // Unmaps memory of other processes that has not been used for a while.
  struct Unmapping final : Alarm {
    explicit Unmapping(LocalPeers& p) : peers(p) {}
    void on_alarm() override { peers.unmap_unused(); }
    LocalPeers& peers;
    bool is_set = false;
  };
  void watch_mappings();
  void unmap_unused();
  // Resumes lines after a pause (LocalLine::resume()).
  struct Pausing final : Alarm {
    explicit Pausing(LocalPeers& p) : peers(p) {}
    void on_alarm() override { peers.resume(); }
    LocalPeers& peers;
    bool is_set = false;
  };
  void resume_in(Duration time);
  void resume();

  Shard& shard_;
  const Ask ask_;
  OwnBoard* const board_;
  GuestPlaces own_guests_;
  GuestPlaces& guests_;
  OwnFd poll_set_;  // of the lines' sockets
  std::optional<Bell> bell_;
  bool is_input_ = false;
  bool abandoned_ = false;
  std::unique_ptr<CaptureTap> tap_;  // its peers have a pointer to it
  bool listening_ = false;
  bool must_read_sockets_ = false;
  bool alarm_is_set_ = false;
  uint32_t rounds_ = 0;
  std::vector<std::unique_ptr<LocalPeer>> peers_;  // by slot
  const CallClock* call_clock_ = &kCallClock;
  struct UserCosts {
    uid_t user;
    std::shared_ptr<CallCosts> handshakes = std::make_shared<CallCosts>();
    std::shared_ptr<CallCosts> open_channels = std::make_shared<CallCosts>();
    bool is_forgettable(TimePoint now) const {
      return handshakes.use_count() == 1 && handshakes->is_forgettable(now) &&
             open_channels.use_count() == 1 && open_channels->is_forgettable(now);
    }
  };
  std::vector<UserCosts> user_costs_;
  CallCosts guest_handshakes_;
  CallCosts guest_channels_;
  TimePoint strangers_awaited_from_{};  // when await() waits for other users' processes again
  Pausing pausing_{*this};
  const std::function<void()> on_pause_ = [this] { resume_in({}); };
  std::vector<Source> sources_;
  std::vector<roce::Address> addresses_;
  std::vector<roce::Address> unreachable_;
  uint32_t addresses_changed_ = 1;  // the number of changes of both lists; never 0
  IntrusiveList<LocalPeer, &LocalPeer::staged_hook> staged_;
  using FullList = IntrusiveList<LocalPeer, &LocalPeer::full_hook>;
  FullList full_;
  WideRings wide_rings_;
  Unmapping unmapping_{*this};
  MulticastWays groups_;
  IntrusiveList<GroupMember, &GroupMember::member_hook> members_;
  uint32_t copies_ = 0;  // multicast copies among the packets that are being read

  // For threads that wait in await().
  std::mutex news_mutex_;
  std::condition_variable news_;
  uint32_t news_count_ = 0;
};

}  // namespace verbena::engine
