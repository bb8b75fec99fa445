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
#include "base/time.h"

namespace verbena::agent {

// The client that owns ports. Once has_gone is true, the client's ports conflict with no others and get no
// requests, although they are released only later, in steps (GoneClients).
struct PortOwner {
  bool has_gone = false;
};

// The holder of a port, as PortSpace sees it: an identifier, or a claim of a former agent's client (Claims).
struct PortBinding {
  CmAddress source{};       // port 0 until a port is assigned
  CmAddress destination{};  // family 0: none yet
  bool reuse_address = false;
  bool own_family_only = false;
  bool listening = false;  // set by PortSpace
  uid_t user = 0;
  const PortOwner* owner = nullptr;  // nullptr for a claim, which has no client
  bool is_counted = false;           // set by PortSpace: this holder's port is counted in the user's share
};

// Returns whether the connections of two holders of one port may be the same: no address or port differs.
bool meet(const PortBinding& a, const PortBinding& b);

// A range of ephemeral ports, including both ends (net.ipv4.ip_local_port_range).
struct PortRange {
  uint16_t first = 32768;
  uint16_t last = 60999;
};

// Assigns the ports of one RDMA port space to holders. Pure. Rules and errors are those of the kernel's
// rdma_cm. Several holders may share a port if all have set RDMA_OPTION_ID_REUSEADDR, or if their addresses
// or families differ. A listener must be the only holder for its addresses.
//
// Each user except root and the agent's own gets a share of the ephemeral ports (base/quota.h), so that no
// user can take all and leave none to others.
class PortSpace {
 public:
  // Maximum number of holders of one port.
  static constexpr size_t kMaxHolders = 8192;

  // `own`: the agent's own user, which like root may take all ports.
  explicit PortSpace(uid_t own = 0) : shares_({.all = 0, .reserve = 0}, own) {}

  // Binds the holder to the port in holder.source. Fails with EADDRINUSE if another holder has the port at
  // the same address. Fails with EADDRNOTAVAIL if another holder has the port and one of the two addresses
  // names no device (is_any_address()). Fails with EADDRNOTAVAIL, too, if the port has kMaxHolders or the
  // user's share of ephemeral ports is used up. REQUIRES: holder.source has a port other than 0; the holder
  // has no port
  Result<void> bind(PortBinding& holder, PortRange ephemeral = {});
  // Like bind(), for a port that a former agent assigned, maybe by bind_any(). Unlike bind(), allows other
  // holders of the port, as long as their connections differ in an address or a port. Beside other holders,
  // kGranted asks no share: a former agent has counted the port already.
  enum class Share : uint8_t { kIsAsked, kGranted };
  Result<void> resume(PortBinding& holder, PortRange ephemeral = {}, Share share = Share::kIsAsked);
  // Sets a random port of `range` in holder.source and binds the holder to it. Holders may share the port if
  // their connections differ in an address or a port. Fails with EADDRNOTAVAIL if no port is left.
  Result<void> bind_any(PortBinding& holder, PortRange range, Random& random);
  // Makes the holder a listener, and the only holder of its port and address: sets reuse_address to false.
  // Fails like bind() if other holders share the port and address. REQUIRES: the holder is bound
  Result<void> listen(PortBinding& holder);
  // Makes the holder no listener any more. The holder stays bound. REQUIRES: the holder is bound
  void stop_listening(PortBinding& holder);
  // Releases the holder's port, and stops listening. REQUIRES: the holder is bound
  void release(PortBinding& holder);

  // The host from which a request comes: this one or another.
  enum class Origin : uint8_t { kThisHost, kElsewhere };
  // Returns the best matching listener for a request to `destination` (address and port), or nullptr. A
  // listener on a loopback address gets only requests of this host, over any link. The kernel also passes
  // requests of other hosts to such a listener, but no program that binds to 127.0.0.1 wants them.
  PortBinding* find_listener(const CmAddress& destination, Origin origin) const;
  // Returns whether counts() is true for any listener on the port. Looks only at listeners, as
  // find_listener() does. A port has at most one listener for each address, but may have thousands of other
  // holders.
  bool has_listener(uint16_t port, const std::function<bool(const PortBinding&)>& counts) const;

 private:
  using Holders = std::vector<PortBinding*>;
  struct Port {
    Holders holders;
    Holders listeners;  // those of `holders` that listen
  };

  static Result<void> check(const Holders& holders, const PortBinding& holder, bool reuse_address);
  static bool is_unique(const Holders& holders, const PortBinding& holder);
  // Returns whether the user may hold another ephemeral port.
  bool allows_more(const PortBinding& holder, PortRange ephemeral);
  // Returns whether the user may hold the port of `holder`, which has these other holders (nullptr: none).
  bool allows_port(const Holders* holders, const PortBinding& holder, PortRange ephemeral);
  static bool holds(const Holders& holders, uid_t user);
  static bool is_full(const Holders& holders);
  void add(Holders& holders, PortBinding& holder, PortRange ephemeral);

  Quota shares_;
  const Holders* holders_of(uint16_t port) const;

  std::unordered_map<uint16_t, Port> ports_;
  uint16_t last_ = 0;  // latest port that bind_any() assigned; the next call tries it last
};

// The network namespace's settings for ports.
struct PortLimits {
  PortRange ephemeral{};  // net.ipv4.ip_local_port_range
  uint16_t first_unprivileged =
      1024;  // net.ipv4.ip_unprivileged_port_start: unprivileged programs start here
  // net.ipv6.bindv6only: the IPv6 wildcard excludes IPv4. RDMA_OPTION_ID_AFONLY overrides it.
  bool ipv6_only = false;
};

// Reads PortLimits from /proc/sys. Reads them again when they are more than a second old, because they may
// change. Keeps the former value of a file that cannot be read.
class PortLimitsReader {
 public:
  const PortLimits& read();

 private:
  TimePoint read_at_{};
  PortLimits limits_;
};

}  // namespace verbena::agent
