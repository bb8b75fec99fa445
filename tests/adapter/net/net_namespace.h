// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/resource.h>

#include "base/unique_fd.h"

namespace verbena::net::testing {

// A new network namespace. It exists until the last thread, descriptor or device in it is gone.
class NetNamespace {
 public:
  NetNamespace();
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

// Moves the calling thread into the namespace for the lifetime of this object.
class InNamespace {
 public:
  explicit InNamespace(const NetNamespace& where);
  ~InNamespace();
  InNamespace(const InNamespace&) = delete;
  InNamespace& operator=(const InNamespace&) = delete;

 private:
  UniqueFd before_;
};

// Whether this process may create network namespaces.
bool can_make_namespaces();

// Runs a command line in the calling thread's namespace. Throws if it fails.
void run(const std::string& command);

// Switches an offload of a network device in the calling thread's namespace, by the kernel's name such as
// "tx-udp-segmentation" or "rx-gro".
void set_offload(const std::string& device, const std::string& feature, bool on);

// Holds UDP ports of the calling thread's namespace, like a program of another user that leaves none of them
// to others. Skips ports that are in use already. Raises the limit of descriptors meanwhile.
class TakenPorts {
 public:
  static TakenPorts of_roce() { return {0xc000, 0xffff}; }
  // Takes all ephemeral ports, and leaves the namespace only one of these.
  static TakenPorts ephemeral();
  ~TakenPorts();
  TakenPorts(const TakenPorts&) = delete;
  TakenPorts& operator=(const TakenPorts&) = delete;

 private:
  TakenPorts(uint16_t first, uint16_t last);

  rlimit before_{};
  std::vector<UniqueFd> sockets_;
};

// Two hosts connected by a veth pair: "veth-a" in `a` has 10.47.91.1 and fd47:91::1, "veth-b" in `b` has
// 10.47.91.2 and fd47:91::2.
struct TwoHosts {
  explicit TwoHosts(int mtu = 9000);

  NetNamespace a;
  NetNamespace b;
};

}  // namespace verbena::net::testing
