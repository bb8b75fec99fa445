// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/local_peers.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "adapter/shm/capture_tap.h"
#include "adapter/shm/kept_files.h"
#include "base/cancellation_off.h"
#include "base/log.h"
#include "base/plain_calls.h"

namespace verbena::engine {
namespace {

using net::DropReason;
using transport::IncomingPacket;
using transport::PlainSend;
using transport::QueuePair;

// An agent may be restarted, and our question with it be lost.
constexpr Duration kAskTimeout = std::chrono::seconds(1);
// After a refusal. The process at the slot may be another by then.
constexpr Duration kRefusalLasts = std::chrono::seconds(1);
// Guests of one user other than ours.
constexpr ptrdiff_t kMaxGuestsOfUser = 16;
// While nobody sleeps no bell is rung, but lines are offered, and end.
constexpr uint32_t kRoundsPerLook = 1024;
// Packets read from a line in one round. Acknowledgements go out between rounds: a sender with 128 requests
// under way, as programs have it, would wait while the receiver works and the other way round.
constexpr uint32_t kTurn = 32;
// Of one slot, if no answer comes to them.
constexpr uint8_t kMaxQuestions = 8;
// Sixteen sockets are read in each. What the kernel tells of comes in turns.
constexpr int kMaxRounds = 4;
// To look at more of them takes longer than all else in a poll.
constexpr size_t kFew = 4;
// Lines that had to pause are looked at this often at most.
constexpr Duration kShortestPause = std::chrono::milliseconds(1);
// Memory of another process that has not been used for as long, or for twice as long, is unmapped.
constexpr Duration kUnmapsAfter = std::chrono::seconds(2);

}  // namespace

bool LocalPeers::is_wanted() {
  const char* value = ::secure_getenv("VERBENA_LOCAL");
  return value == nullptr || (std::string_view(value) != "off" && std::string_view(value) != "0");
}

LocalPeers::LocalPeers(Shard& shard, Ask ask, OwnBoard* board, GuestPlaces* guests)
    : shard_(shard), ask_(std::move(ask)), board_(board), guests_(guests != nullptr ? *guests : own_guests_) {
  shard_.set_local_ways(this);
}

LocalPeers::~LocalPeers() {
  shard_.exclusively([&] {
    shard_.set_local_ways(nullptr);
    shard_.cancel_alarm(*this);
    if (is_input_) shard_.remove_input(*this);
    shard_.cancel_alarm(unmapping_);
    shard_.cancel_alarm(pausing_);
    sources_.clear();
    for (const auto& peer : peers_) {
      if (peer != nullptr && peer->is_guest) guests_.give_back();
    }
  });
}

// ---- routes

bool LocalPeers::is_candidate(const roce::Path& path, roce::Qpn destination) const {
  if (abandoned_ || destination.value() < 2 || destination == roce::kMulticastQpn) return false;
  return std::ranges::find(addresses_, path.destination) != addresses_.end();
}

LocalPeer* LocalPeers::peer_at(uint32_t slot) {
  try {
    if (peers_.empty()) peers_.resize(roce::Qpn::kSlots);
    auto& peer = peers_[slot];
    if (peer == nullptr) {
      peer = std::make_unique<LocalPeer>(slot, shard_.counters());
      peer->staged_in = &staged_;
      peer->set_tap(tap_.get());
      peer->on_mapping = [this] { watch_mappings(); };
    }
    return peer.get();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

const transport::Route* LocalPeers::find(const roce::Path& path, roce::Qpn destination) {
  if (is_pending(path, destination)) return nullptr;  // who asks is moved when there is a line
  return find_open(path, destination);
}

const transport::Route* LocalPeers::find_open(const roce::Path& path, roce::Qpn destination) {
  if (!is_candidate(path, destination)) return nullptr;
  const uint32_t slot = destination.slot();
  const LocalPeer* const peer = slot < peers_.size() ? peers_[slot].get() : nullptr;
  return peer != nullptr && peer->is_open() ? &peer->route() : nullptr;
}

// A channel loses nothing: who runs, and does not answer, has dropped what came.
std::string LocalPeers::obstacle(const roce::Path& path, roce::Qpn destination) const {
  if (!is_candidate(path, destination)) return {};
  const uint32_t slot = destination.slot();
  const LocalPeer* const peer = slot < peers_.size() ? peers_[slot].get() : nullptr;
  if (slot == shard_.slot() && shard_.find(destination) == nullptr)
    return "this process has no such queue pair: it was destroyed, or the number is wrong";
  if (slot == shard_.slot() || (peer != nullptr && peer->is_open())) {
    return "its process on this host runs and drops the requests: the queue pair there is not in RTR or RTS, "
           "is connected to another one, was destroyed, the number is wrong, or its rq_psn is not our sq_psn "
           "('verbena status -v' shows the queue pairs)";
  }
  if (peer != nullptr && peer->refusal == ENOENT)
    return "no process of this host has this queue pair: it has ended, or the number is wrong";
  return {};
}

bool LocalPeers::is_pending(const roce::Path& path, roce::Qpn destination) {
  if (!is_candidate(path, destination)) return false;
  LocalPeer* const peer = peer_at(destination.slot());
  if (peer == nullptr || peer->is_open()) return false;
  if (!std::exchange(peer->is_wanted, true)) dismiss(*peer, MonotonicClock::now());
  return is_awaited(*peer);
}

// Whether an answer is to come. Asks, if there is a point in it.
bool LocalPeers::is_awaited(LocalPeer& peer) {
  if (peer.is_open()) return false;
  const TimePoint now = MonotonicClock::now();
  if (now < peer.refused_until) return false;
  // The other has a socket of ours: it answers when it runs, or hangs up.
  if (now < peer.asked_until || peer.has_line()) return true;
  if (question_came_to_nothing(peer)) return true;
  if (peer.slot() == shard_.slot()) {
    loop(peer);
    return false;
  }
  return ask(peer, now);
}

bool LocalPeers::ask(LocalPeer& peer, TimePoint now) {
  if (!admit(peer)) return false;
  if (!ask_(peer.slot())) {
    peer.refused_until = now + kRefusalLasts;
    dismiss(peer, now);
    return false;
  }
  peer.asked_until = now + kAskTimeout;
  peer.is_asking = true;
  ++peer.questions;
  set_alarm();
  return true;
}

// Sets the alarm for on_alarm(), unless it is set already.
void LocalPeers::set_alarm() {
  if (!std::exchange(alarm_is_set_, true)) shard_.set_alarm(*this, kAskTimeout);
}

// Whether there may be a channel: the program wants it, or there is a place for a guest.
bool LocalPeers::admit(LocalPeer& peer) {
  if (peer.is_wanted || peer.is_guest) return true;
  if (guests_of(peer.user) >= kMaxGuestsOfUser || !accounts_of(peer).allow(CallCosts::Cause::kTheirs))
    return false;
  if (!guests_.take()) return false;
  set_alarm();
  return peer.is_guest = true;
}

// Each guest's socket costs a call when its process rings. Those of root, and of users not known yet, count
// as none.
ptrdiff_t LocalPeers::guests_of(uid_t user) const {
  if (user == 0 || user == kUnknownUser || user == ::geteuid()) return 0;
  return std::ranges::count_if(
      peers_, [&](const auto& peer) { return peer != nullptr && peer->is_guest && peer->user == user; });
}

// Gives back the place of a guest that needs none any more.
void LocalPeers::dismiss(LocalPeer& peer, TimePoint now) {
  if (!peer.is_guest) return;
  if (!peer.is_wanted && (peer.has_line() || peer.put_off || now < peer.asked_until)) return;
  peer.is_guest = false;
  guests_.give_back();
}

// Asks again for channels for which no answer has come: the agent has restarted, or one of the processes had
// too many messages to read. The QPs use their ports meanwhile. Also looks whether others still keep files of
// former channels (kept_files()).
void LocalPeers::on_alarm() {
  alarm_is_set_ = false;
  const TimePoint now = MonotonicClock::now();
  bool again = kept_files() > 0;
  for (const auto& peer : peers_) {
    if (abandoned_ || peer == nullptr || peer->has_line()) continue;
    dismiss(*peer, now);
    again |= peer->is_guest;
    if (peer->questions == 0 || peer->questions >= kMaxQuestions) continue;
    again = true;
    if (now < peer->asked_until || now < peer->refused_until || question_came_to_nothing(*peer)) continue;
    (void)ask(*peer, now);
  }
  if (again) set_alarm();
}

// One that has let somebody wait in vain may be stopped: the next QPs do without it until it answers.
// Processes of other users, which may do so on purpose, have a hundredth of the time together.
bool LocalPeers::is_worth_waiting_for(const roce::Path& path, roce::Qpn destination) {
  if (!is_pending(path, destination)) return false;
  const LocalPeer& peer = *peers_[destination.slot()];
  if (peer.kept_waiting) return false;
  return peer.user == ::geteuid() || call_clock_->now() >= strangers_awaited_from_;
}

void LocalPeers::note_wait_in_vain(LocalPeer& peer) {
  peer.kept_waiting = true;
  if (peer.user != ::geteuid()) strangers_awaited_from_ = call_clock_->now() + kPatience * CallCosts::kShare;
}

void LocalPeers::await(const roce::Path& path, roce::Qpn destination, Duration patience) {
  const CancellationOff whole;
  const auto pending = [&] {
    return shard_.exclusively([&] { return is_worth_waiting_for(path, destination); });
  };
  const TimePoint end = MonotonicClock::now() + patience;
  for (bool first = true;; first = false) {
    uint32_t seen;
    {
      const std::lock_guard guard(news_mutex_);
      seen = news_count_;
    }
    if (!pending()) return;
    if (first) shard_.expect_sleep();  // so that the engine thread takes the answer
    std::unique_lock lock(news_mutex_);
    if (news_.wait_until(lock, end, [&] { return news_count_ != seen; })) continue;
    lock.unlock();
    shard_.exclusively([&] {
      if (!abandoned_) note_wait_in_vain(*peers_[destination.slot()]);
    });
    return;
  }
}

void LocalPeers::tell_waiters() {
  const std::lock_guard guard(news_mutex_);
  ++news_count_;
  news_.notify_all();
}

// There may be a better way for those QPs.
template <class Wanted>
void LocalPeers::reroute_those(Wanted wanted) {
  shard_.for_each([&](QueuePair& qp) {
    if (!wanted(qp)) return;
    shard_.act_on(qp, [&] { qp.reroute(); });
    shard_.touched(qp);
  });
}

// ---- multicast

void LocalPeers::forget(GroupMember& member) {
  member.member_hook.unlink();
  const GroupKey key = member.key();
  for (GroupMember& other : members_) {
    if (other.key() == key) return;
  }
  for (const auto& peer : peers_) {
    if (peer != nullptr) peer->decline(key);
  }
  wanted_groups_changed();
}

// The first of a sender's packets come by the wire alone, and lead to a channel, as connecting does.
bool LocalPeers::heard(const GroupMember& member, const IncomingPacket& packet) {
  roce::Path back;
  back.destination = packet.path.source;
  const roce::Qpn sender = packet.packet.headers.source;
  if (!is_candidate(back, sender) || !member.has_qkey(packet.packet.headers.qkey)) return false;
  LocalPeer* const peer = peer_at(sender.slot());
  if (peer == nullptr || is_awaited(*peer) || !peer->is_open()) return false;
  const LocalLine::Asked asked = peer->ask_for(member.key());
  if (asked == LocalLine::Asked::kJustNow && peer->slot() == shard_.slot()) wanted_groups_changed();
  return asked != LocalLine::Asked::kNo;
}

// Who sends it is known, and speaks for nobody else. A copy does not say by which device it was sent: if the
// sender's address does not, either, it is of no use.
void LocalPeers::take_copy(const LocalPeer& peer, const IncomingPacket& incoming) {
  const roce::Path& path = incoming.path;
  ++copies_;
  if (incoming.packet.headers.service() != roce::Service::kUd ||
      incoming.packet.headers.source.slot() != peer.slot()) {
    ++shard_.counters().dropped[static_cast<size_t>(DropReason::kBadSource)];
    return;
  }
  uint32_t interface = 0;
  for (const GroupMember& member : members_) {
    const GroupKey key = member.key();
    if (key.group != path.destination || !member.is_ours(path.source)) continue;
    if (interface != 0 && interface != key.interface_index) return;
    interface = key.interface_index;
  }
  for (GroupMember& member : members_) {
    if (member.key() == GroupKey{path.destination, interface}) member.on_copy(incoming);
  }
}

void LocalPeers::wanted_groups_changed() {
  bool some_new = false;
  groups_.clear();
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    peer->for_each_wanted([&](const GroupKey& group) { some_new |= groups_.add(group, *peer); });
  }
  if (some_new) reroute_those([](const QueuePair& qp) { return qp.attributes().destination.value() == 0; });
}

void LocalPeers::set_addresses(std::vector<roce::Address> addresses, std::vector<roce::Address> unreachable) {
  shard_.exclusively([&] {
    addresses_.swap(addresses);
    unreachable_.swap(unreachable);
    if (++addresses_changed_ == 0) ++addresses_changed_;
  });
}

void LocalPeers::capture(const UniqueFd& ring) {
  std::unique_ptr<CaptureTap> tap;
  if (ring) {
    auto opened = CaptureTap::open(ring.get());
    if (!opened) return log_warning("the agent gave no usable ring to capture packets into");
    tap = std::move(*opened);
  }
  shard_.exclusively([&] {
    if (abandoned_) return;
    for (const auto& peer : peers_) {
      if (peer != nullptr) peer->set_tap(tap.get());
    }
    tap_.swap(tap);
  });
}

// ---- lines

void LocalPeers::connect(control::SlotChannel news) {
  ForeignSocket socket(std::move(news.socket));
  shard_.exclusively([&] {
    LocalPeer* const peer =
        abandoned_ || news.peer_slot >= roce::Qpn::kSlots ? nullptr : peer_at(news.peer_slot);
    if (peer == nullptr) return;
    open_poll_set();
    peer->kept_waiting = false;
    if (news.is_end_of_lease()) {
      end_lines(*peer);
      peer->user = kUnknownUser;
      return;
    }
    peer->user = news.peer_user;
    // An answer to a question that was asked twice, or a question of one that had not heard of our answer
    // yet. Both ends look first whether there is a line by now, and keep it if there is.
    if (peer->has_line()) read_sockets();
    if (peer->is_open()) {
      if (news.asked) peer->is_asking = false;
      return;
    }
    if (socket && peer->is_wanted) {
      const Duration pause = accounts_of(*peer).allowed_from(CallCosts::Cause::kOurs) - call_clock_->now();
      if (pause > Duration::zero()) return avoid(*peer, pause);
    }
    if (news.asked) {
      take_asked(*peer, socket, news.error);
    } else if (socket) {
      take_invitation(*peer, socket);
    }
  });
  // Not inside exclusively(), and not on this thread, which others wait for.
  socket.hang_up_later(news.peer_user);
  tell_waiters();
}

// The process may have accepted our offer, sent its packets and ended before we read its answer.
void LocalPeers::end_lines(LocalPeer& peer) {
  if (peer.slot() == shard_.slot()) return;
  peer.put_off.hang_up_later(peer.user);
  peer.is_asking = false;
  if (!peer.has_line()) return;
  for (const LocalPeer::Side side : {LocalPeer::kAskedByUs, LocalPeer::kAskedByThem}) {
    LocalLine* const line = peer.line(side);
    if (line == nullptr) continue;
    line->read_socket();
    line->lose();
  }
  remove_lost();
  lines_changed();
}

// The peer gets no channel for a while: its socket is closed unread.
void LocalPeers::avoid(LocalPeer& peer, Duration time) {
  peer.asked_until = TimePoint::min();
  peer.is_asking = false;
  peer.put_off.hang_up_later(peer.user);
  peer.refused_until = std::max(peer.refused_until, MonotonicClock::now() + time);
}

// For the user that the agent has named last. Forgets users of whom there is nothing to remember. Processes
// of our user are not among the guests: most of them cost nothing, and others must not keep them out.
ChannelAccounts LocalPeers::accounts_of(const LocalPeer& peer) {
  std::erase_if(user_costs_,
                [now = call_clock_->now()](const UserCosts& known) { return known.is_forgettable(now); });
  auto known = std::ranges::find(user_costs_, peer.user, &UserCosts::user);
  if (known == user_costs_.end()) known = user_costs_.insert(known, {.user = peer.user});
  const auto accounts = [&](const std::shared_ptr<CallCosts>& user, CallCosts& guests) {
    return CallAccounts{.user = user,
                        .user_id = peer.user,
                        .guests = &guests,
                        .is_wanted = peer.user == ::geteuid() ? nullptr : &peer.is_wanted,
                        .clock = call_clock_,
                        .on_pause = &on_pause_};
  };
  return {accounts(known->handshakes, guest_handshakes_), accounts(known->open_channels, guest_channels_)};
}

void LocalPeers::take_asked(LocalPeer& peer, ForeignSocket& socket, int error) {
  peer.asked_until = TimePoint::min();
  peer.refusal = 0;
  if (error != EAGAIN) peer.questions = 0;
  // The user was not known when the guest was admitted. connect() closes a socket that is left.
  const bool is_one_too_many = peer.is_guest && guests_of(peer.user) > kMaxGuestsOfUser;
  if (socket && is_one_too_many) {
    error = EDQUOT;
  } else if (socket) {
    auto line = LocalLine::offer(std::move(socket), board_, bell(), accounts_of(peer));
    if (line) {
      peer.asked_until = MonotonicClock::now() + kAskTimeout;
      peer.is_asking = true;
      return set_line(peer, LocalPeer::kAskedByUs, std::move(*line));
    }
    error = line.error().code;
  }
  peer.refusal = error;
  log_debug("slot {} is not reached by memory: error {}", peer.slot(), error);
  if (question_came_to_nothing(peer)) return;
  const TimePoint now = MonotonicClock::now();
  peer.refused_until = now + kRefusalLasts;
  dismiss(peer, now);
}

// Both may have asked at once, and a channel is enough for two: it is the lower slot's. That of the other
// waits, in case that ours comes to nothing.
void LocalPeers::take_invitation(LocalPeer& peer, ForeignSocket& socket) {
  if (peer.is_asking && shard_.slot() < peer.slot()) {
    peer.put_off = std::move(socket);
  } else if (admit(peer)) {
    accept(peer, std::move(socket));
  }
}

// It is about to offer, so there is no point in asking ourselves.
void LocalPeers::accept(LocalPeer& peer, ForeignSocket socket) {
  peer.asked_until = MonotonicClock::now() + kAskTimeout;
  set_line(peer, LocalPeer::kAskedByThem,
           LocalLine::await(std::move(socket), board_, bell(), accounts_of(peer)));
}

// True: but there is what the other asked for.
bool LocalPeers::question_came_to_nothing(LocalPeer& peer) {
  peer.is_asking = false;
  if (!peer.put_off) return false;
  accept(peer, std::exchange(peer.put_off, {}));
  return true;
}

// A process that comes with another line has given up its first; what it wrote there came before.
void LocalPeers::set_line(LocalPeer& peer, LocalPeer::Side side, std::unique_ptr<LocalLine> line) {
  if (!watch(*line)) return;
  if (LocalLine* const before = peer.line(side); before != nullptr && before->has_lanes()) {
    read({&peer, before}, shm::kEntries);
  }
  peer.set_line(side, std::move(line));
  must_read_sockets_ = true;
  lines_changed();
}

// QPs of one shard that are connected to each other.
void LocalPeers::loop(LocalPeer& peer) {
  open_poll_set();
  auto line = LocalLine::loop(bell());
  if (!line || !watch(**line)) return;
  peer.set_line(LocalPeer::kAskedByUs, std::move(*line));
  lines_changed();
}

// Without the bell we are rung by the sockets.
void LocalPeers::open_poll_set() {
  if (poll_set_) return;
  poll_set_ = UniqueFd(plain_epoll_create());
  if (auto bell = Bell::make()) bell_.emplace(std::move(*bell));
}

bool LocalPeers::watch(LocalLine& line) {
  if (!line.announce_in(poll_set_.get())) return false;
  if (!is_input_) is_input_ = shard_.add_input(*this).has_value();
  return is_input_;
}

void LocalPeers::read_sockets() {
  must_read_sockets_ = false;
  std::array<epoll_event, 16> events;
  bool lost = false;
  for (const Source& source : sources_) {
    if (source.line->is_overdue()) source.line->lose();
    lost |= !source.line->is_open();
  }
  bool changed = lost;
  bool heard = false;
  bool wants_changed = false;
  std::optional<CallAccounts> counts_in;  // where the work that follows from it counts
  const CancellationOff whole;
  for (int round = 0;; ++round) {
    // Who rings without end is always ready: the rest of them have their turn in the next call.
    if (round == kMaxRounds) {
      must_read_sockets_ = true;
      break;
    }
    const long ready = ::syscall(SYS_epoll_pwait, poll_set_.get(), events.data(),
                                 static_cast<int>(events.size()), 0, nullptr, 0);
    for (long i = 0; i < ready; ++i) {
      auto& line = *static_cast<LocalLine*>(events[static_cast<size_t>(i)].data.ptr);
      const LocalLine::State before = line.state();
      const protocol::QpWay way_before = line.way();
      const uint32_t wants_before = line.wanted_changes();
      line.read_socket();
      const bool wants_other = line.wanted_changes() != wants_before;
      const bool is_lost = line.state() == LocalLine::State::kLost;
      const bool is_other = line.state() != before || is_lost || line.way() != way_before;
      wants_changed |= wants_other;
      changed |= is_other;
      if (line.is_foreign() && (wants_other || (is_other && line.accounts().is_guest())))
        counts_in = line.accounts();
      lost |= is_lost;
      heard = true;
    }
    if (lost) remove_lost();
    if (ready < static_cast<long>(events.size())) break;
  }
  const auto follow = [&] {
    if (changed) {
      lines_changed();
      tell_waiters();
    } else {
      if (wants_changed) wanted_groups_changed();
      if (heard) ask_for_bells_again();
    }
  };
  if (!counts_in) return follow();
  counts_in->measure(CallCosts::Cause::kTheirs, follow, [] { return true; });
}

// The engine thread sleeps, and a bell that was meant for it has been taken here: it may not be woken by that
// any more, and who rang does not ring twice.
void LocalPeers::ask_for_bells_again() {
  if (listening_ && listen(true)) shard_.wake_engine();
}

void LocalPeers::remove_lost() {
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    for (const LocalPeer::Side side : {LocalPeer::kAskedByUs, LocalPeer::kAskedByThem}) {
      LocalLine* const line = peer->line(side);
      if (line == nullptr || line->state() != LocalLine::State::kLost) continue;
      // Its last words.
      if (line->has_lanes()) read({peer.get(), line}, shm::kEntries);
      const bool was_refused = !line->was_open();
      peer->asked_until = TimePoint::min();
      peer->set_line(side, nullptr);
      if (side == LocalPeer::kAskedByUs && question_came_to_nothing(*peer)) continue;
      // Of two lines it is the one that is not needed that is hung up.
      if (was_refused && !peer->has_line()) {
        peer->refused_until = std::max(peer->refused_until, MonotonicClock::now() + kRefusalLasts);
      }
    }
  }
  if (kept_files() > 0) set_alarm();
}

// Lists again what there is to read, and moves QPs to ways that have opened.
void LocalPeers::lines_changed() {
  sources_.clear();
  const TimePoint now = MonotonicClock::now();
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    dismiss(*peer, now);
    peer->lines_changed();
    if (peer->is_open()) peer->kept_waiting = false;
    if (const LocalLine* const own = peer->line(LocalPeer::kAskedByUs); own != nullptr && own->is_open()) {
      peer->is_asking = false;
      peer->put_off.hang_up_later(peer->user);
    }
    for (const LocalPeer::Side side : {LocalPeer::kAskedByUs, LocalPeer::kAskedByThem}) {
      LocalLine* const line = peer->line(side);
      if (line != nullptr && line->is_open()) sources_.push_back({peer.get(), line});
    }
  }
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    const bool was_open = std::exchange(peer->was_open, peer->is_open());
    if (peer->is_open() && !was_open) reroute_to(*peer);
    show_way_to(*peer);
  }
  wanted_groups_changed();
  // What is there already is read by the caller, or by the engine thread.
  ask_for_bells_again();
}

