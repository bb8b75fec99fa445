// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include "commands/rdma_core/common/handles.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {

using Channel = Handle<rdma_event_channel, rdma_destroy_event_channel>;
using Event = Handle<rdma_cm_event, rdma_ack_cm_event>;
using Id = Handle<rdma_cm_id, rdma_destroy_id>;
using Endpoint = Handle<rdma_cm_id, rdma_destroy_ep>;
using AddressInfo = Handle<rdma_addrinfo, rdma_freeaddrinfo>;

// Owns the queue pair that rdma_create_qp() attached to this id, but not the id.
using QueuePairOfId = Handle<rdma_cm_id, rdma_destroy_qp>;

// Creates an event channel. This is a program's first call to librdmacm, so it also reports that there is no
// device. On failure reports the error and returns null with errno set.
Channel first_channel();

// Measures the seconds since its construction.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point began_ = Clock::now();
};

// Prints one message on standard error, with the reason, if a program waits for more than 10 seconds.
class Patience {
 public:
  // `words` returns the reason of the wait, for the message.
  explicit Patience(std::function<std::string()> words) : words_(std::move(words)) {}

  // Returns the timeout for poll(2) in milliseconds: 10 seconds, or -1 once the message is printed.
  int milliseconds() const { return said_ ? -1 : kMilliseconds; }
  // Prints the message. Call it when poll(2) has timed out.
  void say();

 private:
  static constexpr int kMilliseconds = 10000;
  std::function<std::string()> words_;
  bool said_ = false;
};

// Wait for the next event of a channel and return it. Return null, with errno set, after an error. If the
// wait exceeds 10 seconds, the function with `patience` prints the message of `patience`.
Event next_event(rdma_event_channel* channel);
Event next_event(rdma_event_channel* channel, Patience& patience);

// Returns an event that is already pending on the channel, or null if there is none. Never blocks.
Event event_at_hand(rdma_event_channel* channel);

// Returns the likely reason and the remedy for an event of failure, or an empty string for other events.
const char* remedy_for(rdma_cm_event_type type);

// Returns the likely reason and the remedy for an errno of librdmacm, or an empty string for other errnos.
const char* remedy_for_errno(int error);

// Reports a failed call as `sentence`, the text of errno and the remedy. Returns -1.
int failed(const std::string& sentence);
// Reports a failed call as failed() does, and throws a Failure with status -1.
[[noreturn]] void fail_of_call(const std::string& sentence);

// Reports a failure that rdma-core's program reports on standard output. With --json, prints the sentence on
// standard error instead, since standard output is for the JSON object alone.
void tell_failure(const Output& output, const std::string& sentence, const std::string& remedy = {});
// Reports a failure as tell_failure() does, and throws a Failure with `status`.
[[noreturn]] void fail(const Output& output, int status, const std::string& sentence,
                       const std::string& remedy = {});

// Timeout of rdma_resolve_addr() and rdma_resolve_route(), as in rdma-core's programs.
inline constexpr int kResolveMilliseconds = 2000;

// The ends of a connection, as the user names them on the command line. An address is empty if the user gave
// none. `port` is then the program's default, such as 7471.
struct Ends {
  std::string source;
  std::string destination;
  std::string port;
};

// Calls rdma_getaddrinfo() for the ends of a connection. With RAI_PASSIVE in `hints`, returns the address to
// listen on, `source`. Without RAI_PASSIVE, returns the addresses of a connection from `source` to
// `destination`. On failure reports "WHAT: REASON" and a remedy, and throws a Failure whose status is the
// error of rdma_getaddrinfo().
AddressInfo find_addresses(const Ends& ends, const rdma_addrinfo& hints, const std::string& what,
                           const Output& output);

// Finds the first address of a host by name or number. Returns 0 or an error for gai_strerror(3).
int find_host(const std::string& name, sockaddr_storage& address);

// Formats an address and its port: "10.0.0.1:7471" or "[fd00::1]:7471". Other families give an empty string.
std::string shown(const sockaddr* address);

// Returns the device and the addresses of an id, and the number of its queue pair, for the JSON object.
nlohmann::ordered_json described(rdma_cm_id* id, const ibv_qp* queue_pair);

// Sets `hints` by the value `word` of option -f. The beginning of the word counts, in upper or lower case.
// With "ip", hosts must be numeric addresses. With "gid", they must be GIDs (AF_IB). "name" changes nothing.
// Warns of other words.
void take_format(const char* word, rdma_addrinfo& hints);

}  // namespace verbena::rdma_core
