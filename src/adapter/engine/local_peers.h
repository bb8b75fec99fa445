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

// A multicast group that a shard has QPs in, as those see it who bring its packets by memory. With the
// shard's lock held.
class GroupMember {
 public:
  virtual ~GroupMember() = default;
  virtual GroupKey key() const = 0;
  // Whether an address is of the group's link.
  virtual bool is_ours(const roce::Address& address) const = 0;
  // Whether some QP takes datagrams with this Q_Key.
  virtual bool has_qkey(uint32_t qkey) const = 0;
  virtual void on_copy(const transport::IncomingPacket& packet) = 0;

  ListHook member_hook;
};

// The places for guests: slots that have a channel with this process, or are asked for one, without the
// program having named them. Any process of the host, of whatever user, can make itself one. Each channel
// costs a descriptor, memory, and a look in every poll, so all shards of the process share the places. Any
// thread.
class GuestPlaces {
 public:
  static constexpr uint32_t kMax = 64;

  // False: all are taken.
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

// The other slots of this host that a shard reaches by memory, and what comes from them. A QP that is
// connected to an address of this host goes by memory as soon as both processes have agreed to a channel,
// which the agent makes them meet for; until then, and with a process that does not want one, by its port.
class LocalPeers final : public Input, public LocalWays, private Alarm {
 public:
  // Asks the agent for the way to a slot; connect() brings the answer, if this is no error. Never blocks.
  using Ask = std::function<Result<void>(uint32_t slot)>;

  // VERBENA_LOCAL=off: everything goes by ports.
  static bool is_wanted();

  // `board`: what others are shown of this process; null: nothing. `guests`: the process's, which outlive us;
  // null: no other shard has any.
  LocalPeers(Shard& shard, Ask ask, OwnBoard* board = nullptr, GuestPlaces* guests = nullptr);
  ~LocalPeers() override;

  // ---- any thread, not inside Shard::exclusively()

  // From the agent: the socket to a slot, asked for by us or by the other; or why there is none. ESTALE: the
  // slot's process has returned it, and channels to that process are given up.
  void connect(control::SlotChannel news);
  // The addresses of this host's links. `unreachable` are GIDs of its links to which no packets come, but
  // which QPs may name as their source.
  void set_addresses(std::vector<roce::Address> addresses, std::vector<roce::Address> unreachable = {});
  // What is sent from now on goes into the ring of the file, too; an empty one: no longer. Who reads the ring
  // is not trusted.
  void capture(const UniqueFd& ring);
  // How long await() waits. The other process answers within a fraction of a millisecond if it runs at all;
  // and a QP that goes by its port meanwhile is moved later.
  static constexpr Duration kPatience = std::chrono::milliseconds(20);
  // Before a QP is connected: sees to it that there is a channel, if there can be one, and waits for the
  // other process's answer.
  void await(const roce::Path& path, roce::Qpn destination, Duration patience = kPatience);

  // ---- inside Shard::exclusively()

  // For tests: measures calls on sockets of other users by this clock, which outlives us.
  void measure_calls_by(const CallClock& clock) { call_clock_ = &clock; }
  // What others send to the group comes to it by memory from now on, too, once it has been heard from them.
  // It ends with forget(), which must come before the member's end, and ours.
  void add(GroupMember& member) { members_.push_back(member); }
  void forget(GroupMember& member);
  // A packet has come to the group by the wire. True: its copy may come by memory, or have come. If its
  // sender can be reached by memory it is asked for copies from then on. One that the program has not named
  // is asked for a channel as a guest.
  bool heard(const GroupMember& member, const transport::IncomingPacket& packet);

  // Whether await() would wait.
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
  // A line that packets come by.
  struct Source {
    LocalPeer* peer;
    LocalLine* line;
  };

  void on_alarm() override;
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
  CallAccounts accounts_of(const LocalPeer& peer);
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
  // Mapped memory of other processes that is not used any more is unmapped after a while.
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
  std::unique_ptr<CaptureTap> tap_;  // its peers have it, too
  bool listening_ = false;
  bool must_read_sockets_ = false;
  bool alarm_is_set_ = false;
  uint32_t rounds_ = 0;
  std::vector<std::unique_ptr<LocalPeer>> peers_;  // by slot
  const CallClock* call_clock_ = &kCallClock;
  struct UserCosts {
    uid_t user;
    std::shared_ptr<CallCosts> costs;
  };
  std::vector<UserCosts> user_costs_;
  CallCosts guest_costs_;
  TimePoint strangers_awaited_from_{};  // when await() waits for other users' processes again
  Pausing pausing_{*this};
  const std::function<void()> on_pause_ = [this] { resume_in({}); };
  std::vector<Source> sources_;
  std::vector<roce::Address> addresses_;
  std::vector<roce::Address> unreachable_;
  uint32_t addresses_changed_ = 1;  // how often, never 0
  IntrusiveList<LocalPeer, &LocalPeer::staged_hook> staged_;
  using FullList = IntrusiveList<LocalPeer, &LocalPeer::full_hook>;
  FullList full_;
  WideRings wide_rings_;
  Unmapping unmapping_{*this};
  MulticastWays groups_;
  IntrusiveList<GroupMember, &GroupMember::member_hook> members_;
  uint32_t copies_ = 0;  // of multicasts, among the packets that are just being read

  // For those who wait in await().
  std::mutex news_mutex_;
  std::condition_variable news_;
  uint32_t news_count_ = 0;
};

}  // namespace verbena::engine
