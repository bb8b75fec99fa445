// SPDX-License-Identifier: Apache-2.0
// The objects of ibv_alloc_dm(3). The rules are those of the kernel's uverbs and of mlx5, down to the
// granularity of copies, so that a program that works here works everywhere.
#include <algorithm>
#include <cstring>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapter/memory/file_mapping.h"
#include "adapter/memory/guarded.h"
#include "adapter/memory/key_table.h"
#include "adapter/memory/region.h"
#include "adapter/memory/window.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/objects.h"
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

bool is_known(ibv_advise_mr_advice advice) {
  return advice == IBV_ADVISE_MR_ADVICE_PREFETCH || advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE ||
         advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
}

// The memory that the advice is about; null when it exceeds the region.
struct Range {
  std::byte* at = nullptr;
  uint64_t bytes = 0;
};

// Makes the checks of the kernel's mlx5, the only driver with this call. REQUIRES: the table's lock is held
Result<Range> find_range(const memory::KeyTable& keys, memory::PdId pd, const ibv_sge& sge, bool writable) {
  const memory::Region* region = keys.find(sge.lkey);
  if (region == nullptr || (region->access & IBV_ACCESS_ON_DEMAND) == 0) return fail(ENOENT);
  if (region->pd != pd) return fail(EPERM);
  if (writable && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) return fail(EPERM);
  return Range{region->at(sge.addr, sge.length), sge.length};
}

// Starts to read pages from files or swap, without waiting.
void prefetch_later(const Range& range) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(range.at);
  const uintptr_t from = begin & ~(page - 1);
  if (range.bytes == 0 || range.bytes > UINTPTR_MAX - page - begin) return;
  ::madvise(reinterpret_cast<void*>(from), begin + range.bytes - from, MADV_WILLNEED);
}

constexpr uint64_t kGranularity = 4;
constexpr uint32_t kMaxAlignment = 12;  // log2: every allocation begins on a page

int check_copy(const DeviceMemory& memory, uint64_t offset, size_t length) {
  const uint64_t size = memory.allocation.length;
  if (offset > size || length > size - offset)
    return because(EFAULT, "{} bytes at offset {} are not within the device memory, which has {}", length,
                   offset, size);
  if (offset % kGranularity != 0 || length % kGranularity != 0)
    return because(EINVAL, "offset {} or length {} is no multiple of {}", offset, length, kGranularity);
  return 0;
}

int refused(const char* call, int error) {
  say_call_failed(call, error);
  return error;
}

int copy_to_dm(ibv_dm* dm, uint64_t offset, const void* from, size_t length) {
  const DeviceMemory& memory = *Dm::of(dm).memory;
  if (const int error = check_copy(memory, offset, length); error != 0)
    return refused("ibv_memcpy_to_dm", error);
  if (length > 0) std::memcpy(memory.mapping.data() + offset, from, length);
  return 0;
}

int copy_from_dm(void* to, ibv_dm* dm, uint64_t offset, size_t length) {
  const DeviceMemory& memory = *Dm::of(dm).memory;
  if (const int error = check_copy(memory, offset, length); error != 0)
    return refused("ibv_memcpy_from_dm", error);
  if (length > 0) std::memcpy(to, memory.mapping.data() + offset, length);
  return 0;
}

constexpr uint8_t kMaxHint = 3;        // two bits (PCIe, TLP processing hints)
constexpr uint8_t kMaxMemoryType = 1;  // IBV_TPH_MEM_TYPE_VM, IBV_TPH_MEM_TYPE_PM
constexpr uint32_t kMaxProcessors = 1 << 16;

bool may_run_on(uint32_t processor) {
  if (processor >= kMaxProcessors) return false;
  std::vector<cpu_set_t> set(kMaxProcessors / CPU_SETSIZE);
  const size_t bytes = set.size() * sizeof(cpu_set_t);
  return ::sched_getaffinity(0, bytes, set.data()) == 0 && CPU_ISSET_S(processor, bytes, set.data());
}