void LocalPeers::reroute_to(const LocalPeer& peer) {
  reroute_those([&](const QueuePair& qp) {
    const roce::Qpn destination = qp.attributes().destination;
    const bool is_datagram = destination.value() == 0;
    return !goes_by_memory(qp) && (is_datagram || destination.slot() == peer.slot());
  });
}

// Its memory can be reached now, or it is known that it cannot.
void LocalPeers::show_way_to(LocalPeer& peer) {
  if (std::exchange(peer.was_way, peer.way()) == peer.way()) return;
  shard_.for_each([&](QueuePair& qp) {
    if (qp.route().port == kFirst + peer.slot()) shard_.touched(qp);
  });
}

// ---- receiving

uint32_t LocalPeers::receive(uint32_t budget, TimePoint) {
  // Who listens hears of them.
  if (must_read_sockets_ || (!listening_ && ++rounds_ % kRoundsPerLook == 0)) [[unlikely]]
    read_sockets();
  uint32_t received = 0;
  for (size_t i = 0; i < sources_.size(); ++i) received += read(sources_[i], std::min(budget, kTurn));
  return received;
}

bool LocalPeers::is_quiet() const {
  if (sources_.empty() || sources_.size() > kFew) return false;
  return std::ranges::none_of(sources_,
                              [](const Source& source) { return source.line->reader().has_work(); });
}

