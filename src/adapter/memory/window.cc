// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/window.h"

#include <infiniband/verbs.h>

namespace verbena::memory {
namespace {

constexpr Access kWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr Access kWindowAccess = kWrites | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED;
// Rights of a region that mean nothing for a window, but are requested for one all the same (by pyverbs).
// Ignored, as in the kernel's rxe.
constexpr Access kMeaningless = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
constexpr uint32_t kWholeQpn = UINT32_MAX;
// Not a right, but something that users of the memory must know.
constexpr Access kPaging = IBV_ACCESS_ON_DEMAND;

bool is_window(const Region& region) {
  return region.kind == RegionKind::kWindow1 || region.kind == RegionKind::kWindow2;
}

bool is_bound(const Region& window) {
  return window.parent != nullptr;
}

// C10-73 to C10-75: the region allows binding, and writing if the window would, and contains all of the
// window.
bool may_open(const Region& region, const WindowBinding& binding) {
  if (region.kind != RegionKind::kMemory || region.pd != binding.pd) return false;
  if ((region.access & IBV_ACCESS_MW_BIND) == 0 || (region.access & IBV_ACCESS_ZERO_BASED) != 0) return false;
  if ((binding.access & kWrites) != 0 && (region.access & IBV_ACCESS_LOCAL_WRITE) == 0) return false;
  return binding.address >= region.iova && binding.address - region.iova <= region.length &&
         binding.length <= region.length - (binding.address - region.iova);
}

// Rules that depend on the window's type alone.
bool may_bind(const Region& window, const WindowBinding& binding) {
  if (window.kind == RegionKind::kWindow1) {
    return (binding.access & IBV_ACCESS_ZERO_BASED) == 0;  // o10-36.2.2
  }
  // o10-37.2.30 and .40: the window must be invalid to be bound, and binding it to nothing does not
  // invalidate it.
  return !is_bound(window) && binding.length > 0;
}

void unbind(Region& window) {
  if (!is_bound(window)) return;
  window.parent = nullptr;
  window.bound_to_region.unlink();
  window.bound_to_qp.unlink();
  window.base = nullptr;
  window.iova = window.length = 0;
  window.access = kRemoteOnly;
  window.qpn = window.qpn_mask = 0;
}

void open_window(Region& window, Region& region, const WindowBinding& binding, BoundWindows& of_qp) {
  window.base = region.at(binding.address, binding.length);
  window.iova = (binding.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : binding.address;
  window.length = binding.length;
  window.access = (binding.access & kWindowAccess) | (region.access & kPaging) | kRemoteOnly;
  window.parent = &region;
  region.windows.push_back(window);
  if (window.kind == RegionKind::kWindow2) {
    window.qpn = binding.qpn;
    window.qpn_mask = kWholeQpn;
    of_qp.push_back(window);
  }
}

}  // namespace

void make_window(Region& window, RegionKind type, PdId pd) {
  window.kind = type;
  window.pd = pd;
  window.access = kRemoteOnly;
}

bool bind_window(KeyTable& keys, const WindowBinding& binding, BoundWindows& of_qp) {
  return keys.locked([&] {
    Region* window = keys.find_identity(binding.window_key);
    if (window == nullptr || !is_window(*window) || window->pd != binding.pd) return false;
    if ((binding.access & ~(kWindowAccess | kMeaningless)) != 0 || !may_bind(*window, binding)) return false;
    Region* region = nullptr;
    if (binding.length > 0) {
      region = keys.find(binding.region_key);
      if (region == nullptr || !may_open(*region, binding)) return false;
    }
    keys.republish(*window, [&] {
      unbind(*window);
      keys.set_tag(window, static_cast<uint8_t>(binding.new_key));
      if (region != nullptr) open_window(*window, *region, binding, of_qp);
    });
    return true;
  });
}

bool invalidate_window(KeyTable& keys, uint32_t key, PdId pd, uint32_t qpn) {
  return keys.locked([&] {
    Region* window = keys.find(key);
    if (window == nullptr || window->kind != RegionKind::kWindow2) return false;  // o10-37.2.26
    if (window->pd != pd) return false;
    if (is_bound(*window) && window->qpn != qpn) return false;
    unbind_window(keys, *window);
    return true;
  });
}

void unbind_window(KeyTable& keys, Region& window) {
  keys.republish(window, [&] { unbind(window); });
}

}  // namespace verbena::memory
