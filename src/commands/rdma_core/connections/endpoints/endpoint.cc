// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/endpoints/endpoint.h"

#include <cctype>
#include <cstring>
#include <vector>

#include <endian.h>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/cm.h"
#include "commands/rdma_core/connections/command_line.h"

namespace verbena::rdma_core {

namespace {

Next take_type(const char* word, EndpointLine& line) {
  const int letter = std::tolower(static_cast<unsigned char>(word[0]));
  line.shared = line.shared || letter == 'x';
  return letter == 'x' || letter == 'r' ? Next::kGoOn : Next::kWrong;
}

}  // namespace

int run(const EndpointProgram& program, int argc, char** argv) {
  EndpointLine line;
  std::vector<Option> options = {text('p', nullptr, line.port)};
  if (program.server != nullptr) {
    line.server = program.server;
    options.push_back(text('s', nullptr, line.server));
  }
  if (program.extended) {
    options.push_back({'c', nullptr, true, [&](const char* word) { return take_type(word, line); }});
  }
  const Letters letters = parse_letters(argc, argv, options);
  if (letters.next != Next::kGoOn) return print_usage(program.name, argv[0], letters.next);
  Output output(letters.json);
  output.object()["program"] = program.name;
  if (program.extended) output.object()["communication"] = line.shared ? "XRC" : "RC";
  const char* name = program.extended ? argv[0] : program.name;
  output.text("%s: start\n", name);
  const int status = program.perform(line, output);
  output.text("%s: end %d\n", name, status);
  if (status == 0) output.finish();
  return status;
}

int make_endpoint(const EndpointLine& line, const rdma_addrinfo& hints, ibv_qp_init_attr& wanted,
                  const Output& output, Endpoint& made) {
  const bool passive = (hints.ai_flags & RAI_PASSIVE) != 0;
  AddressInfo addresses;
  const int error =
      find_addresses(passive ? line.server : "", passive ? "" : line.server, line.port, hints, addresses);
  if (error != 0) {
    tell_lookup_failure(output, "rdma_getaddrinfo", error);
    return error;
  }
  rdma_cm_id* id = nullptr;
  if (rdma_create_ep(&id, addresses.get(), nullptr, &wanted) != 0) return failed("rdma_create_ep");
  made.reset(id);
  return 0;
}

int await_client(rdma_cm_id* listener, Endpoint& client) {
  rdma_cm_id* id = nullptr;
  if (rdma_listen(listener, 0) != 0) return failed("rdma_listen");
  if (rdma_get_request(listener, &id) != 0) return failed("rdma_get_request");
  client.reset(id);
  return 0;
}

int await_completion(rdma_cm_id* id, int (*call)(rdma_cm_id*, ibv_wc*), const char* name) {
  ibv_wc completion = {};
  int found = 0;
  while ((found = call(id, &completion)) == 0) {
  }
  if (found < 0) return failed(name);
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

void describe(rdma_cm_id* id, Output& output) {
  output.object().update(described(id, id->qp));
  output.object()["message_bytes"] = sizeof(Message);
}

}  // namespace verbena::rdma_core
