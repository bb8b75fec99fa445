// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

#include <infiniband/verbs.h>

namespace verbena::rdma_core {

// What the command line of a pingpong says; the defaults are those of most.
struct Settings {
  std::string server;  // empty: be one
  std::string device;  // empty: the first
  int tcp_port = 18515;
  int ib_port = 1;
  unsigned size = 4096;
  ibv_mtu mtu = IBV_MTU_1024;
  unsigned queue_pairs = 1;
  unsigned receives = 500;
  unsigned iterations = 1000;
  unsigned clients = 1;
  int service_level = 0;
  int gid_index = -1;  // below 0: none
  bool events = false;
  bool on_demand = false;
  bool implicit = false;  // of on_demand: all of the address space
  bool prefetch = false;
  bool timestamps = false;
  bool check = false;
  bool device_memory = false;
  bool new_send = false;
  bool json = false;
  bool help = false;  // has been printed; there is nothing else to do

  bool serves() const { return server.empty(); }
};

// An option that a pingpong has, and its line of the usage text.
struct ProgramOption {
  char letter;
  const char* name;
  const char* usage;
};

// What one pingpong is made of, and what it differs in from the others: a row of a table (programs.cc).
struct PingpongProgram {
  const char* name;
  const char* transport;
  ibv_qp_type type;
  bool shared_receives;
  Settings defaults;
  std::span<const ProgramOption> options;
  const char* odp_refusal;    // of a device that cannot page this transport's memory on demand
  uint32_t odp_needs;         // ibv_odp_transport_cap_bits
  bool numbered;              // complaints of queue pairs name their number: "QP[0]"
  int first_byte;             // what the buffer is filled with
  const char* gid_complaint;  // without its index
  char before_gid;            // in the line of the local address
};

extern const PingpongProgram kRcPingpong;
extern const PingpongProgram kUcPingpong;
extern const PingpongProgram kUdPingpong;
extern const PingpongProgram kSrqPingpong;
extern const PingpongProgram kXsrqPingpong;

// Reads a command line, and prints the help if that is asked for. Nothing, after the complaint and the usage
// text, if it is wrong.
std::optional<Settings> read_settings(const PingpongProgram& program, int argc, char** argv);

}  // namespace verbena::rdma_core
