// SPDX-License-Identifier: Apache-2.0
#include "transport/congestion_notices.h"

#include <array>

#include "transport/queue_pair.h"

namespace verbena::transport {

SendStatus CongestionNotices::send(QueuePair& qp) {
  // Sixteen reserved bytes are its payload.
  static constexpr std::array<std::byte, 16> kReserved{};
  const ConstBytes payload(kReserved);
  roce::Headers headers;
  headers.opcode = roce::kCnpOpcode;
  headers.destination = qp.attributes().destination;
  headers.becn = true;
  const SendStatus status =
      qp.send_out({qp.attributes().path, headers, {&payload, 1}, static_cast<uint32_t>(payload.size())});
  if (status == SendStatus::kBusy) return status;
  is_due_ = false;
  qp.count(kSentPackets);
  return status;
}

}  // namespace verbena::transport
