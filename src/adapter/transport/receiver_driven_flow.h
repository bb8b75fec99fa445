// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "adapter/congestion/flow.h"
#include "adapter/transport/pacer.h"
#include "adapter/transport/receiver_report.h"
#include "adapter/transport/route.h"
#include "base/time.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

// How fast one sender of an unreliable service may be, by the receipts of its receiver: as much is in flight
// as the path holds. Nothing is ever sent again, and nothing waits for long: what is not told of for a time
// counts as gone. Where nobody tells anything (adapters, Linux rxe; a peer that has ended) a fixed rate is
// all there is (pacer.h), after one wait. Nothing bounds a route that loses nothing.
//
// For the shard's lock holder.
class ReceiverDrivenFlow {
 public:
  // For how long the first window waits for a word of a peer that may be one that says none.
  static constexpr Duration kPatience = std::chrono::milliseconds(50);
  // So many silences behind each other, each twice as long as the one before: the peer is gone.
  static constexpr uint32_t kMaxSilences = 4;
  // Packets. With fewer each that is lost, or the receipt for it, would be a silence. Many senders have less.
  static constexpr uint32_t kLeastWindow = 4;
  static constexpr uint32_t kLeastOfMany = 2;
  static constexpr uint32_t kManySenders = 8;
  // Packets, however much the path holds: so many PSNs have a meaning at a time.
  static constexpr int32_t kMaxInFlight = 1 << 14;
  // What was sent longer ago nobody tells of any more: who does does not know what is sent.
  static constexpr int32_t kFurthest = 2 * kMaxInFlight;
  // For so many receipts: one of them will arrive. After a silence there are as many again.
  static constexpr uint32_t kMaxThanks = 8;

  struct Settings {
    congestion::Kind kind;
    bool listens;  // false: a fixed rate is all that is wanted
    uint32_t mtu;
    Duration least_timeout;  // threads share processors, so it takes some time to be told
  };
  void begin(const Traits& traits, const Settings& settings, roce::Psn first);
  void end() { *this = ReceiverDrivenFlow(); }
  // The peer has counted before: what it says is missing is not all of what is sent from now on.
  void joins() { counts_ = false; }

  // ---- what leaves

  // As much is in flight as may be: nothing leaves until on_report() or on_timer() says something else.
  bool is_full() const { return is_paced() && !fits(); }
  // Whether a packet may leave now, by its pace. REQUIRES: !is_full()
  bool may_send(TimePoint now);
  // When, after may_send() said no.
  TimePoint may_send_at() const { return is_paced() ? flow_->may_send_at() : pacer_.next(); }
  // Whether the next packet is to ask for a receipt.
  bool must_ask() const;
  // The next packet has left. REQUIRES: `asked` is what must_ask() said
  void sent(uint32_t bytes, bool asked, TimePoint now);
  // What is sent next leaves at another time; `is_all`: there is no more.
  void end_run(bool is_all);

  // ---- what comes

  // False: it is not by one who gets our packets.
  bool on_report(const ReceiverReport& report, TimePoint now);
  void on_mark(TimePoint now);
  void on_timer(TimePoint now);
  TimePoint deadline() const { return silent_at_; }
  // The peer told, and has not for several times as long as that takes.
  bool has_given_up() const { return is_told_ && is_blind_; }

  // The peer is to hear that its receipts are understood.
  bool owes_thanks() const { return thanks_due_; }
  void on_thanks_sent() {
    thanks_due_ = false;
    ++thanks_;
  }

  // ---- for those who show it

  // nullptr: nobody has told of it.
  const congestion::Flow* path() const { return is_told_ ? flow_.get() : nullptr; }
  uint64_t in_flight() const { return static_cast<uint64_t>(next_ - told_) * packet_; }

 private:
  uint64_t window() const;
  bool fits() const { return in_flight() + packet_ <= window() && next_ - told_ < kMaxInFlight; }
  // The model of the path decides, and not the fixed rate.
  bool is_paced() const { return flow_ && !is_blind_; }
  void note(const ReceiverReport& report, TimePoint now);
  void await_word(TimePoint now);
  void give_up_flight();

  std::unique_ptr<congestion::Flow> flow_;
  Traits traits_;
  Pacer pacer_;
  // All packets count as whole ones: what is not full takes as long to handle.
  uint32_t packet_ = 1;
  uint32_t run_ = 1;
  Duration least_timeout_{0};
  roce::Psn next_;
  roce::Psn told_;        // all before has come, or is missing
  uint32_t missing_ = 0;  // as told last
  bool counts_ = true;    // missing_ is of all before told_
  uint64_t since_asked_ = 0;
  bool is_told_ = false;   // the peer tells
  bool is_blind_ = false;  // and does not now, or never
  bool thanks_due_ = false;
  uint32_t thanks_ = 0;
  uint32_t silences_ = 0;
  uint32_t senders_ = 1;
  TimePoint silent_at_ = kNever;
};

}  // namespace verbena::transport
