// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>

#include <unistd.h>

#include "adapter/memory/file_mapping.h"
#include "adapter/memory/guarded.h"
#include "adapter/memory/placement.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/software_context.h"
#include "base/failed_call.h"

namespace verbena::adapter {
namespace {

using Kind = Registration::Kind;

constexpr unsigned kUserAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                 IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | memory::kFlushGlobal;
constexpr unsigned kDmaBufAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kDeviceMemoryAccess = kDmaBufAccess | IBV_ACCESS_ZERO_BASED;
constexpr unsigned kWritesRemotely = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
// The offset in a dma-buf and the iova must agree in these bits, whatever the page size of this machine.
constexpr uint64_t kPageOffset = 4095;

// Whether this is implicit on-demand paging, of all addresses there are (ibv_reg_mr(3)).
bool is_implicit(const void* addr, size_t length, unsigned access) {
  return (access & IBV_ACCESS_ON_DEMAND) != 0 && addr == nullptr && length == SIZE_MAX;
}

// The user memory of a region, and the address by which requests refer to it.
struct Translation {
  void* addr;
  size_t length;
  uint64_t iova;
};

// Checks the rights that a registration asks for, as ib_check_mr_access() does: remote writes require local
// write. Optional rights, such as relaxed ordering, are ignored. Returns 0 or an errno value.
int check_access(unsigned access, unsigned known) {
  if ((access & ~(known | IBV_ACCESS_OPTIONAL_RANGE)) != 0)
    return because(EINVAL, "of access {:#x} the flags {:#x} are unknown here", access,
                   access & ~(known | IBV_ACCESS_OPTIONAL_RANGE));
  if ((access & kWritesRemotely) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0)
    return because(EINVAL, "remote writes and atomics want IBV_ACCESS_LOCAL_WRITE as well (access {:#x})",
                   access);
  return 0;
}

// Whether the address is the beginning of a page. The kernel pins pages: ib_umem_get() accepts an empty
// region within a page, and refuses one at the beginning of a page, since that has no page.
bool begins_page(const void* addr) {
  return reinterpret_cast<uintptr_t>(addr) % static_cast<uintptr_t>(::getpagesize()) == 0;
}

// Checks a registration of user memory. Pages of on-demand regions may come and go: a fault is then an error
// of the request that meets it.
Result<void> check_user_memory(const Translation& to, unsigned access) {
  if (const int error = check_access(access, kUserAccess); error != 0) return fail(error);
  const bool is_on_demand = (access & IBV_ACCESS_ON_DEMAND) != 0;
  if (to.length == 0 && (is_on_demand || begins_page(to.addr)))
    return fail(because(EINVAL, "length is 0, so that the region at {} has no page", verbena::ptr(to.addr)));
  if (is_implicit(to.addr, to.length, access)) {
    if ((access & IBV_ACCESS_HUGETLB) == 0 && to.iova == 0) return {};
    return fail(because(EINVAL, "implicit on-demand paging takes iova 0 and no IBV_ACCESS_HUGETLB"));
  }
  if (!is_on_demand) {
    // The page of an empty region is pinned as well.
    auto checked =
        memory::check_pages(to.addr, std::max<size_t>(to.length, 1), (access & IBV_ACCESS_LOCAL_WRITE) != 0);
    if (!checked) {
      because(checked.error().code, "{} bytes at {} are not all mapped{}", to.length, verbena::ptr(to.addr),
              (access & IBV_ACCESS_LOCAL_WRITE) != 0 ? " for writing" : "");
    }
    return checked;
  }
  const bool wraps = to.length - 1 > UINTPTR_MAX - reinterpret_cast<uintptr_t>(to.addr);
  if (wraps) return fail(because(EINVAL, "{} bytes at {} wrap around", to.length, verbena::ptr(to.addr)));
  return {};
}

void translate(memory::Region& region, const Translation& to, unsigned access) {
  region.base = static_cast<std::byte*>(to.addr);
  region.iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : to.iova;
  region.length = to.length;
}

uint32_t remote_key_of(const Registration& registration) {
  return registration.kind == Kind::kNull ? 0 : registration.region.key;  // ibv_alloc_null_mr(3)
}

// The values for resource tracking, by protocol::MrValue.
engine::ShownObjects::Values values_of(const Registration& registration) {
  const memory::Region& region = registration.region;
  return {registration.pd->shown.number(), region.key, remote_key_of(registration), region.length,
          region.iova};
}

Kind kind_of(unsigned access) {
  return (access & IBV_ACCESS_ON_DEMAND) != 0 ? Kind::kOnDemand : Kind::kUser;
}

// The changes that ibv_rereg_mr() makes to a registration.
struct Change {
  Change(const memory::Region& region, int flags, void* addr, size_t length, int access)
      : moves((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0),
        to(moves ? Translation{addr, length, reinterpret_cast<uintptr_t>(addr)}
                 : Translation{region.base, region.length, region.iova}),
        rights((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? static_cast<unsigned>(access) : region.access) {}

  bool moves;
  Translation to;
  unsigned rights;
};

// Checks changed and unchanged properties together: new rights must be possible for the old memory. Returns 0
// or an errno value.
int check_rereg(const Registration& registration, const Change& change) {
  const memory::Region& region = registration.region;
  if (registration.kind != Kind::kDmaBuf) {
    const auto checked = check_user_memory(change.to, change.rights);
    return checked ? 0 : checked.error().code;
  }
  if (const int error = check_access(change.rights, kDmaBufAccess); error != 0) return error;
  const bool more = (change.rights & ~region.access & IBV_ACCESS_LOCAL_WRITE) != 0;
  return more && !memory::check_pages(region.base, region.length, true) ? EACCES : 0;
}

}  // namespace

ibv_mr* SoftwareContext::add_mr(std::unique_ptr<Mr> mr, std::shared_ptr<Registration> registration,
                                ibv_pd* pd, void* addr, uint32_t handle) {
  const memory::Region& region = registration->region;
  mr->pd = pd;
  mr->addr = addr;
  mr->length = region.length;
  mr->handle = handle;
  mr->lkey = region.key;
  mr->rkey = remote_key_of(*registration);
  mr->registration = std::move(registration);
  return regions_.add(std::move(mr));
}

Result<ibv_mr*> SoftwareContext::enter_mr(std::shared_ptr<Registration> registration, ibv_pd* pd,
                                          void* addr) {
  auto mr = regions_.make(*device_);
  if (!mr) return tl::unexpected(mr.error());
  if (auto entered = registration->enter(); !entered) return tl::unexpected(entered.error());
  registration->shown = device_->show(protocol::ObjectKind::kMr, values_of(*registration));
  return add_mr(std::move(*mr), std::move(registration), pd, addr, device_->next_handle());
}

Result<ibv_mr*> SoftwareContext::reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                        unsigned access) {
  if (device_->is_gone()) return fail(EIO);
  const Translation to{addr, length, iova};
  if (auto checked = check_user_memory(to, access); !checked) return tl::unexpected(checked.error());
  // Once more, because the application may have installed handlers of its own since.
  memory::install_fault_guard();
  auto registration = std::make_shared<Registration>(device_->keys(), kind_of(access), Pd::of(pd).state);
  translate(registration->region, to, access);
  registration->region.access = access;
  return enter_mr(std::move(registration), pd, addr);
}

// Keeps the region's keys, as rxe does and mlx5 where it can.
int SoftwareContext::rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access) {
  Registration& registration = *Mr::of(mr).registration;
  memory::Region& region = registration.region;
  if (device_->is_gone()) return EIO;
  if (flags == 0) return because(EINVAL, "flags are 0");
  if (Mr::of(mr).imported) return because(EINVAL, "the region is imported (ibv_import_mr)");
  const bool changes_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
  const Change change(region, flags, addr, length, access);
  if (registration.kind == Kind::kNull || registration.kind == Kind::kDeviceMemory)
    return because(EINVAL, "null regions and regions of device memory cannot be changed");
  if (registration.kind == Kind::kDmaBuf && change.moves)
    return because(EOPNOTSUPP, "the region of a dma-buf cannot be moved");
  if (changes_pd && !device_->made(pd)) return because(EINVAL, "pd is none of this ibv_context");
  if (const int error = check_rereg(registration, change); error != 0) return error;

  memory::install_fault_guard();
  const int error = device_->keys().locked([&] {
    if (!region.windows.empty())
      return because(EBUSY, "memory windows are bound to it");  // IBTA volume 1, 11.2.8.5
    device_->keys().republish(region, [&] {
      if (change.moves) translate(region, change.to, change.rights);
      region.access = change.rights;
      if (registration.kind != Kind::kDmaBuf) registration.kind = kind_of(change.rights);
      if (changes_pd) {
        ++Pd::of(pd).users;
        --registration.pd->users;
        registration.pd = Pd::of(pd).state;
        region.pd = registration.pd->id;
      }
    });
    return 0;
  });
  if (error != 0) return error;
  registration.shown.set_all(values_of(registration));
  // When await_readers() returns, no thread uses the old translation or rights.
  device_->keys().await_readers();
  return 0;
}

Result<ibv_mr*> SoftwareContext::reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                               int fd, int access) {
  const auto rights = static_cast<unsigned>(access);
  if (const int error = check_access(rights, kDmaBufAccess); error != 0) return fail(error);
  if (((offset ^ iova) & kPageOffset) != 0)
    return fail(because(EINVAL, "offset {:#x} and iova {:#x} differ within a page", offset, iova));
  auto mapping = memory::map_dma_buf(fd, offset, length, (rights & IBV_ACCESS_LOCAL_WRITE) != 0);
  if (!mapping) return tl::unexpected(mapping.error());
  memory::install_fault_guard();
  auto registration = std::make_shared<Registration>(device_->keys(), Kind::kDmaBuf, Pd::of(pd).state);
  registration->dma_buf = std::move(*mapping);
  translate(registration->region, {registration->dma_buf.data(), length, iova}, rights);
  registration->region.access = rights;
  return enter_mr(std::move(registration), pd, reinterpret_cast<void*>(offset));
}

