// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "adapter/congestion/flow.h"
#include "adapter/transport/congestion_notices.h"
#include "adapter/transport/control_packets.h"
#include "adapter/transport/incast.h"
#include "adapter/transport/route.h"
#include "base/time.h"
#include "wire/roce/path.h"
#include "wire/roce/psn.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

// Token-bucket pacer for UC and UD, whose senders get no ACKs. A receiver takes longer per packet than a
// sender. Without a limit, a large message would overrun the receiver's buffer, and lose everything beyond
// its first hundreds of kilobytes. So a burst leaves at once, and the rest at a rate that the receiver can
// follow. Burst and rate are those of the route (Traits); a lossless route is unlimited.
class Pacer {
 public:
  // Starts with the burst and the rate of a route. A full burst may leave at once.
  void reset(const Traits& traits) {
    debt_ = 0;
    unbounded_ = traits.lossless;
    burst_bytes_ = std::max(traits.blind_burst_bytes, 1u);
    bytes_per_microsecond_ = std::max(traits.blind_bytes_per_microsecond, 1u);
  }

  // Lowers the rate to `bytes_per_second`, if that is less. REQUIRES: reset() was called
  void slow_down(uint64_t bytes_per_second) {
    bytes_per_microsecond_ = std::clamp<uint64_t>(bytes_per_second / 1'000'000, 1, bytes_per_microsecond_);
  }

  // Whether a packet may leave now: the burst is not used up.
  bool allows(TimePoint now) {
    if (unbounded_) return true;
    settle(now);
    return debt_ < burst_bytes_;
  }
  // Returns when the next packet may leave, after allows() was false. It may leave once half the burst is
  // free again, rather than at once: packets are cheaper in batches.
  TimePoint next() const {
    return settled_at_ + std::chrono::microseconds((debt_ - burst_bytes_ / 2) / bytes_per_microsecond_ + 1);
  }
  void sent(uint32_t bytes) {
    if (!unbounded_) debt_ += bytes;
  }

 private:
  void settle(TimePoint now) {
    const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(now - settled_at_).count();
    if (passed <= 0) return;
    debt_ -= std::min<uint64_t>(debt_, static_cast<uint64_t>(passed) * bytes_per_microsecond_);
    settled_at_ += std::chrono::microseconds(passed);
  }

  bool unbounded_ = false;
  uint64_t burst_bytes_ = 1;
  uint64_t bytes_per_microsecond_ = 1;
  uint64_t debt_ = 0;  // bytes sent that the rate has not yet covered
  TimePoint settled_at_{};
};

// Receiver-driven flow control of the packets from a UC or UD sender to one receiver. Receiver reports set
// how many bytes may be in flight: as many as the path holds. Nothing is sent again, and nothing waits for
// long: packets that no report covers in time no longer count as in flight. If the peer never reports
// (adapters, Linux rxe), the sender waits for a report once, then sends at a fixed rate (Pacer). It also
// sends at a fixed rate once the peer has stopped reporting (kMaxSilences). A lossless route is unlimited.
//
// Threads: the caller holds the shard's lock.
class ReceiverDrivenFlow {
 public:
  // Max wait for the first report once the first window is full: the peer may never report.
  static constexpr Duration kPatience = std::chrono::milliseconds(50);
  // After this many timeouts in a row, each twice as long as the one before, the peer counts as gone.
  static constexpr uint32_t kMaxSilences = 4;
  // Min window, in packets: with fewer, each lost packet or report would cause a timeout. With more than
  // kManySenders senders to the same receiver, the minimum is kLeastOfMany.
  static constexpr uint32_t kLeastWindow = 4;
  static constexpr uint32_t kLeastOfMany = 2;
  static constexpr uint32_t kManySenders = 8;
  // Max packets in flight, however much the path holds: more PSNs would not be distinguishable in reports.
  static constexpr int32_t kMaxInFlight = 1 << 14;
  // Reports whose PSN is this far behind, or further, are ignored as forged: a receiver of our packets knows
  // newer PSNs.
  static constexpr int32_t kFurthest = 2 * kMaxInFlight;
  // Max number of reports that the sender confirms, so that at least one confirmation arrives. After a
  // timeout, the sender confirms as many again.
  static constexpr uint32_t kMaxThanks = 8;

