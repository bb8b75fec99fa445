// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/stream_options.h"

#include <fstream>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include "libraries/rsockets/flow_control.h"

namespace verbena::rsockets {
namespace {

constexpr uint32_t kMaxBytes = 1u << 30;

int default_keepalive() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_keepalive_time");
  int seconds = 7200;
  file >> seconds;
  return seconds > 0 ? seconds : 7200;
}

// Doubles SO_SNDBUF and SO_RCVBUF, as the kernel does.
uint32_t buffer_size(int wanted, uint32_t least) {
  return std::clamp(static_cast<uint32_t>(std::max(wanted, 1)), least / 2, kMaxBytes / 2) * 2;
}

Result<void> set_on(rdma_cm_id* id, int option, int value) {
  if (::rdma_set_option(id, RDMA_OPTION_ID, option, &value, sizeof value) != 0) return fail(errno);
  return {};
}

// Returns the resolved path; no bytes if there is none.
Result<void> get_path(const rdma_cm_id& id, OptionValue& value) {
  if (value.room() < sizeof(ibv_path_data)) return fail(EINVAL);
  if (id.route.num_paths < 1) return value.set(nullptr, 0);
  constexpr uint8_t kExactly = 2 << 6;  // a selector: exactly this value (IBTA volume 1, 15.2.5.16)
  const ibv_sa_path_rec& from = *id.route.path_rec;
  ibv_path_data path{};
  ibv_path_record& to = path.path;
  to.dgid = from.dgid;
  to.sgid = from.sgid;
  to.dlid = from.dlid;
  to.slid = from.slid;
  store_be(&to.flowlabel_hoplimit, load_be<uint32_t>(&from.flow_label) << 8 | from.hop_limit);
  to.tclass = from.traffic_class;
  to.reversible_numpath = static_cast<uint8_t>((from.reversible != 0 ? 0x80 : 0) | 1);
  to.pkey = from.pkey;
  store_be(&to.qosclass_sl, static_cast<uint16_t>(from.sl));
  to.mtu = static_cast<uint8_t>(from.mtu | kExactly);
  to.rate = static_cast<uint8_t>(from.rate | kExactly);
  to.packetlifetime = static_cast<uint8_t>(from.packet_life_time | kExactly);
  path.flags = from.preference;
  return value.set(path);
}

// Identifies an option by its level and name.
constexpr uint64_t option(int level, int name) {
  return static_cast<uint64_t>(level) << 32 | static_cast<uint32_t>(name);
}

}  // namespace

bool StreamOptions::set_route_of(rdma_cm_id& id) {
  return !route_.empty() &&
         ::rdma_set_option(&id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, route_.data(), route_.size()) == 0;
}

Result<void> StreamOptions::set(const Stage& stage, int level, int name, const void* value,
                                socklen_t length) {
  if (level == SOL_RDMA) return set_rdma_option(stage, name, value, length);
  const bool is_known =
      level == SOL_SOCKET || level == IPPROTO_TCP || (level == IPPROTO_IPV6 && name == IPV6_V6ONLY);
  if (!is_known) return fail(EOPNOTSUPP);
  if (level == SOL_SOCKET && name == SO_LINGER) {
    linger wanted;
    if (value == nullptr) return fail(EFAULT);
    if (length < sizeof wanted) return fail(EINVAL);
    std::memcpy(&wanted, value, sizeof wanted);
    lingers_ = wanted.l_onoff != 0;
    return {};
  }
  const auto number = int_option(value, length);
  if (!number) return fail(number.error().code);
  const bool on = *number != 0;
  Result<void> done;
  switch (option(level, name)) {
    case option(SOL_SOCKET, SO_REUSEADDR):
      // Has no effect on a port that is already bound, but programs also set it on accepted sockets.
      done = set_on(stage.id, RDMA_OPTION_ID_REUSEADDR, *number);
      if (!done && stage.is_new) return done;
      reuse_address_ = on;
      return {};
    case option(SOL_SOCKET, SO_RCVBUF):
      if (stage.sizes == nullptr) sizes_.receive_bytes = buffer_size(*number, 2);
      return {};
    case option(SOL_SOCKET, SO_SNDBUF):
      if (stage.sizes == nullptr) sizes_.send_bytes = buffer_size(*number, 2 * kSendLowWater);
      return {};
    case option(SOL_SOCKET, SO_KEEPALIVE):
      keep_alive_ = on;
      if (keep_alive_seconds_ == 0) keep_alive_seconds_ = default_keepalive();
      return {};
    case option(SOL_SOCKET, SO_OOBINLINE):
      inline_urgent_ = on;
      return {};
    case option(IPPROTO_TCP, TCP_KEEPCNT):
    case option(IPPROTO_TCP, TCP_KEEPINTVL):
    case option(IPPROTO_TCP, TCP_MAXSEG):
      return {};  // the queue pair has its own retries and path MTU
    case option(IPPROTO_TCP, TCP_KEEPIDLE):
      if (*number <= 0) return fail(EINVAL);
      keep_alive_seconds_ = *number;
      return {};
    case option(IPPROTO_TCP, TCP_NODELAY):
      no_delay_ = on;  // only stored: no data are ever delayed
      return {};
    case option(IPPROTO_IPV6, IPV6_V6ONLY):
      done = set_on(stage.id, RDMA_OPTION_ID_AFONLY, *number);
      if (done) own_family_ = on;
      return done;
    default:
      return fail(EOPNOTSUPP);
  }
}

