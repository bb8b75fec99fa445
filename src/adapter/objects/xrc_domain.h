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

// An extended connection domain: its targets may deliver to its shared receive queues (IBTA volume 1, annex
// A14). All handles opened on the same inode of the same device share one domain, in this process and,
// through the agent, in others. A handle without a descriptor has a domain of its own. Thread-safe.
class XrcDomain {
 public:
  using File = control::Client::DomainFile;

  // Returns the domain of a descriptor's inode; creates one if there is none and `file.create` is set.
  // Errors: EBADF and others of fstat(2); those of the agent. As the kernel answers, EAGAIN when there is
  // none and `create` is not set, and EINVAL when there is one and `exclusive` is set.
  static Result<std::shared_ptr<XrcDomain>> of_file(const std::shared_ptr<engine::Engine>& engine,
                                                    const File& file);
  static std::shared_ptr<XrcDomain> anonymous();

  // `shared_by`: the engine through which other processes share the domain; null: they do not.
  XrcDomain(uint64_t id, std::shared_ptr<engine::Engine> shared_by)
      : id_(id), shared_by_(std::move(shared_by)) {}
  ~XrcDomain();
  XrcDomain(const XrcDomain&) = delete;
  XrcDomain& operator=(const XrcDomain&) = delete;

  uint64_t id() const { return id_; }  // never 0
  // Finds the domain's queues in other processes; null: the domain is not shared.
  transport::QueueOwners* owners() const {
    return shared_by_ != nullptr ? &shared_by_->domain_peers() : nullptr;
  }

  // The targets in the domain, for ibv_open_qp(3).
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
