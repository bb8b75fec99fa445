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
  uint32_t mtu = 0;  // path MTU in bytes
};

// Resolves the path of UD packets from a local address to a remote one through the connection manager. Calls
// `answer` at most once, in the service's thread, with the path or an error. Destroying the query cancels it.
// The service's thread must destroy a query only through Service::retire().
class PathQuery final : public CmHandler {
 public:
  using Answer = std::function<void(Result<UdPath>)>;

  // Starts a query. If start() returns an error, `answer` is not called.
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
