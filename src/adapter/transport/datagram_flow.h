// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "adapter/transport/congestion_notices.h"
#include "adapter/transport/incast.h"
#include "adapter/transport/receiver_driven_flow.h"
#include "adapter/transport/receiver_report.h"
#include "adapter/transport/route.h"
#include "base/time.h"
#include "wire/roce/path.h"
#include "wire/roce/psn.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

// Set-associative cache of a datagram queue pair's state for each remote QP, by address and QPN. A remote QP
// can be in kWays of the kPlaces entries. A new one replaces the least recently used of these, so the size is
// fixed, however many remote QPs there are.
//
// For the shard's lock holder. Pointers from find() and get() are valid until the next get().
template <class Value>
class RecentPeers {
 public:
  static constexpr uint32_t kPlaces = 64;

  // Returns the value of the remote QP and counts as a use of it. Returns nullptr if the QP is not in the
  // cache.
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

// A remote QP that sends datagrams to ours, and either asked for receiver reports or had its packets marked
// by a switch.
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
// For the shard's lock holder.
class DatagramSources {
 public:
  // Returns nullptr if the sender is not remembered.
  DatagramSource* find(const roce::Path& incoming, roce::Qpn sender) {
    return sources_.find(incoming.source, sender);
  }
  // Counts the missing datagrams and makes a report due, unless the request is older than the latest one. The
  // report goes back along the path of `incoming`.
  void on_request(const ReportRequest& request, const roce::Path& incoming);
  // A packet of `sender` came with an ECN mark. Makes a CNP due (CongestionNotices).
  void on_marked(const roce::Path& incoming, roce::Qpn sender, TimePoint now);
  // Makes a report to the source due.
  void owe(DatagramSource& source);

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
// receiver reports (receiver_report.h). While the destination reports, the sender sends no more than the path
// carries. To a destination that never reports (adapters, Linux rxe), or that has stopped, it sends
// everything at once. The sender waits for the first report, for kPatience and at most kMaxWaits times.
// Without the wait, request and report would get lost in the sender's own burst.
//
// For the shard's lock holder.
class DatagramFlow {
 public:
  // A destination that has not reported yet gets the first request after kUntoldBytes bytes within
  // kUntoldTime. Each later request follows after four times as many bytes as the one before it, in any time.
  // The number of bytes grows kMaxSeldom times at most.
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
  // Ends the packet train: later datagrams count as sent at another time. `is_all` tells that the sender has
  // no more datagrams for this destination.
  void end_run(bool is_all) {
    if (told_) told_->end_run(is_all);
  }
  // Whether a report request with the count next() is due. Call on_requested() once it was sent.
  bool owes_request() const { return owes_request_; }
  roce::Psn next() const { return next_; }
  void on_requested() { owes_request_ = false; }

  // ---- receiving reports

  // Processes a receiver report. `settings` configure the flow at the first report. Returns false if the
  // report's count is not one of a recent request: then it does not come from a receiver of our datagrams.
  bool on_report(const ReceiverReport& report, const ReceiverDrivenFlow::Settings& settings, TimePoint now);
  // A CNP from the destination's address has come.
  void on_mark(TimePoint now) {
    if (told_) told_->on_mark(now);
  }

  // ---- statistics

  // State of the path, as congestion control sees it; nullptr if the destination sends no reports.
  const congestion::Flow* path() const { return told_ ? told_->path() : nullptr; }
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
