// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adapter/transport/packet_io.h"
#include "base/time.h"
#include "wire/roce/path.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

class QueuePair;
struct Route;

// Sends CNPs (congestion notification packets, IBTA volume 1, annex A17.9.3): tells the peer that a switch
// has marked its packets. The first marked packet causes a CNP; then there is none for kInterval. Adapters do
// the same, and the peer could not obey more of them.
//
// For the shard's lock holder.
class CongestionNotices {
 public:
  static constexpr Duration kInterval = std::chrono::microseconds(50);

  static bool is_marked(const roce::Path& path) {
    return (path.traffic_class & roce::kEcnMask) == roce::kEcnMarked;
  }

  // Makes the path ECN-capable, unless the program has set its ECN bits.
  static void allow_marks(roce::Path& path) {
    if ((path.traffic_class & roce::kEcnMask) == 0) path.traffic_class |= roce::kEcnCapable;
  }

  void on_marked(TimePoint now) {
    if (now < quiet_until_) return;
    is_due_ = true;
    quiet_until_ = now + kInterval;
  }
  bool is_due() const { return is_due_; }
  // Sends a CNP to the peer of a connected queue pair. kBusy: it stays due.
  SendStatus send(QueuePair& qp);
  SendStatus send(QueuePair& qp, const Route& route, const roce::Path& path, roce::Qpn destination);

 private:
  bool is_due_ = false;
  TimePoint quiet_until_{};
};

}  // namespace verbena::transport