// What is read may list the sources again.
uint32_t LocalPeers::read(Source source, uint32_t budget) {
  net::PortCounters& counters = shard_.counters();
  PacketReader& reader = source.line->reader();
  uint32_t refused = 0;
  const PacketReader::Received received = reader.receive(
      budget,
      [&](const IncomingPacket& incoming) {
        if (comes_from_here(reader)) [[likely]]
          return take(*source.peer, incoming);
        ++counters.dropped[static_cast<size_t>(DropReason::kBadSource)];
      },
      [&](const PlainSend& message, const roce::Path& path) {
        return comes_from_here(reader) && take_plain(*source.peer, message, path);
      },
      [&](roce::ParseError error) {
        ++refused;
        ++counters.dropped[static_cast<size_t>(error)];
      });
  // Where there were no packets, the other asks for rings as often as it likes.
  if (received.must_ring) [[unlikely]]
    source.line->ring(received.packets > refused ? CallCosts::Cause::kOurs : CallCosts::Cause::kTheirs);
  if (received.packets > 0) source.line->tell_taken();
  const uint32_t packets = received.packets - std::exchange(copies_, 0);
  if (packets > 0) counters.received_packets += packets;
  if (reader.lane().is_broken()) [[unlikely]] {
    source.line->lose();
    must_read_sockets_ = true;
  }
  return received.packets;
}

