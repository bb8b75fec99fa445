// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/xrc_domain.h"

#include <atomic>
#include <tuple>

#include <fcntl.h>
#include <sys/stat.h>

#include "adapter/objects/software_context.h"
#include "base/failed_call.h"
#include "base/mutex_at_fork.h"

namespace verbena::adapter {

namespace {

// The engine, the file's device and inode, and the RDMA device. The engine is part of the key because a child
// after fork() has its own. Child and parent share only what the agent knows.
using FileKey = std::tuple<const engine::Engine*, dev_t, ino_t, uint32_t>;

// The domains of files that are open in this process.
struct SharedDomains {
  std::mutex mutex;
  std::map<FileKey, std::weak_ptr<XrcDomain>> domains;

  std::shared_ptr<XrcDomain> find(const FileKey& key) {
    const std::lock_guard guard(mutex);
    const auto known = domains.find(key);
    return known == domains.end() ? nullptr : known->second.lock();
  }
  // Adds `fresh`, unless another thread was quicker; returns the domain that is there now.
  std::shared_ptr<XrcDomain> add(const FileKey& key, const std::shared_ptr<XrcDomain>& fresh) {
    const std::lock_guard guard(mutex);
    if (auto theirs = domains[key].lock()) return theirs;
    std::erase_if(domains, [](const auto& entry) { return entry.second.expired(); });
    domains[key] = fresh;
    return fresh;
  }
};

// Never destroyed: threads of the application may outlive every static object.
SharedDomains& shared_domains() {
  static SharedDomains& the = *new SharedDomains;
  return the;
}

[[maybe_unused]] const int watched = lock_at_fork<[]() -> std::mutex& { return shared_domains().mutex; }>();

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// Asks the agent with no lock held, because the answer may take time.
Result<std::shared_ptr<XrcDomain>> XrcDomain::of_file(const std::shared_ptr<engine::Engine>& engine,
                                                      const File& file) {
  struct stat status;
  const int flags = ::fcntl(file.fd, F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0) return fail(EBADF);  // O_PATH gives no right to the file
  if (::fstat(file.fd, &status) != 0) return fail(errno);
  const FileKey key{engine.get(), status.st_dev, status.st_ino, file.device_index};
  if (auto known = shared_domains().find(key)) {
    if (file.exclusive)
      return fail(because(EINVAL, "oflags have O_EXCL, and the file's XRC domain is open in this process"));
    return known;
  }
  const uint64_t id = next_id();
  const auto opened = engine->open_domain(id, file);
  const bool shared = opened.has_value();
  // An agent that is too old for shared domains answers EOPNOTSUPP: then this process is alone in its domain.
  if (!shared && opened.error().code != EOPNOTSUPP) return fail(opened.error().code);
  if (!shared && !file.create) return fail(EAGAIN);
  auto fresh = std::make_shared<XrcDomain>(id, shared ? engine : nullptr);
  return shared_domains().add(key, fresh);
}

std::shared_ptr<XrcDomain> XrcDomain::anonymous() {
  return std::make_shared<XrcDomain>(next_id(), nullptr);
}

XrcDomain::~XrcDomain() {
  if (shared_by_ != nullptr) shared_by_->close_domain(id_);
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

static Result<std::shared_ptr<XrcDomain>> find_domain(const OpenDevice& device,
                                                      const ibv_xrcd_init_attr& attr) {
  const bool create = (attr.oflags & O_CREAT) != 0;
  if (attr.fd != -1) {
    return XrcDomain::of_file(device.engine(), {.fd = attr.fd,
                                                .device_index = device.index(),
                                                .create = create,
                                                .exclusive = (attr.oflags & O_EXCL) != 0});
  }
  if (!create) return fail(because(EINVAL, "fd is -1, which needs O_CREAT in oflags"));
  return XrcDomain::anonymous();
}

Result<ibv_xrcd*> SoftwareContext::open_xrcd(ibv_xrcd_init_attr* attr) {
  if (device_->is_gone()) return fail(EIO);
  constexpr uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED) return fail(EOPNOTSUPP);
  if ((attr->comp_mask & kNeeded) != kNeeded)
    return fail(because(EINVAL, "comp_mask {:#x} lacks IBV_XRCD_INIT_ATTR_FD or _OFLAGS", attr->comp_mask));
  if ((attr->oflags & ~(O_CREAT | O_EXCL)) != 0)
    return fail(because(EINVAL, "oflags {:#o} have more than O_CREAT and O_EXCL", attr->oflags));
  auto domain = find_domain(*device_, *attr);
  if (!domain) return tl::unexpected(domain.error());
  auto xrcd = std::make_unique<Xrcd>(*device_);
  xrcd->domain = std::move(*domain);
  return xrc_domains_.add(std::move(xrcd));
}

int SoftwareContext::close_xrcd(ibv_xrcd* xrcd) {
  if (Xrcd::of(xrcd).users.load() != 0)
    return because(EBUSY, "{} targets or shared receive queues use it",
                   uint32_t{Xrcd::of(xrcd).users.load()});
  xrc_domains_.destroy(Xrcd::of(xrcd));
  return 0;
}

}  // namespace verbena::adapter
