// SPDX-License-Identifier: Apache-2.0
// Functions about a datagram's header, such as umad_set_addr(3), umad_set_grh(3) and umad_dump(3).
#include "libraries/libibumad/debug.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <infiniband/umad.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/c_abi.h"

namespace verbena::umad {
namespace {

constinit std::atomic<int> level{0};

}  // namespace

int debug_level() {
  return level.load(std::memory_order_relaxed);
}

void say(const char* function, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "ibwarn: [%d] %s: %s\n", ::getpid(), function, text);
}

}  // namespace verbena::umad

VERBENA_ABI int umad_debug(int wanted) {
  if (wanted >= 0) verbena::umad::level.store(wanted, std::memory_order_relaxed);
  return verbena::umad::debug_level();
}

namespace {

using verbena::byteswap;
using verbena::umad::say;

ib_user_mad& at(void* umad) {
  return *static_cast<ib_user_mad*>(umad);
}

}  // namespace

VERBENA_ABI void* umad_get_mad(void* umad) {
  return at(umad).data;
}

VERBENA_ABI size_t umad_size() {
  return sizeof(ib_user_mad);
}

VERBENA_ABI int umad_status(void* umad) {
  return static_cast<int>(at(umad).status);
}

VERBENA_ABI ib_mad_addr_t* umad_get_mad_addr(void* umad) {
  return &at(umad).addr;
}

// Unlike the other fields, the flow label is in host byte order.
VERBENA_ABI int umad_set_grh(void* umad, void* address) {
  ib_mad_addr& to = at(umad).addr;
  to.grh_present = address != nullptr;
  if (address == nullptr) return 0;
  const auto& from = *static_cast<const ib_mad_addr*>(address);
  std::memcpy(to.gid, from.gid, sizeof to.gid);
  to.flow_label = byteswap(from.flow_label);
  to.hop_limit = from.hop_limit;
  to.traffic_class = from.traffic_class;
  return 0;
}

VERBENA_ABI int umad_set_pkey(void* umad, int index) {
  at(umad).addr.pkey_index = static_cast<uint16_t>(index);
  return 0;
}

VERBENA_ABI int umad_get_pkey(void* umad) {
  return at(umad).addr.pkey_index;
}

VERBENA_ABI int umad_set_addr_net(void* umad, __be16 lid, __be32 qp, int sl, __be32 qkey) {
  ib_mad_addr& to = at(umad).addr;
  to.lid = lid;
  to.qpn = qp;
  to.qkey = qkey;
  to.sl = static_cast<uint8_t>(sl);
  return 0;
}

VERBENA_ABI int umad_set_addr(void* umad, int lid, int qp, int sl, int qkey) {
  return umad_set_addr_net(umad, byteswap(static_cast<uint16_t>(lid)), byteswap(static_cast<uint32_t>(qp)),
                           sl, byteswap(static_cast<uint32_t>(qkey)));
}

VERBENA_ABI void umad_addr_dump(ib_mad_addr_t* address) {
  char gid[2 * sizeof address->gid + 1];
  for (size_t i = 0; i < sizeof address->gid; ++i) std::snprintf(&gid[2 * i], 3, "%02x", address->gid[i]);
  say(__func__,
      "qpn %d qkey 0x%x lid %u sl %d\n"
      "grh_present %d gid_index %d hop_limit %d traffic_class %d flow_label 0x%x pkey_index 0x%x\n"
      "Gid 0x%s",
      static_cast<int>(byteswap(address->qpn)), byteswap(address->qkey), byteswap(address->lid), address->sl,
      address->grh_present, address->gid_index, address->hop_limit, address->traffic_class,
      address->flow_label, address->pkey_index, gid);
}

VERBENA_ABI void umad_dump(void* umad) {
  say(__func__, "agent id %d status %x timeout %d", static_cast<int>(at(umad).agent_id), at(umad).status,
      static_cast<int>(at(umad).timeout_ms));
  umad_addr_dump(&at(umad).addr);
}