  struct Settings {
    congestion::Kind kind;
    bool listens;  // false: only the fixed rate is wanted
    uint32_t mtu;
    Duration least_timeout;  // min time to wait for a report: threads share processors
  };
  // Starts the flow on a route with these traits. The first packet has PSN `first`.
  void begin(const Traits& traits, const Settings& settings, roce::Psn first);
  void end() { *this = ReceiverDrivenFlow(); }
  // Call after begin() if the peer's count of missing packets may include packets of earlier flows. The count
  // in its first report is then only a starting point.
  void joins() { counts_ = false; }

  // ---- sending

  // Whether the window is full: nothing may leave until on_report() or on_timer() changes that.
  bool is_full() const { return is_paced() && !fits(); }
  // Whether the pacing allows a packet to leave now. REQUIRES: !is_full()
  bool may_send(TimePoint now) {
    if (is_paced()) return flow_->may_send(now);
    return pacer_.allows(now);
  }
  // When a packet may leave, after may_send() was false.
  TimePoint may_send_at() const { return is_paced() ? flow_->may_send_at() : pacer_.next(); }
  // Whether the next packet must request a report.
  bool must_ask() const;
  // The next packet has left. REQUIRES: `asked` is the result of must_ask()
  void sent(uint32_t bytes, bool asked, TimePoint now);
  // Ends the packet train: later packets belong to a new train. If `is_all`, nothing is left to send, and the
  // next samples of the path count as limited by the application.
  void end_run(bool is_all);

  // ---- receiving reports

  // Processes a receiver report. Returns false if the report is ignored. This is so if its PSN is not recent,
  // because a receiver of our packets would know a recent one. It is also so if reports are not used: on a
  // lossless route, if Settings::listens is false, or if memory ran out in begin().
  bool on_report(const ReceiverReport& report, TimePoint now);
  // Call when a CNP of the peer has come. Reduces the rate or the window.
  void on_mark(TimePoint now);
  void on_timer(TimePoint now);
  // When to call on_timer(); kNever: not at all.
  TimePoint deadline() const { return silent_at_; }
  // Whether the peer has sent reports before, but none for kMaxSilences timeouts in a row.
  bool has_given_up() const { return is_told_ && is_blind_; }

  // Whether to send the peer a confirmation that this side understands its reports.
  bool owes_thanks() const { return thanks_due_; }
  void on_thanks_sent() {
    thanks_due_ = false;
    ++thanks_;
  }

  // ---- statistics

  // State of the path, as congestion control sees it; nullptr if the peer has sent no report.
  const congestion::Flow* path() const { return is_told_ ? flow_.get() : nullptr; }
  // Bytes in flight: sent, but not yet covered by a report. Each packet counts as a full one.
  uint64_t in_flight() const { return static_cast<uint64_t>(next_ - told_) * packet_; }

 private:
  uint64_t window() const;
  bool fits() const { return in_flight() + packet_ <= window() && next_ - told_ < kMaxInFlight; }
  // Whether the model of the path decides, not the fixed rate.
  bool is_paced() const { return flow_ && !is_blind_; }
  void note(const ReceiverReport& report, TimePoint now);
  void await_word(TimePoint now);
  void give_up_flight();

  std::unique_ptr<congestion::Flow> flow_;
  Traits traits_;
  Pacer pacer_;
  // Each packet counts as a full one: a short one takes as long to handle.
  uint32_t packet_ = 1;
  uint32_t run_ = 1;
  Duration least_timeout_{0};
  roce::Psn next_;
  roce::Psn told_;        // all packets before it have arrived, or are missing
  uint32_t missing_ = 0;  // as reported last
  bool counts_ = true;    // missing_ covers all packets before told_
  uint64_t since_asked_ = 0;
  bool is_told_ = false;   // the peer has sent a report
  bool is_blind_ = false;  // the peer sends no reports now, or never did
  bool thanks_due_ = false;
  uint32_t thanks_ = 0;
  uint32_t silences_ = 0;
  uint32_t senders_ = 1;
  TimePoint silent_at_ = kNever;
};

// Set-associative cache of a datagram queue pair's state for each remote QP, by address and QPN. A remote QP
// can be in kWays of the kPlaces entries. A new remote QP replaces the least recently used of these kWays, so
// the size is fixed, however many remote QPs there are.
//
// Threads: the caller holds the shard's lock. Pointers from find() and get() are valid until the next get().
template <class Value>
class RecentPeers {
 public:
  static constexpr uint32_t kPlaces = 64;

