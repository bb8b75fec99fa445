// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "adapter/engine/input.h"
#include "adapter/engine/shard.h"
#include "adapter/engine/support/queue_port.h"
#include "base/unique_fd.h"

namespace verbena::engine {

// An additional input of a shard: a queue in memory, whose packets are all for one QP.
class QueueInput : public Input {
 public:
  QueueInput(Shard& shard, transport::QueuePair& qp) : shard_(shard), qp_(qp) {}

  int fd() const override { return abandoned ? -1 : set ? set.get() : arriving.readable_fd(); }
  bool has_set() const override { return static_cast<bool>(set); }

  uint32_t receive(uint32_t budget, TimePoint) override {
    ++times_asked;
    uint32_t received = 0;
    for (std::vector<std::byte> bytes; received < budget && arriving.pop(bytes); ++received) {
      const auto packet = roce::parse(bytes);
      shard_.deliver(qp_, {*packet, path_, static_cast<uint32_t>(bytes.size())});
    }
    return received;
  }

  void abandon() override { abandoned = true; }

  // Any thread may call it.
  void packet_arrives() {
    roce::Headers headers;
    headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnly);
    headers.destination = roce::kMulticastQpn;
    arriving.push(datagram(headers));
  }

  PacketQueue arriving;
  UniqueFd set;  // an epoll set with the queue's descriptor; may be empty
  uint32_t times_asked = 0;
  bool abandoned = false;

 private:
  Shard& shard_;
  transport::QueuePair& qp_;
  roce::Path path_;
};

}  // namespace verbena::engine
