// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

#include <infiniband/verbs.h>

namespace verbena::rdma_core {

// The options of a pingpong. The default values are those of most programs; sizes are in bytes.
struct Settings {
  std::string server = {};  // the client's peer; empty for the server itself
  std::string device = {};  // empty for the first device
  int tcp_port = 18515;
  int ib_port = 1;
  unsigned size = 4096;
  ibv_mtu mtu = IBV_MTU_1024;
  unsigned queue_pairs = 1;
  unsigned receives = 500;
  unsigned iterations = 1000;
  unsigned clients = 1;
  int service_level = 0;
  int gid_index = -1;  // negative if no GID is used
  bool events = false;
  bool on_demand = false;
  bool implicit = false;  // with on_demand, the region is the whole address space
  bool prefetch = false;
  bool timestamps = false;
  bool check = false;
  bool device_memory = false;
  bool new_send = false;
  bool json = false;
  bool help = false;  // help was printed; the program should exit with 0

  bool serves() const { return server.empty(); }
};

// An option of a pingpong, with its line in the usage text.
struct ProgramOption {
  char letter;
  const char* name;
  const char* usage;
};

// The properties of one of the five pingpong programs, a row of the table in settings.cc. The default values
// are those of most programs.
struct PingpongProgram {
  const char* name;
  const char* transport;
  ibv_qp_type type;
  // The queue pairs receive from one queue, and messages name them by number: "QP[0]".
  bool shared_receives = false;
  Settings defaults = {};
  std::span<const ProgramOption> options;
  const char* odp_refusal = nullptr;  // the message for devices without on-demand paging for this transport
  uint32_t odp_needs = 0;             // required bits of ibv_odp_transport_cap_bits
  int first_byte = 0x7b;              // initial value of the buffer's bytes
  const char* gid_complaint =
      "can't read sgid of index ";  // message for a wrong GID index, without the index
  char before_gid = ',';            // the character before the GID in the line of the local address
};

extern const PingpongProgram kRcPingpong;
extern const PingpongProgram kUcPingpong;
extern const PingpongProgram kUdPingpong;
extern const PingpongProgram kSrqPingpong;
extern const PingpongProgram kXsrqPingpong;

// Parses a command line, and prints the help if requested. Returns nullopt, after a message, if it is wrong.
std::optional<Settings> read_settings(const PingpongProgram& program, int argc, char** argv);

}  // namespace verbena::rdma_core