// Returns whether the packets that are read now name addresses of this host as their source and destination.
// The process that wrote them may belong to any user, and must not speak for another host.
bool LocalPeers::comes_from_here(PacketReader& reader) const {
  return reader.is_path_allowed(addresses_changed_, [this](const roce::Path& path) {
    const auto is_ours = [this](const roce::Address& address) {
      return std::ranges::find(addresses_, address) != addresses_.end() ||
             std::ranges::find(unreachable_, address) != unreachable_.end();
    };
    return is_ours(path.source) && (is_ours(path.destination) || path.destination.is_multicast());
  });
}

// Returns whether a QP may get a packet from this peer. The slot of a channel's writer is known, unlike the
// sender of a datagram on the wire. A connected QP takes packets only from its destination's process, and a
// UD QP only datagrams that name a QP of the writer as their source. In XRC, the owner of a shared receive
// queue answers for another process's target, so only the addresses are checked.
bool LocalPeers::may_take(const QueuePair& qp, const LocalPeer& peer, const roce::Headers& headers) {
  const auto is_of_service = [&](ibv_qp_type type, roce::Service service) {
    return qp.config().type == type || headers.service() == service;
  };
  if (is_of_service(IBV_QPT_RC, roce::Service::kRc) || is_of_service(IBV_QPT_UC, roce::Service::kUc))
    return qp.attributes().destination.slot() == peer.slot();
  if (is_of_service(IBV_QPT_UD, roce::Service::kUd))
    return headers.service() == roce::Service::kUd && headers.source.slot() == peer.slot();
  return true;
}

