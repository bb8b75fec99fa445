// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>
#include <tuple>

#include <fcntl.h>
#include <sys/stat.h>

#include "adapter/objects/found_route.h"
#include "adapter/objects/software_context.h"
#include "base/failed_call.h"
#include "base/mutex_at_fork.h"

namespace verbena::adapter {

Result<ibv_td*> SoftwareContext::alloc_td(ibv_td_init_attr* attr) {
  if (attr->comp_mask != 0) return fail(because(EINVAL, "comp_mask {:#x} is not 0", attr->comp_mask));
  return threads_.add(std::make_unique<Td>(*device_));
}

int SoftwareContext::dealloc_td(ibv_td* td) {
  if (Td::of(td).users.load() != 0)
    return because(EBUSY, "{} parent domains use it", uint32_t{Td::of(td).users.load()});
  threads_.destroy(Td::of(td));
  return 0;
}

namespace {

// Unique in the process, because regions and QPs of all contexts share one engine.
memory::PdId next_pd_id() {
  static std::atomic<memory::PdId> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

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

Result<ibv_pd*> SoftwareContext::alloc_pd() {
  if (device_->is_gone()) return fail(EIO);
  auto state = std::make_shared<PdState>();
  state->id = next_pd_id();
  state->shown = device_->show(protocol::ObjectKind::kPd, {device_->context_number()});
  state->users.show_in(state->shown, protocol::kPdUsers);
  auto pd = domains_.make(*device_, std::move(state));
  if (!pd) return tl::unexpected(pd.error());
  (*pd)->handle = device_->next_handle();
  return domains_.add(std::move(*pd));
}

int SoftwareContext::dealloc_pd(ibv_pd* abi_pd) {
  Pd& pd = Pd::of(abi_pd);
  if (pd.users.load() != 0) {
    because(EBUSY, "{} regions, windows, queue pairs, shared receive queues or addresses use it",
            pd.users.load());
    if (log_level() < LogLevel::kError) return EBUSY;
    const std::string regions = regions_of(abi_pd), qps = queue_pairs_.users_of(&pd);
    return say_busy(abi_pd, regions + (regions.empty() || qps.empty() ? "" : ", ") + qps);
  }
  if (pd.parent_of != nullptr) --pd.parent_of->users;
  if (pd.thread != nullptr) --pd.thread->users;
  domains_.destroy(pd);
  return 0;
}

Result<ibv_pd*> SoftwareContext::alloc_parent_domain(ibv_parent_domain_init_attr* attr) {
  // IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC allows memory that a confidential guest shares
  // with its host. Only a device with IBV_DEVICE_CC_DMA_BOUNCE needs it. Other devices, like this one, use
  // plain memory.
  constexpr uint32_t kAllowUnprotected = 1 << 2;
  constexpr uint32_t kUnderstood =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT | kAllowUnprotected;
  if (!device_->made(attr->pd)) return fail(because(EINVAL, "pd is null, or none of this ibv_context"));
  if ((attr->comp_mask & ~kUnderstood) != 0)
    return fail(because(EOPNOTSUPP, "comp_mask {:#x}: bits {:#x} are unknown", attr->comp_mask,
                        attr->comp_mask & ~kUnderstood));
  if (attr->td != nullptr && !device_->made(attr->td))
    return fail(because(EINVAL, "td is none of this ibv_context"));
  const bool allocates = (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
  if (allocates && (attr->alloc == nullptr || attr->free == nullptr))
    return fail(because(EINVAL, "alloc or free is null, and IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS is set"));

  Pd& real = Pd::of(attr->pd);
  auto state = std::make_shared<PdState>();
  state->id = real.id;
  auto made = domains_.make(*device_, std::move(state));
  if (!made) return tl::unexpected(made.error());
  std::unique_ptr<Pd> pd = std::move(*made);
  pd->parent_of = &real;
  if (allocates) {
    const bool has_context = (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0;
    pd->memory = std::make_unique<CustomMemory>(pd.get(), attr->alloc, attr->free,
                                                has_context ? attr->pd_context : nullptr);
  }
  if (attr->td != nullptr) {
    pd->thread = &Td::of(attr->td);
    ++pd->thread->users;
  }
  ++real.users;
  pd->handle = real.handle;
  return domains_.add(std::move(pd));
}

Result<ibv_ah*> SoftwareContext::create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  if (device_->is_gone()) return fail(EIO);
  auto path = device_->resolve(*attr);
  if (!path) return tl::unexpected(path.error());
  // The kernel's rdma_create_user_ah() checks the route, too.
  const auto checked = device_->engine()->home().routes().check(*path, neighbour_patience(*path));
  if (!checked) return tl::unexpected(checked.error());
  auto ah = address_handles_.make(*device_);
  if (!ah) return tl::unexpected(ah.error());
  (*ah)->pd = pd;
  (*ah)->handle = device_->next_handle();
  (*ah)->path = *path;
  (*ah)->domain = &Pd::of(pd);
  ++Pd::of(pd).users;
  return address_handles_.add(std::move(*ah));
}

bool SoftwareContext::search_route(const ibv_ah_attr& attr) {
  const auto path = device_->resolve(attr);
  if (!path) return true;
  constexpr Duration kSearchOnly{1};
  const auto checked = device_->engine()->home().routes().check(*path, kSearchOnly);
  if (!checked && checked.error().code == ETIMEDOUT) return false;
  set_found_route(*path);
  return true;
}

int SoftwareContext::destroy_ah(ibv_ah* ah) {
  --Ah::of(ah).domain->users;
  address_handles_.destroy(Ah::of(ah));
  return 0;
}

// Writes the MAC address of the device's own netdev to `mac`, and 0xffff (no VLAN) to `vlan`, which may be
// null. The adapter uses neither value: packets leave by UDP sockets, for which the kernel resolves
// addresses.
int SoftwareContext::resolve_eth_l2_from_gid(ibv_ah_attr* attr, uint8_t mac[6], uint16_t* vlan) {
  if (auto path = device_->resolve(*attr); !path) return path.error().code;
  const auto now = device_->link();
  if (now == nullptr) return ENODEV;
  std::memcpy(mac, now->mac.data(), 6);
  if (vlan != nullptr) *vlan = 0xffff;
  return 0;
}

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
