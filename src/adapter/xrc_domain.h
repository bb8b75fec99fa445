// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/result.h"

namespace verbena::adapter {

struct QpCore;

// An extended connection domain: which targets may deliver to which shared receive queues (IBTA volume 1,
// annex A14). Every handle opened on the same inode of the same device shares one; a handle without a
// descriptor has one of its own. Thread-safe.
class XrcDomain {
 public:
  // The domain of a descriptor's inode, made if there is none and `create`. Errors: EBADF and others of
  // fstat(2); as the kernel answers, EAGAIN when there is none and not `create`, EINVAL when there is one and
  // `exclusive`.
  static Result<std::shared_ptr<XrcDomain>> of_file(int fd, uint32_t device_index, bool create,
                                                    bool exclusive);
  static std::shared_ptr<XrcDomain> anonymous();

  explicit XrcDomain(uint64_t id) : id_(id) {}

  uint64_t id() const { return id_; }  // never 0

  // The targets in it, for ibv_open_qp(3).
  void add_target(uint32_t qpn, const std::shared_ptr<QpCore>& core);
  void remove_target(uint32_t qpn);
  std::shared_ptr<QpCore> target(uint32_t qpn);

 private:
  const uint64_t id_;
  std::mutex mutex_;
  std::map<uint32_t, std::weak_ptr<QpCore>> targets_;
};

}  // namespace verbena::adapter