// Checks the attributes as the kernel and mlx5 do.
int check_handle(const provider::DmaHandleInitAttr& attr) {
  using namespace provider;
  constexpr uint32_t kTag = kDmaHandleCpu | kDmaHandleMemory;
  if ((attr.comp_mask & ~(kTag | kDmaHandleHint)) != 0)
    return because(EOPNOTSUPP, "comp_mask {:#x} has unknown bits", attr.comp_mask);
  if ((attr.comp_mask & kDmaHandleHint) == 0)
    return because(EINVAL, "comp_mask {:#x} lacks the processing hint", attr.comp_mask);
  if (attr.ph > kMaxHint) return because(EINVAL, "ph {} exceeds {}", attr.ph, kMaxHint);
  if ((attr.comp_mask & kTag) == 0) return 0;
  if ((attr.comp_mask & kTag) != kTag)
    return because(EINVAL, "comp_mask {:#x} has one of cpu_id and tph_mem_type", attr.comp_mask);
  if (attr.tph_mem_type > kMaxMemoryType)
    return because(EINVAL, "tph_mem_type {} exceeds {}", attr.tph_mem_type, kMaxMemoryType);
  if (!may_run_on(attr.cpu_id)) return because(EPERM, "this thread may not run on cpu_id {}", attr.cpu_id);
  return 0;
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
  const auto key = [&](const Mr& mr) { return mr.pd == pd ? std::optional(mr.lkey) : std::nullopt; };
  return regions_.list_some(key, [](uint32_t lkey) { return verbena::format("MR with lkey {:#x}", lkey); });
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

// Every access goes through the process's page tables: pages
// that are present for the process are present for the device. So prefetching is the kernel's own.
int SoftwareContext::advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags,
                               std::span<const ibv_sge> list) {
  if ((flags & ~uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0)
    return because(EINVAL, "flags {:#x} have bits that are unknown here", flags);
  if (list.empty()) return because(EINVAL, "num_sge is 0");
  if (!is_known(advice)) return EOPNOTSUPP;
  const bool writable = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  const bool now = (flags & IBV_ADVISE_MR_FLAG_FLUSH) != 0;
  for (const ibv_sge& sge : list) {
    memory::KeyTable& keys = device_->keys();
    const auto range = keys.locked([&] { return find_range(keys, Pd::of(pd).id, sge, writable); });
    if (!range) return range.error().code;
    // Advice that need not be followed at once cannot fail.
    if (range->at == nullptr) {
      if (now) return EFAULT;
    } else if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
      continue;
    } else if (!now) {
      prefetch_later(*range);
    } else if (auto present = memory::check_pages(range->at, range->bytes, writable); !present) {
      return present.error().code;
    }
  }
  return 0;
}

Result<ibv_mw*> SoftwareContext::alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
    return fail(because(EINVAL, "there is no memory window of type {}", static_cast<int>(type)));
  auto made = windows_.make(*device_);
  if (!made) return tl::unexpected(made.error());
  std::unique_ptr<Mw> mw = std::move(*made);
  const auto kind = type == IBV_MW_TYPE_1 ? memory::RegionKind::kWindow1 : memory::RegionKind::kWindow2;
  memory::make_window(mw->window, kind, Pd::of(pd).id);
  const auto key = device_->keys().insert(&mw->window);
  if (!key) return tl::unexpected(key.error());
  mw->pd = pd;
  mw->rkey = *key;
  mw->handle = device_->next_handle();
  mw->type = type;
  mw->domain = &Pd::of(pd);
  ++Pd::of(pd).users;
  return windows_.add(std::move(mw));
}

void Mw::retire() {
  memory::KeyTable& keys = owner.keys();
  keys.locked([&] {
    memory::unbind_window(keys, window);
    keys.unlink(window);
  });
  keys.await_readers();
}

int SoftwareContext::dealloc_mw(ibv_mw* mw) {
  Mw::of(mw).retire();
  --Mw::of(mw).domain->users;
  windows_.destroy(Mw::of(mw));
  return 0;
}

Registration::Registration(memory::KeyTable& keys, Kind what, std::shared_ptr<PdState> domain)
    : kind(what), pd(std::move(domain)), keys_(keys) {
  region.pd = pd->id;
}