Result<ibv_mr*> SoftwareContext::reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length,
                                           unsigned access) {
  const std::shared_ptr<DeviceMemory>& memory = Dm::of(dm).memory;
  if ((access & IBV_ACCESS_ZERO_BASED) == 0)
    return fail(because(EINVAL, "device memory is registered with IBV_ACCESS_ZERO_BASED only"));
  if (const int error = check_access(access, kDeviceMemoryAccess); error != 0) return fail(error);
  const uint64_t size = memory->allocation.length;
  if (offset > size || length > size - offset)
    return fail(
        because(EINVAL, "the device memory has {} bytes, and not {} from {} on", size, length, offset));
  memory::install_fault_guard();
  auto registration = std::make_shared<Registration>(device_->keys(), Kind::kDeviceMemory, Pd::of(pd).state);
  registration->device_memory = memory;
  memory::Region& region = registration->region;
  region.base = memory->mapping.data() + offset;
  region.length = length;
  region.access = access;
  return enter_mr(std::move(registration), pd, nullptr);
}

Result<ibv_mr*> SoftwareContext::alloc_null_mr(ibv_pd* pd) {
  auto registration = std::make_shared<Registration>(device_->keys(), Kind::kNull, Pd::of(pd).state);
  if (auto made = memory::make_null(registration->region, Pd::of(pd).id); !made)
    return tl::unexpected(made.error());
  return enter_mr(std::move(registration), pd, nullptr);
}

