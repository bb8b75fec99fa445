// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/endpoints/endpoint.h"

#include <cerrno>
#include <cstring>
#include <functional>

#include <endian.h>
#include <netdb.h>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/addresses.h"
#include "commands/rdma_core/connections/events.h"

namespace verbena::rdma_core {

int find_addresses(const std::string& node, const std::string& port, const rdma_addrinfo& hints,
                   const Output& output, AddressInfo& found) {
  rdma_addrinfo* list = nullptr;
  const int error = rdma_getaddrinfo(node.empty() ? nullptr : node.c_str(), port.c_str(), &hints, &list);
  const int reason = errno;
  if (error == 0) {
    found.reset(list);
    return 0;
  }
  tell_failure(output, verbena::format("rdma_getaddrinfo: {}", gai_strerror(error)),
               error == -1 ? remedy_for_errno(reason) : "");
  return error;
}

int call_failed(const char* call) {
  const int error = errno;
  const char* remedy = remedy_for_errno(error);
  if (error == ECONNREFUSED) remedy = remedy_for(RDMA_CM_EVENT_REJECTED);
  if (error == ETIMEDOUT) remedy = remedy_for(RDMA_CM_EVENT_UNREACHABLE);
  complain_of(error, call, remedy);
  return -1;
}

int await_completion(rdma_cm_id* id, int (*call)(rdma_cm_id*, ibv_wc*), const char* name) {
  ibv_wc completion = {};
  int found = 0;
  while ((found = call(id, &completion)) == 0) {
  }
  if (found < 0) return call_failed(name);
  if (completion.status == IBV_WC_SUCCESS) return 0;
  complain(verbena::format("{}: {}", name, ibv_wc_status_str(completion.status)),
           "the other end is gone, or did not take the message");
  return -1;
}

std::optional<uint32_t> shared_queue_number(std::span<const uint8_t> private_data) {
  uint32_t number = 0;
  if (private_data.size() < sizeof number) return std::nullopt;
  std::memcpy(&number, private_data.data(), sizeof number);
  return be32toh(number);
}

int framed(const char* name, Output& output, const std::function<int()>& run) {
  output.text("%s: start\n", name);
  const int status = run();
  output.text("%s: end %d\n", name, status);
  if (status == 0) output.finish();
  return status;
}

void describe(rdma_cm_id* id, Output& output) {
  auto& object = output.object();
  object["device"] = id->verbs != nullptr ? ibv_get_device_name(id->verbs->device) : "";
  object["local"] = shown(rdma_get_local_addr(id));
  object["peer"] = shown(rdma_get_peer_addr(id));
  object["qp_number"] = id->qp != nullptr ? id->qp->qp_num : 0;
  object["message_bytes"] = sizeof(Message);
}

}  // namespace verbena::rdma_core
