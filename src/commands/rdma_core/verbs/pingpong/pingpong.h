// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <infiniband/verbs.h>

#include "commands/rdma_core/common/output.h"

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

// The properties of one of the five pingpong programs, a row of the table in settings.cc. The default values
// are those of most programs.
struct PingpongProgram {
  const char* name;
  const char* transport;
  ibv_qp_type type;
  // The queue pairs share a receive queue, and error messages name a queue pair by its number: "QP[0]".
  bool shared_receives = false;
  Settings defaults = {};
  unsigned bit;                       // the program's bit in ProgramOption::programs (settings.cc)
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

// Parses a command line, and prints the help if requested. If the command line is wrong, prints a message and
// returns nullopt.
std::optional<Settings> read_settings(const PingpongProgram& program, int argc, char** argv);

// Statistics of the time between successive received messages, in cycles of the device's clock.
class ReceiveClock {
 public:
  // `mask` has the valid bits of the clock (ibv_device_attr_ex::completion_timestamp_mask).
  explicit ReceiveClock(uint64_t mask) : mask_(mask) {}

  // Adds a received message. The first message only begins the first interval.
  void received(uint64_t timestamp);

  uint64_t count() const { return count_; }
  uint64_t most() const { return max_; }
  uint64_t least() const { return least_; }
  double average() const { return static_cast<double>(total_) / static_cast<double>(count_); }

 private:
  uint64_t mask_;
  std::optional<uint64_t> previous_;
  uint64_t count_ = 0;
  uint64_t max_ = 0;
  uint64_t least_ = UINT64_MAX;
  uint64_t total_ = 0;
};

// The results of a pingpong: messages of all clients, in both directions.
struct Figures {
  unsigned long long bytes;
  double seconds;
  double megabits;  // per second
  double microseconds_each;
};
// Returns the results of all clients, which took `took` together, and adds them to the JSON object.
Figures add_figures(const Settings& settings, std::chrono::duration<double> took, Output& output);

// Prints two lines of results, and three more if `clock` is not null. Adds the results to the JSON object.
void report(const Settings& settings, std::chrono::duration<double> took, const ReceiveClock* clock,
            Output& output);

// Runs a pingpong and returns the exit status. The two ends exchange their queue pairs' addresses over TCP;
// then each queue pair sends a message for each one received. On an error, prints a text and throws a
// Failure.
int run_pingpong(const PingpongProgram& program, int argc, char** argv);

// Runs a pingpong over XRC between a server and `Settings::clients` clients. The server sends the messages
// for a client's shared receive queue through the queue pairs of all clients in turn. This works if all
// clients run on one host, where they share an XRC domain.
void play_over_xrc(const PingpongProgram& program, const Settings& settings, ibv_device* device,
                   Output& output);

}  // namespace verbena::rdma_core