void LocalPeers::take(const LocalPeer& peer, const IncomingPacket& incoming) {
  net::PortCounters& counters = shard_.counters();
  const auto drop = [&](DropReason reason) { ++counters.dropped[static_cast<size_t>(reason)]; };
  const roce::Qpn destination = incoming.packet.headers.destination;
  if (destination == roce::kMulticastQpn) return take_copy(peer, incoming);
  counters.received_bytes += incoming.payload_bytes();
  if (destination.slot() != shard_.slot()) return drop(DropReason::kForeignSlot);
  QueuePair* const qp = shard_.find(destination);
  if (qp == nullptr) return drop(DropReason::kNoQueuePair);
  if (incoming.path.destination.is_multicast() || !may_take(*qp, peer, incoming.packet.headers))
    return drop(DropReason::kBadSource);
  const roce::Service service = incoming.packet.headers.service();
  if (service == roce::Service::kRc || service == roce::Service::kUc) qp->note_local_peer();
  shard_.deliver(*qp, incoming);
}

// The same for what needs no longer look. False: it does.
bool LocalPeers::take_plain(const LocalPeer& peer, const PlainSend& message, const roce::Path& path) {
  QueuePair* const qp = shard_.find(message.headers.destination);
  if (qp == nullptr || qp->attributes().destination.slot() != peer.slot()) [[unlikely]]
    return false;
  qp->note_local_peer();
  if (!shard_.deliver_plainly(*qp, message, path)) [[unlikely]]
    return false;
  shard_.counters().received_bytes += message.payload.size();
  return true;
}

