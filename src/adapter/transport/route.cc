// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/route.h"

namespace verbena::transport {
namespace {

class Nowhere final : public PacketSink {
 public:
  SendStatus send(const OutgoingPacket&) override { return SendStatus::kSent; }
};

}  // namespace

const Route& no_route() {
  static Nowhere nowhere;
  static const Route route{.traits = {.max_payload = UINT32_MAX}, .sink = &nowhere};
  return route;
}

}  // namespace verbena::transport
