// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adapter/transport/packet_io.h"
#include "base/time.h"
#include "wire/roce/path.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

class QueuePair;
struct Route;

// Sends CNPs (congestion notification packets, IBTA volume 1, annex A17.9.3) to a peer whose packets a switch
// has marked. A marked packet causes a CNP, unless an earlier packet caused one less than kInterval ago.
// Adapters limit CNPs in the same way; the peer could not react to more of them.
//
// Threads: the caller holds the shard's lock.
class CongestionNotices {
 public:
  static constexpr Duration kInterval = std::chrono::microseconds(50);

  // Whether a switch has marked the packet with this path (ECN: congestion experienced).
  static bool is_marked(const roce::Path& path) {
    return (path.traffic_class & roce::kEcnMask) == roce::kEcnMarked;
  }

  // Makes the path ECN-capable, unless the program has set its ECN bits.
  static void allow_marks(roce::Path& path) {
    if ((path.traffic_class & roce::kEcnMask) == 0) path.traffic_class |= roce::kEcnCapable;
  }

  // Call when a marked packet has come. Makes a CNP due, unless the last CNP became due less than kInterval
  // ago.
  void on_marked(TimePoint now) {
    if (now < quiet_until_) return;
    is_due_ = true;
    quiet_until_ = now + kInterval;
  }
  bool is_due() const { return is_due_; }
  // Sends a CNP to the peer of a connected queue pair. Then no CNP is due any more, except if the result is
  // kBusy.
  SendStatus send(QueuePair& qp);
  // Like send(qp), but sends the CNP to QP `destination` at the other end of `path`, by `route`. For datagram
  // queue pairs, which have no connected peer.
  SendStatus send(QueuePair& qp, const Route& route, const roce::Path& path, roce::Qpn destination);

 private:
  bool is_due_ = false;
  TimePoint quiet_until_{};
};

}  // namespace verbena::transport
