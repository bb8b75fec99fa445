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

// An extended reliable connection (XRC) domain: its XRC target QPs may deliver to its shared receive queues
// (IBTA volume 1, annex A14). All handles that were opened on the same inode for the same device share one
// domain, in this process and, through the agent, in other processes. A handle without a file descriptor has
// a domain of its own. Thread-safe.
class XrcDomain {
 public:
  using File = control::Client::DomainFile;

  // Returns the domain of the inode of `file.fd`. Creates a domain if there is none and `file.create` is set.
  // As in the kernel, returns EAGAIN if there is none and `file.create` is not set, and EINVAL if there is
  // one and `file.exclusive` is set. Other errors: EBADF and others of fstat(2); those of the agent.
  static Result<std::shared_ptr<XrcDomain>> of_file(const std::shared_ptr<engine::Engine>& engine,
                                                    const File& file);
  // Returns a new domain for a handle without a file descriptor.
  static std::shared_ptr<XrcDomain> anonymous();

  // `shared_by` is the engine through which other processes share the domain, or null if none does.
  XrcDomain(uint64_t id, std::shared_ptr<engine::Engine> shared_by)
      : id_(id), shared_by_(std::move(shared_by)) {}
  ~XrcDomain();
  XrcDomain(const XrcDomain&) = delete;
  XrcDomain& operator=(const XrcDomain&) = delete;

  uint64_t id() const { return id_; }  // never 0
  // Returns the object that forwards requests to the domain's queues in other processes, or null if the
  // domain is not shared.
  transport::QueueOwners* owners() const {
    return shared_by_ != nullptr ? &shared_by_->domain_peers() : nullptr;
  }

  // Add, remove and find the domain's targets of this process, by QP number, for ibv_open_qp(3). target()
  // returns null if there is none.
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
