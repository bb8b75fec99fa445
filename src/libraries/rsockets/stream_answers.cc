// SPDX-License-Identifier: Apache-2.0
// Queries of a stream: options, state, errors.
#include <algorithm>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>

#include "libraries/rsockets/stream.h"

namespace verbena::rsockets {

StreamOptions::Stage Stream::stage() const {
  const Phase now = phase();
  return {.id = id_,
          .is_new = now == Phase::kNew,
          .may_be_sized = now == Phase::kNew || now == Phase::kBound || now == Phase::kListening,
          .sizes = qp_ ? &qp_->sizes() : nullptr};
}

Result<void> Stream::set_option(int level, int name, const void* value, socklen_t length) {
  const std::lock_guard lock(mutex_);
  const auto effect = options_.set(stage(), level, name, value, length);
  if (!effect) return fail(effect.error().code);
  // A listener has no peer to keep alive.
  if (*effect == StreamOptions::Effect::kKeepAlive && phase() != Phase::kListening) {
    service_.set_timer(shared_from_this(), options_.keep_alive_period());
  }
  return {};
}

Result<void> Stream::get_option(int level, int name, OptionValue value) {
  const std::lock_guard lock(mutex_);
  if (level == SOL_SOCKET) {
    switch (name) {
      case SO_TYPE:
        return value.set(int{SOCK_STREAM});
      case SO_DOMAIN:
        return value.set(family_);
      case SO_PROTOCOL:
        return value.set(int{IPPROTO_TCP});
      case SO_ACCEPTCONN:
        return value.set(int{phase() == Phase::kListening});
      case SO_ERROR:
        return value.set(phase() == Phase::kConnected ? qp_->take_error() : std::exchange(error_, 0));
      default:
        break;
    }
  }
  if (level == IPPROTO_TCP && name == TCP_MAXSEG) return value.set(static_cast<int>(largest_segment()));
  if (level == IPPROTO_TCP && name == TCP_INFO) {
    // Fills the few known fields: iperf3 asks for TCP_INFO and does not check for failure.
    const tcp_info info = information();
    return value.set(&info, std::min<size_t>(value.room(), sizeof info));
  }
  return options_.get(stage(), level, name, value);
}

// Fills the state and segment sizes. Retransmissions, round trips and windows are internal to the queue pair,
// and 0 here.
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

}  // namespace verbena::rsockets
