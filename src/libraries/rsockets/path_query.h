// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "base/result.h"
#include "libraries/rsockets/address.h"
#include "libraries/rsockets/service.h"

namespace verbena::rsockets {

// The path that UD packets take to an address.
struct UdPath {
  ibv_ah_attr attributes{};
  uint32_t mtu = 0;  // bytes
};

// Resolves the path from a local address to a remote one through the connection manager. Calls the answer
// exactly once, in the service's thread. The query may be dropped before or after that; in the service's
// thread only with Service::retire().
class PathQuery final : public CmHandler {
 public:
  using Answer = std::function<void(Result<UdPath>)>;

  static Result<std::shared_ptr<PathQuery>> start(Service& service, const Address& from, const Address& to,
                                                  Answer answer);
  ~PathQuery() override;
  PathQuery(const PathQuery&) = delete;
  PathQuery& operator=(const PathQuery&) = delete;

 private:
  explicit PathQuery(Answer answer) : answer_(std::move(answer)) {}
  void on_cm_event(const rdma_cm_event& event) override;
  Result<UdPath> path() const;

  Answer answer_;
  rdma_cm_id* id_ = nullptr;
};

}  // namespace verbena::rsockets
