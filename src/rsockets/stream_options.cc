// SPDX-License-Identifier: Apache-2.0
// The options of a stream. What is not known is refused as rsockets always did: programs that go on with a
// plain socket then rely on it.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include "rsockets/iomap_scale.h"
#include "rsockets/stream.h"

namespace verbena::rsockets {
namespace {

constexpr uint32_t kMostEntries = 0xfffe;
constexpr uint32_t kMostBytes = 1u << 30;

int default_keepalive() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_keepalive_time");
  int seconds = 7200;
  file >> seconds;
  return seconds > 0 ? seconds : 7200;
}

// SO_SNDBUF and SO_RCVBUF count twice, as in the kernel.
uint32_t buffer_size(int wanted, uint32_t least) {
  return std::clamp(static_cast<uint32_t>(std::max(wanted, 1)), least / 2, kMostBytes / 2) * 2;
}

}  // namespace

Result<void> Stream::set_identifier_option(int option, int value) {
  if (::rdma_set_option(id_, RDMA_OPTION_ID, option, &value, sizeof value) != 0) return fail(errno);
  return {};
}

Result<void> Stream::update_keepalive() {
  if (options_.keep_alive_seconds == 0) options_.keep_alive_seconds = default_keepalive();
  if (phase() == Phase::kListening) return {};  // there is nobody to be kept alive
  const auto period = std::chrono::seconds(options_.keep_alive ? options_.keep_alive_seconds : 0);
  service_.set_timer(shared_from_this(), period);
  return {};
}

Result<void> Stream::set_option(int level, int name, const void* value, socklen_t length) {
  const std::lock_guard lock(mutex_);
  switch (level) {
    case SOL_SOCKET:
      return set_socket_option(name, value, length);
    case IPPROTO_TCP:
      return set_tcp_option(name, value, length);
    case SOL_RDMA:
      return set_rdma_option(name, value, length);
    case IPPROTO_IPV6: {
      if (name != IPV6_V6ONLY) return fail(EOPNOTSUPP);
      const auto number = int_option(value, length);
      if (!number) return fail(number.error().code);
      auto set = set_identifier_option(RDMA_OPTION_ID_AFONLY, *number);
      if (set) options_.own_family = *number != 0;
      return set;
    }
    default:
      return fail(EOPNOTSUPP);
  }
}

Result<void> Stream::set_socket_option(int name, const void* value, socklen_t length) {
  if (name == SO_LINGER) {
    linger wanted;
    if (value == nullptr) return fail(EFAULT);
    if (length < sizeof wanted) return fail(EINVAL);
    std::memcpy(&wanted, value, sizeof wanted);
    options_.lingers = wanted.l_onoff != 0;
    return {};
  }
  const auto number = int_option(value, length);
  if (!number) return fail(number.error().code);
  switch (name) {
    case SO_REUSEADDR: {
      auto set = set_identifier_option(RDMA_OPTION_ID_REUSEADDR, *number);
      // Too late for the port, but programs set it on what they have accepted, too.
      if (!set && phase() != Phase::kNew) set = {};
      if (set) options_.reuse_address = *number != 0;
      return set;
    }
    case SO_RCVBUF:
      if (!qp_) sizes_.receive_bytes = buffer_size(*number, 2);
      return {};
    case SO_SNDBUF:
      if (!qp_) sizes_.send_bytes = buffer_size(*number, 2 * kSendLowWater);
      return {};
    case SO_KEEPALIVE:
      options_.keep_alive = *number != 0;
      return update_keepalive();
    case SO_OOBINLINE:
      options_.inline_urgent = *number != 0;
      return {};
    default:
      return fail(EOPNOTSUPP);
  }
}

Result<void> Stream::set_tcp_option(int name, const void* value, socklen_t length) {
  const auto number = int_option(value, length);
  if (!number) return fail(number.error().code);
  switch (name) {
    case TCP_KEEPCNT:
    case TCP_KEEPINTVL:
    case TCP_MAXSEG:
      return {};  // the queue pair has its own retries and its own path MTU
    case TCP_KEEPIDLE:
      if (*number <= 0) return fail(EINVAL);
      options_.keep_alive_seconds = *number;
      return options_.keep_alive ? update_keepalive() : Result<void>();
    case TCP_NODELAY:
      options_.no_delay = *number != 0;  // nothing is ever delayed
      return {};
    default:
      return fail(EOPNOTSUPP);
  }
}

Result<void> Stream::set_rdma_option(int name, const void* value, socklen_t length) {
  if (phase() != Phase::kNew && phase() != Phase::kBound && phase() != Phase::kListening) return fail(EINVAL);
  if (name == RDMA_ROUTE) {
    if (value == nullptr || length == 0) return fail(EINVAL);
    const auto* bytes = static_cast<const std::byte*>(value);
    route_.assign(bytes, bytes + length);
    return {};
  }
  const auto number = int_option(value, length);
  if (!number) return fail(number.error().code);
  const uint32_t wanted = std::min(static_cast<uint32_t>(*number), kMostEntries);
  switch (name) {
    case RDMA_SQSIZE:
      sizes_.send_queue = wanted;
      return {};
    case RDMA_RQSIZE:
      sizes_.receive_queue = wanted;
      return {};
    case RDMA_INLINE:
      sizes_.inline_bytes = wanted;
      return {};
    case RDMA_IOMAPSIZE:
      sizes_.iomap_entries = representable_iomap_entries(wanted);
      return {};
    default:
      return fail(EOPNOTSUPP);
  }
}

