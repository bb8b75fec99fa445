// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/stream_options.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include "libraries/rsockets/flow_control.h"
#include "libraries/rsockets/stream_protocol.h"

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

}  // namespace

bool StreamOptions::set_route_of(rdma_cm_id& id) {
  return !route_.empty() &&
         ::rdma_set_option(&id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, route_.data(), route_.size()) == 0;
}

StreamOptions::Effect StreamOptions::keep_alive_changed() {
  if (keep_alive_seconds_ == 0) keep_alive_seconds_ = default_keepalive();
  return Effect::kKeepAlive;
}

Result<StreamOptions::Effect> StreamOptions::set(const Stage& stage, int level, int name, const void* value,
                                                 socklen_t length) {
  const auto without_effect = [](const Result<void>& done) -> Result<Effect> {
    if (!done) return fail(done.error().code);
    return Effect::kNone;
  };
  switch (level) {
    case SOL_SOCKET:
      return set_socket_option(stage, name, value, length);
    case IPPROTO_TCP:
      return set_tcp_option(name, value, length);
    case SOL_RDMA:
      return without_effect(set_rdma_option(stage, name, value, length));
    case IPPROTO_IPV6: {
      if (name != IPV6_V6ONLY) return fail(EOPNOTSUPP);
      const auto number = int_option(value, length);
      if (!number) return fail(number.error().code);
      const auto done = set_on(stage.id, RDMA_OPTION_ID_AFONLY, *number);
      if (done) own_family_ = *number != 0;
      return without_effect(done);
    }
    default:
      return fail(EOPNOTSUPP);
  }
}

Result<StreamOptions::Effect> StreamOptions::set_socket_option(const Stage& stage, int name,
                                                               const void* value, socklen_t length) {
  if (name == SO_LINGER) {
    linger wanted;
    if (value == nullptr) return fail(EFAULT);
    if (length < sizeof wanted) return fail(EINVAL);
    std::memcpy(&wanted, value, sizeof wanted);
    lingers_ = wanted.l_onoff != 0;
    return Effect::kNone;
  }
  const auto number = int_option(value, length);
  if (!number) return fail(number.error().code);
  switch (name) {
    case SO_REUSEADDR:
      // Has no effect on a port that is already bound, but programs also set it on accepted sockets.
      if (const auto done = set_on(stage.id, RDMA_OPTION_ID_REUSEADDR, *number); !done && stage.is_new) {
        return fail(done.error().code);
      }
      reuse_address_ = *number != 0;
      return Effect::kNone;
    case SO_RCVBUF:
      if (stage.sizes == nullptr) sizes_.receive_bytes = buffer_size(*number, 2);
      return Effect::kNone;
    case SO_SNDBUF:
      if (stage.sizes == nullptr) sizes_.send_bytes = buffer_size(*number, 2 * kSendLowWater);
      return Effect::kNone;
    case SO_KEEPALIVE:
      keep_alive_ = *number != 0;
      return keep_alive_changed();
    case SO_OOBINLINE:
      inline_urgent_ = *number != 0;
      return Effect::kNone;
    default:
      return fail(EOPNOTSUPP);
  }
}

Result<StreamOptions::Effect> StreamOptions::set_tcp_option(int name, const void* value, socklen_t length) {
  const auto number = int_option(value, length);
  if (!number) return fail(number.error().code);
  switch (name) {
    case TCP_KEEPCNT:
    case TCP_KEEPINTVL:
    case TCP_MAXSEG:
      return Effect::kNone;  // the queue pair has its own retries and path MTU
    case TCP_KEEPIDLE:
      if (*number <= 0) return fail(EINVAL);
      keep_alive_seconds_ = *number;
      return keep_alive_ ? keep_alive_changed() : Effect::kNone;
    case TCP_NODELAY:
      no_delay_ = *number != 0;  // only stored: no data are ever delayed
      return Effect::kNone;
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
  switch (level) {
    case SOL_SOCKET:
      return get_socket_option(sizes_at(stage), name, value);
    case IPPROTO_TCP:
      return get_tcp_option(name, value);
    case IPPROTO_IPV6:
      return name == IPV6_V6ONLY ? value.set(int{own_family_}) : fail(EOPNOTSUPP);
    case SOL_RDMA:
      return get_rdma_option(stage, name, value);
    default:
      return fail(EOPNOTSUPP);
  }
}

Result<void> StreamOptions::get_socket_option(const Sizes& sizes, int name, OptionValue& value) const {
  switch (name) {
    case SO_REUSEADDR:
      return value.set(int{reuse_address_});
    case SO_KEEPALIVE:
      return value.set(int{keep_alive_});
    case SO_OOBINLINE:
      return value.set(int{inline_urgent_});
    case SO_RCVBUF:
      return value.set(static_cast<int>(sizes.receive_bytes));
    case SO_SNDBUF:
      return value.set(static_cast<int>(sizes.send_bytes));
    case SO_LINGER:
      return value.set(linger{lingers_, 0});
    default:
      return fail(EOPNOTSUPP);
  }
}

Result<void> StreamOptions::get_tcp_option(int name, OptionValue& value) const {
  switch (name) {
    case TCP_KEEPCNT:
    case TCP_KEEPINTVL:
      return value.set(int{1});
    case TCP_KEEPIDLE:
      return value.set(keep_alive_seconds_);
    case TCP_NODELAY:
      return value.set(int{no_delay_});
    default:
      return fail(EOPNOTSUPP);
  }
}

Result<void> StreamOptions::get_rdma_option(const Stage& stage, int name, OptionValue& value) const {
  const Sizes& sizes = sizes_at(stage);
  if (name == RDMA_IOMAPSIZE) return value.set(static_cast<int>(sizes.iomap_entries));
  if (name == RDMA_ROUTE) {
    return route_.empty() ? get_path(*stage.id, value) : value.set(route_.data(), route_.size());
  }
  const auto size = size_option(name);
  return size != nullptr ? value.set(static_cast<int>(sizes.*size)) : fail(EOPNOTSUPP);
}

}  // namespace verbena::rsockets
