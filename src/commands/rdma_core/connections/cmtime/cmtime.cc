// SPDX-License-Identifier: Apache-2.0
// cmtime: measures the duration of each step of connecting, for many connections at a time.
#include <cerrno>
#include <cstdio>

#include <netdb.h>

#include "base/format.h"
#include "commands/rdma_core/connections/addresses.h"
#include "commands/rdma_core/connections/cmtime/steps.h"
#include "commands/rdma_core/connections/events.h"
#include "commands/rdma_core/connections/letters.h"
#include "commands/rdma_core/connections/programs.h"

namespace verbena::rdma_core {
namespace {

rdma_addrinfo hints(bool passive) {
  rdma_addrinfo wanted = {};
  wanted.ai_flags = passive ? RAI_PASSIVE : 0;
  wanted.ai_port_space = RDMA_PS_TCP;
  wanted.ai_qp_type = IBV_QPT_RC;
  return wanted;
}

void print_cmtime_usage(const char* program) {
  std::printf("usage: %s\n", program);
  std::printf("\t[-s server_address]\n");
  std::printf("\t[-b bind_address]\n");
  std::printf("\t[-c connections]\n");
  std::printf("\t[-p port_number]\n");
  std::printf("\t[-r retries]\n");
  std::printf("\t[-t timeout_ms]\n");
  std::printf("%s", kJsonUsage);
}

}  // namespace

ibv_qp_init_attr timed_queue_pair() {
  ibv_qp_init_attr wanted = {};
  wanted.cap.max_send_wr = 1;
  wanted.cap.max_recv_wr = 1;
  wanted.cap.max_send_sge = 1;
  wanted.cap.max_recv_sge = 1;
  wanted.qp_type = IBV_QPT_RC;
  return wanted;
}

int find_timed_addresses(const TimingLine& line, bool passive, const char* what, const Output& output,
                         AddressInfo& found) {
  const int error = find_addresses(line.source, line.destination, line.port, hints(passive), found);
  const int reason = errno;
  if (error != 0) {
    tell_failure(output, verbena::format("{} error: {}", what, gai_strerror(error)),
                 error == -1 ? remedy_for_errno(reason) : "");
  }
  return error;
}

int cmtime(int argc, char** argv) {
  TimingLine line;
  const Letters letters =
      parse_letters(argc, argv,
                    {text('s', nullptr, line.destination), text('b', nullptr, line.source),
                     decimal('c', line.connections, 0, 1 << 20), text('p', nullptr, line.port),
                     decimal('r', line.retries, 0, 255), decimal('t', line.milliseconds, 0)});
  if (letters.next != Next::kGoOn) {
    print_cmtime_usage(argv[0]);
    if (letters.next == Next::kWrong) return 1;
    print_help("cmtime");
    return 0;
  }
  line.json = letters.json;
  const Channel channel = first_channel();
  if (!channel) return 1;
  if (line.destination.empty()) return run_timed_server(line, channel.get());
  return run_timed_client(line, channel.get());
}

}  // namespace verbena::rdma_core