std::string SoftwareContext::regions_of(const ibv_pd* pd) {
  std::array<uint32_t, 3> first{};  // not a string: the table's lock is held
  size_t count = 0;
  regions_.for_each([&](const Mr& mr) {
    if (mr.pd != pd) return;
    if (count++ < first.size()) first[count - 1] = mr.lkey;
  });
  std::string names;
  for (size_t i = 0; i < std::min(count, first.size()); ++i)
    names += verbena::format("{}MR with lkey {:#x}", i > 0 ? ", " : "", first[i]);
  return count > first.size() ? names + ", ..." : names;
}

int SoftwareContext::dereg_mr(ibv_mr* mr) {
  if (const int error = Mr::of(mr).registration->leave(); error != 0) return error;
  regions_.destroy(Mr::of(mr));
  return 0;
}

void SoftwareContext::fill_memory_attributes(ibv_device_attr_ex& attr) const {
  constexpr uint32_t kMessages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  constexpr uint32_t kFlush = 1 << 6, kAtomicWrite = 1 << 7;  // names of later headers
  constexpr uint32_t kReliable = kMessages | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                                 IBV_ODP_SUPPORT_ATOMIC | kFlush | kAtomicWrite;
  attr.orig_attr.max_mr = kMaxMr;
  attr.orig_attr.max_mw = kMaxMw;
  attr.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  attr.odp_caps.per_transport_caps.rc_odp_caps = kReliable;
  attr.odp_caps.per_transport_caps.uc_odp_caps = kMessages | IBV_ODP_SUPPORT_WRITE;
  attr.odp_caps.per_transport_caps.ud_odp_caps = kMessages;
  attr.xrc_odp_caps = kReliable;
  attr.max_dm_size = device_->command_file().device_memory()->capacity();
}

}  // namespace verbena::adapter