Result<void> Stream::get_option(int level, int name, OptionValue value) {
  const std::lock_guard lock(mutex_);
  switch (level) {
    case SOL_SOCKET:
      return get_socket_option(name, value);
    case IPPROTO_TCP:
      return get_tcp_option(name, value);
    case IPPROTO_IPV6:
      return name == IPV6_V6ONLY ? value.set(int{options_.own_family}) : fail(EOPNOTSUPP);
    case SOL_RDMA:
      return get_rdma_option(name, value);
    default:
      return fail(EOPNOTSUPP);
  }
}

Result<void> Stream::get_socket_option(int name, OptionValue& value) {
  const Sizes& sizes = qp_ ? qp_->sizes() : sizes_;
  switch (name) {
    case SO_REUSEADDR:
      return value.set(int{options_.reuse_address});
    case SO_KEEPALIVE:
      return value.set(int{options_.keep_alive});
    case SO_OOBINLINE:
      return value.set(int{options_.inline_urgent});
    case SO_RCVBUF:
      return value.set(static_cast<int>(sizes.receive_bytes));
    case SO_SNDBUF:
      return value.set(static_cast<int>(sizes.send_bytes));
    case SO_LINGER:
      return value.set(linger{options_.lingers, 0});
    case SO_TYPE:
      return value.set(int{SOCK_STREAM});
    case SO_DOMAIN:
      return value.set(family_);
    case SO_PROTOCOL:
      return value.set(int{IPPROTO_TCP});
    case SO_ACCEPTCONN:
      return value.set(int{phase() == Phase::kListening});
    case SO_ERROR: {
      const int error = phase() == Phase::kConnected ? qp_->take_error() : std::exchange(error_, 0);
      return value.set(error);
    }
    default:
      return fail(EOPNOTSUPP);
  }
}

Result<void> Stream::get_tcp_option(int name, OptionValue& value) {
  switch (name) {
    case TCP_KEEPCNT:
    case TCP_KEEPINTVL:
      return value.set(int{1});
    case TCP_KEEPIDLE:
      return value.set(options_.keep_alive_seconds);
    case TCP_NODELAY:
      return value.set(int{options_.no_delay});
    case TCP_MAXSEG:
      return value.set(static_cast<int>(largest_segment()));
    case TCP_INFO: {  // what is known of it: iperf3 asks, and takes a refusal for an answer that it has got
      const tcp_info info = information();
      return value.set(&info, std::min<size_t>(value.room(), sizeof info));
    }
    default:
      return fail(EOPNOTSUPP);
  }
}

// Retransmissions, round trips and windows are the queue pair's own affair: zeros.
tcp_info Stream::information() const {
  tcp_info info{};
  info.tcpi_state = phase() == Phase::kConnected   ? TCP_ESTABLISHED
                    : phase() == Phase::kListening ? TCP_LISTEN
                                                   : TCP_CLOSE;
  info.tcpi_snd_mss = info.tcpi_rcv_mss = info.tcpi_advmss = info.tcpi_pmtu = largest_segment();
  return info;
}

uint32_t Stream::largest_segment() const {
  const rdma_route& route = id_->route;
  return route.num_paths > 0 ? 1u << (7 + route.path_rec->mtu) : 2048;
}

Result<void> Stream::get_rdma_option(int name, OptionValue& value) {
  const Sizes& sizes = qp_ ? qp_->sizes() : sizes_;
  switch (name) {
    case RDMA_SQSIZE:
      return value.set(static_cast<int>(sizes.send_queue));
    case RDMA_RQSIZE:
      return value.set(static_cast<int>(sizes.receive_queue));
    case RDMA_INLINE:
      return value.set(static_cast<int>(sizes.inline_bytes));
    case RDMA_IOMAPSIZE:
      return value.set(static_cast<int>(sizes.iomap_entries));
    case RDMA_ROUTE:
      return get_route(value);
    default:
      return fail(EOPNOTSUPP);
  }
}

// What was set, or the path that was resolved.
Result<void> Stream::get_route(OptionValue& value) {
  if (!route_.empty()) return value.set(route_.data(), route_.size());
  if (value.room() < sizeof(ibv_path_data)) return fail(EINVAL);
  if (id_->route.num_paths < 1) return value.set(nullptr, 0);
  constexpr uint8_t kExactly = 2 << 6;  // a selector: this value and no other (IBTA volume 1, 15.2.5.16)
  const ibv_sa_path_rec& from = *id_->route.path_rec;
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

}  // namespace verbena::rsockets
