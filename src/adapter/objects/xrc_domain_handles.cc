// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/xrc_domain_handles.h"

#include <fcntl.h>

#include "base/failed_call.h"

namespace verbena::adapter {

Result<std::shared_ptr<XrcDomain>> XrcDomainHandles::find_domain(const ibv_xrcd_init_attr& attr) const {
  const bool create = (attr.oflags & O_CREAT) != 0;
  if (attr.fd != -1) {
    return XrcDomain::of_file(device_.engine(), {.fd = attr.fd,
                                                 .device_index = device_.index(),
                                                 .create = create,
                                                 .exclusive = (attr.oflags & O_EXCL) != 0});
  }
  if (!create) return fail(because(EINVAL, "fd is -1, which needs O_CREAT in oflags"));
  return XrcDomain::anonymous();
}

Result<ibv_xrcd*> XrcDomainHandles::open(const ibv_xrcd_init_attr& attr) {
  if (device_.is_gone()) return fail(EIO);
  constexpr uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (attr.comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED) return fail(EOPNOTSUPP);
  if ((attr.comp_mask & kNeeded) != kNeeded)
    return fail(because(EINVAL, "comp_mask {:#x} lacks IBV_XRCD_INIT_ATTR_FD or _OFLAGS", attr.comp_mask));
  if ((attr.oflags & ~(O_CREAT | O_EXCL)) != 0)
    return fail(because(EINVAL, "oflags {:#o} have more than O_CREAT and O_EXCL", attr.oflags));
  auto domain = find_domain(attr);
  if (!domain) return tl::unexpected(domain.error());
  auto xrcd = std::make_unique<Xrcd>();
  xrcd->context = device_.context();
  xrcd->domain = std::move(*domain);
  return table_.add(std::move(xrcd));
}

int XrcDomainHandles::close(ibv_xrcd* xrcd) {
  if (Xrcd::of(xrcd).users.load() != 0)
    return because(EBUSY, "{} targets or shared receive queues use it",
                   uint32_t{Xrcd::of(xrcd).users.load()});
  table_.destroy(Xrcd::of(xrcd));
  return 0;
}

}  // namespace verbena::adapter
