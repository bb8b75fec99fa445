// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "adapter/congestion/windowed_max.h"
#include "adapter/net/sim/link_model.h"
#include "base/time.h"

namespace verbena::transport {

// A TCP sender with BBR, version 1, as Linux has it (draft-cardwell-iccrg-bbr-congestion-control-00, and what
// tcp_bbr.c adds for answers in lumps), with endless data, over a link that others use as well. It shows what
// a queue pair gets beside such a flow, and leaves it. Nothing is carried: its packets take room and time of
// the link.
class TcpFlow {
 public:
  // Answers take `way_back`, and come together with others of the same `lump` of time.
  TcpFlow(net::LinkModel& link, Duration way_back, Duration lump)
      : link_(link), way_back_(way_back), lump_(lump) {}

  // Does what is to be done by now.
  void run(TimePoint now);
  // When it wants to be called next.
  TimePoint deadline() const;

  // Bytes of payload that have arrived.
  uint64_t delivered_bytes() const { return delivered_ * kPayload; }

 private:
  static constexpr uint64_t kPayload = 1448;
  static constexpr uint64_t kFrame = 1514;

  struct Packet {
    TimePoint sent;
    TimePoint answered;  // kNever: it was dropped
    uint64_t delivered;  // when it was sent: so many had arrived, the latest then, sent then
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
  double bandwidth() const { return static_cast<double>(bandwidth_.get()) / 1000; }  // packets a second
  // Packets that the path holds, times a gain.
  double held(double gain) const;
  uint64_t quantum() const;  // packets that leave together

  net::LinkModel& link_;
  const Duration way_back_;
  const Duration lump_;
  std::deque<Packet> in_flight_;
  TimePoint latest_answer_{};

  congestion::WindowedMax bandwidth_;  // thousandths of packets a second
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
  uint64_t window_before_ = 0;  // a recovery
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