// ---- mapped memory

void LocalPeers::watch_mappings() {
  if (!std::exchange(unmapping_.is_set, true)) shard_.set_alarm(unmapping_, kUnmapsAfter);
}

void LocalPeers::unmap_unused() {
  unmapping_.is_set = false;
  bool some_left = false;
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    peer->for_each_memory([&](PeerMemory& memory) {
      memory.drop_unused_mappings();
      some_left |= memory.has_mappings();
    });
  }
  if (some_left) watch_mappings();
}

// ---- pauses

void LocalPeers::resume_in(Duration time) {
  if (!std::exchange(pausing_.is_set, true)) shard_.set_alarm(pausing_, std::max(time, kShortestPause));
}

void LocalPeers::resume() {
  pausing_.is_set = false;
  TimePoint next = kNever;
  for (const auto& peer : peers_) {
    if (abandoned_ || peer == nullptr) continue;
    next = std::min(next, peer->resume(poll_set_.get()));
  }
  if (next != kNever) resume_in(next - call_clock_->now());
}

// ---- sending

void LocalPeers::wait(QueuePair& qp) {
  peers_[qp.route().port - kFirst]->waiting.push_back(qp);
}

void LocalPeers::push() {
  while (!staged_.empty()) {
    LocalPeer& peer = staged_.pop_front();
    if (!peer.push()) note_full(peer);
  }
}

