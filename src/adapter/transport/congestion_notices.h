// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adapter/transport/packet_io.h"
#include "base/time.h"
#include "wire/roce/path.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

class QueuePair;
struct Route;

// Tells the peer that its packets have come through a switch that is filling up, by a congestion notification
// packet (IBTA volume 1, annex A17.9.3). One for the first that was marked, and then no other for a while: so
// do adapters, and the peer could not obey more of them.
//
// For the shard's lock holder.
class CongestionNotices {
 public:
  static constexpr Duration kInterval = std::chrono::microseconds(50);

  static bool is_marked(const roce::Path& path) {
    return (path.traffic_class & roce::kEcnMask) == roce::kEcnMarked;
  }

  // Packets of the path may be marked, unless the program has said otherwise.
  static void allow_marks(roce::Path& path) {
    if ((path.traffic_class & roce::kEcnMask) == 0) path.traffic_class |= roce::kEcnCapable;
  }

  void on_marked(TimePoint now) {
    if (now < quiet_until_) return;
    is_due_ = true;
    quiet_until_ = now + kInterval;
  }
  bool is_due() const { return is_due_; }
  // To the peer of a connected queue pair. kBusy: it is due still.
  SendStatus send(QueuePair& qp);
  SendStatus send(QueuePair& qp, const Route& route, const roce::Path& path, roce::Qpn destination);

 private:
  bool is_due_ = false;
  TimePoint quiet_until_{};
};

}  // namespace verbena::transport
