// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/cm_pairs.h"

#include <cerrno>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/format.h"
#include "commands/perf/completions.h"

namespace verbena::perf {

CmPairs::CmPairs(const Parameters& parameters)
    : parameters_(parameters), space_(parameters.is_datagram() ? RDMA_PS_UDP : RDMA_PS_TCP) {
  if (!parameters.is_client())
    listener_ = listen_for_clients(parameters, space_, static_cast<int>(parameters.queue_pairs));
}

const CmIdentifier& CmPairs::first() {
  next_ = take_next();
  return next_;
}

CmIdentifier CmPairs::take_next() {
  if (next_) return std::exchange(next_, nullptr);
  return parameters_.is_client() ? resolve_server(parameters_, space_) : next_client(listener_);
}

void CmPairs::connect(Endpoint& endpoint, std::uint32_t reads) {
  for (std::uint32_t i = 0; i < parameters_.queue_pairs; ++i) {
    if (parameters_.is_client()) {
      connect_one(endpoint, reads);
    } else {
      accept_one(endpoint, reads);
    }
  }
  listener_.reset();
}

bool CmPairs::needs_both_numbers() const {
  return parameters_.is_datagram() && (parameters_.is_latency() || parameters_.is_bidirectional);
}

void CmPairs::connect_one(Endpoint& endpoint, std::uint32_t reads) {
  for (int attempt = 0;; ++attempt) {
    const CmIdentifier identifier = take_next();
    verbena::qp made =
        make_pair(identifier, endpoint.domain(), parameters_.transport, endpoint.queue_options());
    if (!perf::connect(identifier, connection_parameters(parameters_, reads))) {
      wait_for_listener(attempt);
      continue;
    }
    if (!parameters_.is_datagram()) {
      endpoint.add_pair(std::move(made), std::nullopt, 0, 0);
      return;
    }
    const rdma_ud_param& peer = identifier->event->param.ud;
    endpoint.add_pair(std::move(made), endpoint.domain().make_address(peer.ah_attr).value(), peer.qp_num,
                      peer.qkey);
    if (needs_both_numbers()) tell_number(endpoint);
    return;
  }
}

void CmPairs::accept_one(Endpoint& endpoint, std::uint32_t reads) {
  const CmIdentifier client = take_next();
  verbena::qp made = make_pair(client, endpoint.domain(), parameters_.transport, endpoint.queue_options());
  rdma_conn_param wanted = connection_parameters(parameters_, reads);
  if (needs_both_numbers()) {
    wanted.qp_num = made.number();
    learn_number(endpoint, client, std::move(made), wanted);
    return;
  }
  perf::accept(client, wanted);
  endpoint.add_pair(std::move(made), std::nullopt, 0, 0);
}

// Sends the number of the last queue pair to its peer, as the immediate data of a datagram.
void CmPairs::tell_number(Endpoint& endpoint) const {
  const std::size_t last = endpoint.count() - 1;
  const Endpoint::Peer& peer = endpoint.peer(last);
  const verbena::qp& own = endpoint.pair(last);
  own.post(verbena::send(endpoint.send_buffer(last).first(sizeof(std::uint32_t)))
               .to({*peer.address, peer.qp_num, peer.qkey})
               .immediate(own.number())
               .signaled())
      .value();
  while (take_completions<1>(endpoint.sends(), [](const verbena::completion&) {}) == 0) continue;
}

void CmPairs::learn_number(Endpoint& endpoint, const CmIdentifier& client, verbena::qp made,
                           const rdma_conn_param& wanted) const {
  const std::size_t index = endpoint.count();
  const verbena::slice into = endpoint.receive_buffer(index).first(kRouteHeader + sizeof(std::uint32_t));
  made.post(verbena::recv(into)).value();
  perf::accept(client, wanted);
  ibv_wc told{};
  while (take_completions<1>(endpoint.receives(),
                             [&](const verbena::completion& one) { told = one.get(); }) == 0)
    continue;
  ibv_ah* const address = ibv_create_ah_from_wc(endpoint.domain().get(), &told,
                                                reinterpret_cast<ibv_grh*>(into.data()), client->port_num);
  if (address == nullptr)
    throw std::runtime_error(
        verbena::format("cannot answer the client's datagram: {}", std::strerror(errno)));
  ibv_qp_attr attributes{};
  ibv_qp_init_attr unused{};
  ibv_query_qp(made.get(), &attributes, IBV_QP_QKEY, &unused);
  endpoint.add_pair(
      std::move(made),
      verbena::address_handle(verbena::detail::own(address, ibv_destroy_ah, endpoint.domain().handle())),
      be32toh(told.imm_data), attributes.qkey);
}

}  // namespace verbena::perf
