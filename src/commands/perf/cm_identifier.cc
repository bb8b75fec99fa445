// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/cm_identifier.h"

#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "commands/perf/addresses.h"
#include "commands/perf/failure.h"

namespace verbena::perf {
namespace {

constexpr int kPatience = 2000;  // milliseconds for each step, as perftest
constexpr int kAttempts = 30;

CmIdentifier make_identifier(rdma_port_space space) {
  rdma_cm_id* made = nullptr;
  // Without an event channel, each call waits for its event.
  if (rdma_create_id(nullptr, &made, nullptr, space) != 0) fail("cannot use librdmacm");
  return CmIdentifier(made, DestroyIdentifier());
}

}  // namespace

CmIdentifier resolve_server(const Parameters& parameters, rdma_port_space space) {
  CmIdentifier made = make_identifier(space);
  const auto there = look_up(parameters.server, parameters.port);
  const auto here = parameters.source_address.empty() ? nullptr : look_up(parameters.source_address, 0);
  if (rdma_resolve_addr(made.get(), here ? here->ai_addr : nullptr, there->ai_addr, kPatience) != 0)
    fail("cannot resolve the server's address by librdmacm");
  if (parameters.type_of_service) {
    std::uint8_t type = *parameters.type_of_service;
    if (rdma_set_option(made.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &type, sizeof type) != 0)
      fail("cannot set the type of service (-T)");
  }
  if (rdma_resolve_route(made.get(), kPatience) != 0) fail("cannot resolve the route to the server");
  return made;
}

CmIdentifier listen_for_clients(const Parameters& parameters, rdma_port_space space, int backlog) {
  CmIdentifier made = make_identifier(space);
  const auto here = look_up(parameters.source_address, parameters.port);
  if (rdma_bind_addr(made.get(), here->ai_addr) != 0 || rdma_listen(made.get(), backlog) != 0)
    fail("cannot listen by librdmacm (-p)");
  return made;
}

CmIdentifier next_client(const CmIdentifier& listener) {
  rdma_cm_id* made = nullptr;
  if (rdma_get_request(listener.get(), &made) != 0) fail("cannot wait for a client");
  return CmIdentifier(made, DestroyIdentifier());
}

verbena::context device_of(const CmIdentifier& identifier) {
  return verbena::context(std::shared_ptr<ibv_context>(identifier, identifier->verbs));
}

verbena::qp make_pair(const CmIdentifier& identifier, const verbena::pd& domain, verbena::transport transport,
                      const verbena::qp_options& options) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = options.send_cq.get();
  wanted.recv_cq = options.recv_cq.get() != nullptr ? options.recv_cq.get() : options.send_cq.get();
  wanted.srq = options.srq != nullptr ? options.srq->get() : nullptr;
  wanted.cap = {options.max_send_wr, options.max_recv_wr, options.max_send_sge, options.max_recv_sge,
                options.max_inline};
  wanted.qp_type = static_cast<ibv_qp_type>(transport);
  if (rdma_create_qp(identifier.get(), domain.get(), &wanted) != 0)
    fail("cannot make a queue pair by librdmacm");
  auto owner = [identifier, kept = std::pair(domain.handle(), options.send_cq.handle())](ibv_qp*) {
    rdma_destroy_qp(identifier.get());
  };
  return verbena::qp(std::shared_ptr<ibv_qp>(identifier->qp, std::move(owner)), wanted.cap.max_inline_data,
                     identifier->port_num);
}

rdma_conn_param connection_parameters(const Parameters& parameters, std::uint32_t reads) {
  rdma_conn_param wanted{};
  wanted.responder_resources = static_cast<std::uint8_t>(reads);
  wanted.initiator_depth = static_cast<std::uint8_t>(reads);
  wanted.retry_count = parameters.retries;
  wanted.rnr_retry_count = parameters.retries;
  return wanted;
}

bool connect(const CmIdentifier& identifier, rdma_conn_param wanted) {
  if (rdma_connect(identifier.get(), &wanted) == 0) return true;
  if (errno != ECONNREFUSED && errno != ETIMEDOUT) fail("cannot connect by librdmacm");
  return false;
}

void accept(const CmIdentifier& identifier, rdma_conn_param wanted) {
  if (rdma_accept(identifier.get(), &wanted) != 0) fail("cannot accept a connection by librdmacm");
  // For UD, librdmacm keeps the request, which is the listener's event: the listener could not be destroyed.
  if (identifier->event != nullptr) rdma_ack_cm_event(std::exchange(identifier->event, nullptr));
}

void wait_for_listener(int attempt) {
  if (attempt + 1 >= kAttempts)
    throw std::runtime_error("the server refuses connections: is it one with -R (or -z), too?");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace verbena::perf
