// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/congestion_notices.h"

#include <array>

#include "adapter/transport/queue_pair.h"

namespace verbena::transport {

SendStatus CongestionNotices::send(QueuePair& qp) {
  return send(qp, qp.route(), qp.attributes().path, qp.attributes().destination);
}

SendStatus CongestionNotices::send(QueuePair& qp, const Route& route, const roce::Path& path,
                                   roce::Qpn destination) {
  // The payload of a CNP: 16 reserved bytes.
  static constexpr std::array<std::byte, 16> kReserved{};
  roce::Headers headers;
  headers.opcode = roce::kCnpOpcode;
  headers.destination = destination;
  headers.becn = true;
  const SendStatus status = qp.send_word(route, path, headers, kReserved);
  if (status == SendStatus::kSent) qp.count(kNoticesSent);
  if (status != SendStatus::kBusy) is_due_ = false;
  return status;
}

}  // namespace verbena::transport