// Runs with the last context that has the registration. A window of another context may still be bound to it.
Registration::~Registration() {
  memory::unbind_all(keys_, region.windows);
  leave();
}

Result<void> Registration::enter() {
  if (const auto key = keys_.insert(&region); !key) return tl::unexpected(key.error());
  keys_.locked([&] { entered_ = true; });
  ++pd->users;
  if (device_memory) ++device_memory->users;
  return {};
}

// When leave() returns, no shard is in the middle of a copy by this region, and none begins another.
int Registration::leave() {
  const int error = keys_.locked([&] {
    if (!entered_) return ENOENT;
    if (!region.windows.empty()) return because(EBUSY, "memory windows are bound to it");
    keys_.unlink(region);
    entered_ = false;
    return 0;
  });
  if (error != 0) return error;
  shown = {};
  keys_.await_readers();
  --pd->users;
  if (device_memory) --device_memory->users;
  return 0;
}

ibv_dm* SoftwareContext::add_dm(std::shared_ptr<DeviceMemory> memory, uint32_t handle) {
  auto dm = std::make_unique<Dm>(*device_);
  dm->memcpy_to_dm = copy_to_dm;
  dm->memcpy_from_dm = copy_from_dm;
  dm->comp_mask = IBV_DM_MASK_HANDLE;
  dm->handle = handle;
  dm->memory = std::move(memory);
  return device_memories_.add(std::move(dm));
}

Result<ibv_dm*> SoftwareContext::alloc_dm(ibv_alloc_dm_attr* attr) {
  const std::shared_ptr<DeviceMemoryFile>& file = device_->command_file().device_memory();
  if (attr->comp_mask != 0) return fail(because(EINVAL, "comp_mask {:#x} is not 0", attr->comp_mask));
  if (attr->length == 0) return fail(because(EINVAL, "length is 0"));
  if (attr->log_align_req > kMaxAlignment)
    return fail(because(EINVAL, "log_align_req {} exceeds {}", attr->log_align_req, kMaxAlignment));
  if (attr->length > file->capacity()) {
    return fail(file->capacity() == 0
                    ? EOPNOTSUPP
                    : because(EINVAL, "length {} exceeds max_dm_size {}", attr->length, file->capacity()));
  }
  const uint32_t handle = device_->next_handle();
  const auto allocation = file->allocate(attr->length, handle);
  if (!allocation) return tl::unexpected(allocation.error());
  auto mapping = file->map(*allocation);
  if (!mapping) {
    file->free(*allocation);
    return fail(ENOMEM);
  }
  return add_dm(std::make_shared<DeviceMemory>(file, *allocation, std::move(*mapping), true), handle);
}

int SoftwareContext::free_dm(ibv_dm* dm) {
  DeviceMemory& memory = *Dm::of(dm).memory;
  if (memory.users.load() != 0)
    return because(EBUSY, "{} memory regions are of it", uint32_t{memory.users.load()});
  if (!memory.free()) return ENOENT;
  device_memories_.destroy(Dm::of(dm));
  return 0;
}

// Imports from another process use the table in the file.
Result<ibv_dm*> SoftwareContext::import_foreign_dm(uint32_t handle) {
  const auto& file = device_->command_file().device_memory();
  const auto allocation = file->find(handle);
  if (!allocation) return tl::unexpected(allocation.error());
  auto mapping = file->map(*allocation);
  if (!mapping) return tl::unexpected(mapping.error());
  return add_dm(std::make_shared<DeviceMemory>(file, *allocation, std::move(*mapping), false), handle);
}

Result<provider::DmaHandle*> SoftwareContext::alloc_dmah(const provider::DmaHandleInitAttr& attr) {
  if (device_->is_gone()) return fail(EIO);
  if (const int error = check_handle(attr); error != 0) return fail(error);
  return dma_handles_.add(std::make_unique<Dmah>(*device_));
}

int SoftwareContext::dealloc_dmah(provider::DmaHandle* handle) {
  Dmah& dmah = Dmah::of(handle);
  if (const long users = dmah.uses.count(); users != 0)
    return because(EBUSY, "{} memory regions use it", users);
  dma_handles_.destroy(dmah);
  return 0;
}

}  // namespace verbena::adapter
