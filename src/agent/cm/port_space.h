// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "agent/cm/address.h"
#include "base/quota.h"
#include "base/random.h"
#include "base/result.h"

namespace verbena::agent {

// The owner of ports. Once the owner has gone, its ports conflict with no others and get no requests,
// although they are released only later, in steps.
struct PortOwner {
  bool has_gone = false;
};

// A port's holder, as its port space sees it: an identifier.
struct PortBinding {
  CmAddress source{};       // with the port, once assigned
  CmAddress destination{};  // family 0: none yet
  bool reuse_address = false;
  bool own_family_only = false;
  bool listening = false;
  uid_t user = 0;
  const PortOwner* owner = nullptr;  // nullptr: stays until it is released
  bool is_counted = false;           // set by PortSpace: this holder's port is counted in the user's share
};

// net.ipv4.ip_local_port_range.
struct PortRange {
  uint16_t first = 32768;
  uint16_t last = 60999;
};

// The ports of one RDMA port space and their holders. Pure. Rules and errors are those of the kernel's
// rdma_cm. Several holders may share a port if all have set RDMA_OPTION_ID_REUSEADDR, or if their addresses
// or families differ. A listener must be the only holder for its addresses.
//
// Each user gets a share of the ephemeral ports (base/quota.h), so that no user can take all and leave none
// to others.
class PortSpace {
 public:
  // Maximum number of holders of one port.
  static constexpr size_t kMaxHolders = 8192;

  // `own`: the agent's own user, which like root may take all ports.
  explicit PortSpace(uid_t own = 0) : shares_({.all = 0, .reserve = 0}, own) {}

  // Binds the holder to the port of holder.source. Errors as in rdma_bind_addr(3): EADDRINUSE for the same
  // address. EADDRNOTAVAIL if one of the two addresses names no device (is_any_address()), or the user has
  // its share of ephemeral ports. REQUIRES: holder.source is set with a port other than 0; the holder has no
  // port
  Result<void> bind(PortBinding& holder, PortRange ephemeral = {});
  // Like bind(), for a port that a former agent assigned, maybe by bind_any(). Others may have the port, too,
  // as long as their connections differ in an address or a port.
  Result<void> resume(PortBinding& holder, PortRange ephemeral = {});
  // Binds to a port that distinguishes the holder's connection from all others. EADDRNOTAVAIL: none is left.
  Result<void> bind_any(PortBinding& holder, PortRange range, Random& random);
  // Ends sharing, as a listener must. Errors as bind(). REQUIRES: the holder is bound
  Result<void> claim(PortBinding& holder) const;
  // REQUIRES: the holder is bound
  void release(PortBinding& holder);

  // Returns the best matching listener for a request to `destination` (address and port). A listener on a
  // loopback address only gets requests of this host, by any link. The kernel also gives it requests of other
  // hosts, which no program that binds to 127.0.0.1 wants.
  enum class Origin : uint8_t { kThisHost, kElsewhere };
  PortBinding* find_listener(const CmAddress& destination, Origin origin) const;
  // Whether any holder for which `counts` is true listens on the port.
  bool has_listener(uint16_t port, const std::function<bool(const PortBinding&)>& counts) const;

 private:
  using Holders = std::vector<PortBinding*>;

  static Result<void> check(const Holders& holders, const PortBinding& holder, bool reuse_address);
  static bool is_unique(const Holders& holders, const PortBinding& holder);
  // Whether the user may hold another ephemeral port.
  bool allows_more(const PortBinding& holder, PortRange ephemeral);
  static bool holds(const Holders& holders, uid_t user);
  static bool is_full(const Holders& holders);
  void add(Holders& holders, PortBinding& holder, PortRange ephemeral);

  Quota shares_;
  std::unordered_map<uint16_t, Holders> ports_;
  uint16_t last_ = 0;  // latest port that bind_any() assigned
};

}  // namespace verbena::agent
