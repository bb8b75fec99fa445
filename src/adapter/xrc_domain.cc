// SPDX-License-Identifier: Apache-2.0
#include "adapter/xrc_domain.h"

#include <atomic>
#include <tuple>

#include <sys/stat.h>

namespace verbena::adapter {
namespace {

// Device and inode of the file, and which of ours.
using FileKey = std::tuple<dev_t, ino_t, uint32_t>;

struct Registry {
  std::mutex mutex;
  std::map<FileKey, std::weak_ptr<XrcDomain>> domains;
};

// Never destroyed: threads of the application may outlive every static object.
Registry& registry() {
  static Registry& the = *new Registry;
  return the;
}

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Result<std::shared_ptr<XrcDomain>> XrcDomain::of_file(int fd, uint32_t device_index, bool create,
                                                      bool exclusive) {
  struct stat file;
  if (::fstat(fd, &file) != 0) return fail(errno);
  Registry& all = registry();
  const std::lock_guard guard(all.mutex);
  std::weak_ptr<XrcDomain>& known = all.domains[{file.st_dev, file.st_ino, device_index}];
  std::shared_ptr<XrcDomain> domain = known.lock();
  if (domain != nullptr && exclusive) return fail(EINVAL);
  if (domain == nullptr) {
    if (!create) {
      all.domains.erase({file.st_dev, file.st_ino, device_index});
      return fail(EAGAIN);
    }
    domain = std::make_shared<XrcDomain>(next_id());
    known = domain;
  }
  std::erase_if(all.domains, [](const auto& entry) { return entry.second.expired(); });
  return domain;
}

std::shared_ptr<XrcDomain> XrcDomain::anonymous() {
  return std::make_shared<XrcDomain>(next_id());
}

void XrcDomain::add_target(uint32_t qpn, const std::shared_ptr<QpCore>& core) {
  const std::lock_guard guard(mutex_);
  targets_[qpn] = core;
}

void XrcDomain::remove_target(uint32_t qpn) {
  const std::lock_guard guard(mutex_);
  targets_.erase(qpn);
}

std::shared_ptr<QpCore> XrcDomain::target(uint32_t qpn) {
  const std::lock_guard guard(mutex_);
  const auto at = targets_.find(qpn);
  return at == targets_.end() ? nullptr : at->second.lock();
}

}  // namespace verbena::adapter
