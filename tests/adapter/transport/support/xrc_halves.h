// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "adapter/transport/rc.h"

namespace verbena::transport {

// The two kinds of XRC QP, with the same constructor as other QPs.
struct XrcInitiator : RcQueuePair {
  XrcInitiator(const QpConfig& config, queues::SendQueue send, queues::RecvQueue recv)
      : RcQueuePair(config, std::move(send), std::move(recv), Role::kXrcInitiator) {}
};
struct XrcTarget : RcQueuePair {
  XrcTarget(const QpConfig& config, queues::SendQueue send, queues::RecvQueue recv)
      : RcQueuePair(config, std::move(send), std::move(recv), Role::kXrcTarget) {}
};

}  // namespace verbena::transport