  // Returns the value of the remote QP, which is then the most recently used. Returns nullptr if the QP is
  // not in the cache.
  Value* find(const roce::Address& address, roce::Qpn qpn) {
    if (Entry* entry = look(address, qpn)) {
      entry->used = ++clock_;
      return &entry->value;
    }
    return nullptr;
  }

  // Returns the value of the remote QP, and whether this call has added it. If the QP is not in the cache,
  // adds a Value() for it in place of another QP's.
  std::pair<Value*, bool> get(const roce::Address& address, roce::Qpn qpn) {
    if (Value* value = find(address, qpn)) return {value, false};
    const std::span<Entry, kWays> places = places_of(address, qpn);
    Entry& entry = *std::ranges::min_element(places, {}, &Entry::used);
    entry = {address, qpn, ++clock_, Value()};
    return {&entry.value, true};
  }

  // Returns the index of a value in the cache, below kPlaces. at() returns the value with that index.
  uint32_t place_of(const Value& value) const {
    const auto offset =
        reinterpret_cast<const char*>(&value) - reinterpret_cast<const char*>(entries_.data());
    return static_cast<uint32_t>(static_cast<size_t>(offset) / sizeof(Entry));
  }
  Value& at(uint32_t place) { return entries_[place].value; }

  // Calls `function(value)` for each cached QP with this address.
  template <class Function>
  void for_each_at(const roce::Address& address, Function function) {
    for (Entry& entry : entries_) {
      if (entry.used != 0 && entry.address == address) function(entry.value);
    }
  }

 private:
  static constexpr uint32_t kWays = 4;

  struct Entry {
    roce::Address address;
    roce::Qpn qpn;
    uint64_t used = 0;  // last use, by clock_; 0: never
    Value value;
  };

  std::span<Entry, kWays> places_of(const roce::Address& address, roce::Qpn qpn) {
    uint32_t mixed = qpn.value() * 0x9e3779b1u;
    for (const uint8_t byte : address.bytes) mixed = (mixed ^ byte) * 0x01000193u;
    const uint32_t first = (mixed >> 16) % (kPlaces / kWays) * kWays;
    return std::span<Entry, kWays>(&entries_[first], kWays);
  }

  Entry* look(const roce::Address& address, roce::Qpn qpn) {
    for (Entry& entry : places_of(address, qpn)) {
      if (entry.used != 0 && entry.qpn == qpn && entry.address == address) return &entry;
    }
    return nullptr;
  }

  uint64_t clock_ = 0;
  std::array<Entry, kPlaces> entries_;
};

// A remote QP that sends datagrams to ours. It has requested receiver reports, or switches have marked its
// packets.
struct DatagramSource {
  roce::Path back;  // path from our QP to it
  roce::Qpn qpn;
  roce::Psn asked_with;  // datagram count in its latest report request
  uint32_t come = 0;     // datagrams received since that request
  uint32_t missing = 0;  // datagrams missing from the first to the latest request; modulo 2^32
  bool has_asked = false;
  bool owes_receipt = false;  // a receiver report is due
  CongestionNotices notices;
  IncastShare incast;

  bool is_due() const { return owes_receipt || notices.is_due(); }
};

// Remembers the remote QPs that recently requested reports of a datagram queue pair, or whose packets came
// with ECN marks. Tracks which of these QPs are owed a report or a CNP.
//
// Threads: the caller holds the shard's lock.
class DatagramSources {
 public:
  // Returns nullptr if the sender is not remembered.
  DatagramSource* find(const roce::Path& incoming, roce::Qpn sender) {
    return sources_.find(incoming.source, sender);
  }
  // Handles a report request: counts the missing datagrams and makes a report due. Ignores a request that is
  // older than the latest one. The report goes back along the path `incoming`.
  void on_request(const ReportRequest& request, const roce::Path& incoming);
  // Call when a packet of `sender` came with an ECN mark. Makes a CNP due (CongestionNotices).
  void on_marked(const roce::Path& incoming, roce::Qpn sender, TimePoint now);
  // Makes a report to the source due.
  void owe(DatagramSource& source) {
    source.owes_receipt = true;
    due_ |= bit_of(source);
  }