Result<void> StreamOptions::set_rdma_option(const Stage& stage, int name, const void* value,
                                            socklen_t length) {
  if (!stage.may_be_sized) return fail(EINVAL);
  if (name == RDMA_ROUTE) {
    if (value == nullptr || length == 0) return fail(EINVAL);
    const auto* bytes = static_cast<const std::byte*>(value);
    route_.assign(bytes, bytes + length);
    return {};
  }
  const auto number = int_option(value, length);
  if (!number) return fail(number.error().code);
  const uint32_t wanted = std::min(static_cast<uint32_t>(*number), kMaxQueueEntries);
  if (name == RDMA_IOMAPSIZE) {
    sizes_.iomap_entries = representable_iomap_entries(wanted);
    return {};
  }
  const auto size = size_option(name);
  if (size == nullptr) return fail(EOPNOTSUPP);
  sizes_.*size = wanted;
  return {};
}

Result<void> StreamOptions::get(const Stage& stage, int level, int name, OptionValue& value) const {
  const Sizes& sizes = stage.sizes != nullptr ? *stage.sizes : sizes_;
  switch (option(level, name)) {
    case option(SOL_SOCKET, SO_REUSEADDR):
      return value.set(int{reuse_address_});
    case option(SOL_SOCKET, SO_KEEPALIVE):
      return value.set(int{keep_alive_});
    case option(SOL_SOCKET, SO_OOBINLINE):
      return value.set(int{inline_urgent_});
    case option(SOL_SOCKET, SO_RCVBUF):
      return value.set(static_cast<int>(sizes.receive_bytes));
    case option(SOL_SOCKET, SO_SNDBUF):
      return value.set(static_cast<int>(sizes.send_bytes));
    case option(SOL_SOCKET, SO_LINGER):
      return value.set(linger{lingers_, 0});
    case option(IPPROTO_TCP, TCP_KEEPCNT):
    case option(IPPROTO_TCP, TCP_KEEPINTVL):
      return value.set(int{1});
    case option(IPPROTO_TCP, TCP_KEEPIDLE):
      return value.set(keep_alive_seconds_);
    case option(IPPROTO_TCP, TCP_NODELAY):
      return value.set(int{no_delay_});
    case option(IPPROTO_IPV6, IPV6_V6ONLY):
      return value.set(int{own_family_});
    case option(SOL_RDMA, RDMA_IOMAPSIZE):
      return value.set(static_cast<int>(sizes.iomap_entries));
    case option(SOL_RDMA, RDMA_ROUTE):
      return route_.empty() ? get_path(*stage.id, value) : value.set(route_.data(), route_.size());
    default:
      const auto size = level == SOL_RDMA ? size_option(name) : nullptr;
      return size != nullptr ? value.set(static_cast<int>(sizes.*size)) : fail(EOPNOTSUPP);
  }
}

}  // namespace verbena::rsockets
