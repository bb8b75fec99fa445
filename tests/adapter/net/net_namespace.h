// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace verbena::net::testing {

// A network namespace of the test's own; gone with the last thing in it.
class NetNamespace {
 public:
  NetNamespace();
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

// The calling thread is in the namespace while this lives.
class InNamespace {
 public:
  explicit InNamespace(const NetNamespace& where);
  ~InNamespace();
  InNamespace(const InNamespace&) = delete;
  InNamespace& operator=(const InNamespace&) = delete;

 private:
  UniqueFd before_;
};

// Whether this process may make namespaces.
bool can_make_namespaces();

// Runs a command line in the calling thread's namespace; throws when it fails.
void run(const std::string& command);

// Switches an offload of a network device by the kernel's name for it ("tx-udp-segmentation", "rx-gro"), in
// the calling thread's namespace.
void set_offload(const std::string& device, const std::string& feature, bool on);

// Two hosts joined by a veth pair: "veth-a" in `a` has 10.47.91.1 and fd47:91::1, "veth-b" in `b` ends in 2.
struct TwoHosts {
  explicit TwoHosts(int mtu = 9000);

  NetNamespace a;
  NetNamespace b;
};

}  // namespace verbena::net::testing