  bool is_due() const { return due_ != 0; }
  // Returns a source to which a report or a CNP is due. REQUIRES: is_due()
  DatagramSource& first_due() { return sources_.at(static_cast<uint32_t>(__builtin_ctzll(due_))); }
  // Notes that nothing is due to the source any more: its report and CNP were sent, or another QP takes its
  // entry.
  void settle(const DatagramSource& source) { due_ &= ~bit_of(source); }

 private:
  static_assert(RecentPeers<DatagramSource>::kPlaces == 64, "due_ has a bit for each");

  DatagramSource& get(const roce::Path& incoming, roce::Qpn sender);
  uint64_t bit_of(const DatagramSource& source) const { return uint64_t{1} << sources_.place_of(source); }

  RecentPeers<DatagramSource> sources_;
  uint64_t due_ = 0;  // a bit per place
};

// Flow control of a datagram queue pair towards one destination QP. A sender of many datagrams requests
// receiver reports (control_packets.h). After a request, the sender waits kPatience for the first report, at
// most kMaxWaits times. Without this wait, the request and the report would get lost in the sender's own
// burst. While the destination reports, the sender sends no more than the path carries. If the destination
// never reports (adapters, Linux rxe), or has stopped, the sender sends everything at once after these waits.
//
// Threads: the caller holds the shard's lock.
class DatagramFlow {
 public:
  // A destination that has not reported yet gets the first report request after kUntoldBytes bytes within
  // kUntoldTime. Each later request follows after four times as many bytes as the one before it, however long
  // that takes. After kMaxSeldom such increases, the number of bytes stays the same.
  static constexpr uint64_t kUntoldBytes = 16 * 1024;
  static constexpr Duration kUntoldTime = std::chrono::milliseconds(10);
  static constexpr uint32_t kMaxSeldom = 4;
  // The sender waits this long, and this many times at most, for the first report.
  static constexpr Duration kPatience = std::chrono::milliseconds(50);
  static constexpr uint32_t kMaxWaits = 2;

  // Starts the flow; call once. Datagrams to this destination are counted from `first`, a number that a
  // forger of reports does not know. `traits` are those of the route.
  void begin(roce::Psn first, const Traits& traits) {
    next_ = begins_at_ = first;
    traits_ = traits;
  }

  // ---- sending

  // Returns when the next datagram may leave: `now`, or a later time. If later, call again at that time, or
  // after on_report(). May make a report request due.
  TimePoint may_send_at(TimePoint now);
  // Notes that the next datagram, with `bytes` bytes of payload, has left.
  void sent(uint32_t bytes, TimePoint now);
  // Ends the packet train: later datagrams belong to a new train. `is_all`: the sender has no more datagrams
  // for this destination.
  void end_run(bool is_all) {
    if (told_) told_->end_run(is_all);
  }
  // Whether a report request with the count next() is due. Call on_requested() once it was sent.
  bool owes_request() const { return owes_request_; }
  roce::Psn next() const { return next_; }
  void on_requested() { owes_request_ = false; }

  // ---- receiving reports

  // Processes a receiver report. `settings` are used only at the first report, to configure the flow. Returns
  // false if the report's count is not one of a recent request: then it does not come from a receiver of our
  // datagrams.
  bool on_report(const ReceiverReport& report, const ReceiverDrivenFlow::Settings& settings, TimePoint now);
  // Call when a CNP from the destination's address has come. Reduces the rate or the window.
  void on_mark(TimePoint now) {
    if (told_) told_->on_mark(now);
  }

  // ---- statistics

  // State of the path, as congestion control sees it; nullptr if the destination sends no reports.
  const congestion::Flow* path() const { return told_ ? told_->path() : nullptr; }
  // Bytes in flight; 0 if the destination sends no reports.
  uint64_t in_flight() const { return told_ ? told_->in_flight() : 0; }

 private:
  void forget();
  void sent_untold(uint32_t bytes, TimePoint now);

  Traits traits_;
  roce::Psn next_;
  roce::Psn begins_at_;  // reports about datagrams before this one are about a flow that was given up
  bool owes_request_ = false;
  // Used while the destination has sent no report:
  uint64_t untold_ = 0;  // bytes since the last request
  TimePoint untold_since_{};
  uint32_t seldom_ = 0;  // number of times that the bytes between requests have grown fourfold
  uint32_t waits_ = 0;
  TimePoint waits_until_{};
  std::optional<ReceiverDrivenFlow> told_;  // set once the destination sends reports
};

}  // namespace verbena::transport
