// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "adapter/process/engine.h"
#include "base/result.h"

namespace verbena::adapter {

struct QpCore;

// An extended connection domain: which targets may deliver to which shared receive queues (IBTA volume 1,
// annex A14). Every handle opened on the same inode of the same device shares one, and so do other processes
// by the agent; a handle without a descriptor has one of its own. Thread-safe.
class XrcDomain {
 public:
  using File = control::Client::DomainFile;

  // The domain of a descriptor's inode, made if there is none and `create`. Errors: EBADF and others of
  // fstat(2), and of the agent's; as the kernel answers, EAGAIN when there is none and not `create`, EINVAL
  // when there is one and `exclusive`.
  static Result<std::shared_ptr<XrcDomain>> of_file(const std::shared_ptr<engine::Engine>& engine,
                                                    const File& file);
  static std::shared_ptr<XrcDomain> anonymous();

  // `shared_by`: through whom other processes share it; null: none do.
  XrcDomain(uint64_t id, std::shared_ptr<engine::Engine> shared_by)
      : id_(id), shared_by_(std::move(shared_by)) {}
  ~XrcDomain();
  XrcDomain(const XrcDomain&) = delete;
  XrcDomain& operator=(const XrcDomain&) = delete;

  uint64_t id() const { return id_; }  // never 0
  // Where queues of other processes are that are in it.
  transport::QueueOwners* owners() const {
    return shared_by_ != nullptr ? &shared_by_->domain_peers() : nullptr;
  }

  // The targets in it, for ibv_open_qp(3).
  void add_target(uint32_t qpn, const std::shared_ptr<QpCore>& core);
  void remove_target(uint32_t qpn);
  std::shared_ptr<QpCore> target(uint32_t qpn);

 private:
  const uint64_t id_;
  const std::shared_ptr<engine::Engine> shared_by_;
  std::mutex mutex_;
  std::map<uint32_t, std::weak_ptr<QpCore>> targets_;
};

}  // namespace verbena::adapter