void LocalPeers::note_full(uint32_t port) {
  LocalPeer& peer = *peers_[port - kFirst];
  note_full(peer);
  if (PacketWriter* const writer = peer.writer(); writer != nullptr && !writer->lane().is_wide()) {
    wide_rings_.was_full(writer->lane(), writer->ring_use(), MonotonicClock::now(), [this](auto visit) {
      for (const auto& other : peers_) {
        if (other != nullptr) other->for_each_lane(visit);
      }
    });
  }
}

bool LocalPeers::flush(ReadyList& ready) {
  push();
  FullList still;
  while (!full_.empty()) {
    LocalPeer& peer = full_.pop_front();
    if (!peer.push() || !peer.has_room()) {
      still.push_back(peer);
    } else {
      ready.splice_back(peer.waiting);
    }
  }
  full_.splice_back(still);
  return !full_.empty();
}

// ---- sleeping

bool LocalPeers::listen(bool on) {
  listening_ = on;
  bool is_something_there = on && must_read_sockets_;
  for (const Source& source : sources_) {
    if (on) {
      if (source.line->reader().give_back()) source.line->ring();
      source.line->expect_ring();
      is_something_there |= !source.line->reader().lane().sleep();
    } else {
      source.line->reader().lane().wake();
    }
  }
  if (on) {
    for (LocalPeer& peer : full_) is_something_there |= !peer.wait_for_room();
  }
  return is_something_there;
}

// The lines are the parent's. The child does not even have the memory of other users' halves (MADV_DONTFORK).
void LocalPeers::abandon() {
  abandoned_ = true;
  sources_.clear();
  for (const auto& peer : peers_) {
    if (peer != nullptr) peer->abandon();
  }
  poll_set_.reset();
  if (bell_) bell_->abandon();
}

}  // namespace verbena::engine
