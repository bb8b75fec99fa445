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

// Whose ports they are. One that has gone is in nobody's way, and hears of nothing, though what it held is
// given back only little by little.
struct PortOwner {
  bool has_gone = false;
};

// Who may hold a port: an identifier as its port space sees it.
struct PortBinding {
  CmAddress source{};       // with the port, once it has one
  CmAddress destination{};  // family 0: none yet
  bool reuse_address = false;
  bool own_family_only = false;
  bool listening = false;
  uid_t user = 0;
  const PortOwner* owner = nullptr;  // none: it stays until it is released
  bool is_counted = false;           // the port is in the user's share for this one's sake; PortSpace's
};

// net.ipv4.ip_local_port_range.
struct PortRange {
  uint16_t first = 32768;
  uint16_t last = 60999;
};

// The ports of one RDMA port space, and who holds them. Pure. Rules and errors are those of the kernel's
// rdma_cm: several may have a port when all of them said so (RDMA_OPTION_ID_REUSEADDR), or when their
// addresses or families keep them apart; one that listens must be alone with what it listens to.
//
// Of the ephemeral ports each user gets a share (base/quota.h): who took them all would leave nobody else a
// port to connect from.
class PortSpace {
 public:
  // So many may have one port.
  static constexpr size_t kMaxHolders = 8192;

  // `own`: the agent's own user, who like root may take all.
  explicit PortSpace(uid_t own = 0) : shares_({.all = 0, .reserve = 0}, own) {}

  // Errors as rdma_bind_addr(3) has them: EADDRINUSE for the same address, EADDRNOTAVAIL where one of the two
  // names no device (is_any_address()), or the port is an ephemeral one and the user has its share of them.
  // REQUIRES: holder.source is set, its port is not 0; it holds none
  Result<void> bind(PortBinding& holder, PortRange ephemeral = {});
  // The same for a holder that a former agent gave this port to, maybe by bind_any(): others may have it too,
  // as long as all four addresses and ports tell their connections apart.
  Result<void> resume(PortBinding& holder, PortRange ephemeral = {});
  // Finds a port that tells this one's connection from all others. EADDRNOTAVAIL: none is left.
  Result<void> bind_any(PortBinding& holder, PortRange range, Random& random);
  // Gives up sharing, as one that listens must. REQUIRES: bound
  Result<void> claim(PortBinding& holder) const;
  // REQUIRES: bound
  void release(PortBinding& holder);

  // Who listens where a request for `destination` (with its port) arrives; the most exact one. A listener on
  // a loopback address hears of this host's own requests only, whichever link they come by; the kernel's
  // hears of other hosts' too, which no program that binds to 127.0.0.1 wants.
  enum class Origin : uint8_t { kThisHost, kElsewhere };
  PortBinding* find_listener(const CmAddress& destination, Origin origin) const;
  // Whether any holder for which `counts` is true listens on the port.
  bool has_listener(uint16_t port, const std::function<bool(const PortBinding&)>& counts) const;

 private:
  using Holders = std::vector<PortBinding*>;

  static Result<void> check(const Holders& holders, const PortBinding& holder, bool reuse_address);
  static bool is_unique(const Holders& holders, const PortBinding& holder);
  // Whether the user may hold another port.
  bool allows_more(const PortBinding& holder, PortRange ephemeral);
  static bool holds(const Holders& holders, uid_t user);
  static bool is_full(const Holders& holders);
  void add(Holders& holders, PortBinding& holder, PortRange ephemeral);

  Quota shares_;
  std::unordered_map<uint16_t, Holders> ports_;
  uint16_t last_ = 0;  // given by bind_any()
};

}  // namespace verbena::agent
