// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "adapter/congestion/bbr.h"
#include "adapter/net/sim/link_model.h"
#include "base/time.h"

namespace verbena::transport {

// A TCP sender with endless data and BBR version 1 as in Linux
// (draft-cardwell-iccrg-bbr-congestion-control-00, and tcp_bbr.c's handling of ACK aggregation), over a link
// that others use, too. It shows how queue pairs and TCP share a link. No data is transferred: its packets
// only take room and time of the link.
class TcpFlow {
 public:
  // Acknowledgements take `way_back`, and arrive together with others of the same interval `lump`.
  TcpFlow(net::LinkModel& link, Duration way_back, Duration lump)
      : link_(link), way_back_(way_back), lump_(lump) {}

  // Processes all events up to `now`.
  void run(TimePoint now);
  // The time for the next call of run().
  TimePoint deadline() const;

  // The payload bytes that have arrived.
  uint64_t delivered_bytes() const { return delivered_ * kPayload; }

 private:
  static constexpr uint64_t kPayload = 1448;
  static constexpr uint64_t kFrame = 1514;

  struct Packet {
    TimePoint sent;
    TimePoint answered;  // arrival of the acknowledgement; kNever: the packet was dropped
    // At the time of sending: the number of packets delivered, and when the last one was acknowledged and
    // sent.
    uint64_t delivered;
    TimePoint delivered_at;
    TimePoint delivered_sent;
  };
  enum class Phase : uint8_t { kStartup, kDrain, kCruise, kProbeRoundTrip };

  void take_answers(TimePoint now);
  void on_answer(const Packet& packet, TimePoint now);
  void update_aggregation(TimePoint now, uint64_t acked);
  void update_phase(TimePoint now);
  void update_round_trip(TimePoint now, Duration round_trip);
  void update_window(uint64_t acked);
  void send(TimePoint now);
  double gain() const;
  double bandwidth() const { return static_cast<double>(bandwidth_.get()) / 1000; }  // packets per second
  // The bandwidth-delay product in packets, times a gain.
  double held(double gain) const;
  uint64_t quantum() const;  // packets per super-packet

  net::LinkModel& link_;
  const Duration way_back_;
  const Duration lump_;
  std::deque<Packet> in_flight_;
  TimePoint latest_answer_{};

  congestion::WindowedMax bandwidth_;  // in thousandths of packets per second
  Duration least_round_trip_{0};
  TimePoint least_since_{};
  uint64_t delivered_ = 0;
  TimePoint delivered_at_{};
  TimePoint delivered_sent_{};
  uint64_t round_ = 0;
  uint64_t round_ends_ = 0;
  bool round_began_ = false;
  bool lost_now_ = false;

  Phase phase_ = Phase::kStartup;
  double full_ = 0;
  int full_rounds_ = 0;
  bool is_full_ = false;
  uint32_t turn_ = 2;
  TimePoint turn_began_{};
  TimePoint probe_ends_ = kNever;

  uint64_t window_ = 10;
  uint64_t window_before_ = 0;  // before a recovery or a probe
  bool recovers_ = false;
  bool conserves_ = false;
  uint64_t recovery_round_ = 0;
  uint64_t recovery_ends_ = 0;

  TimePoint aggregation_began_{};
  uint64_t aggregated_ = 0;
  std::array<uint64_t, 2> extra_{};
  uint64_t extra_round_ = 0;

  TimePoint may_send_{};
};

}  // namespace verbena::transport
