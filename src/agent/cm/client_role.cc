// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/client_role.h"

#include <cerrno>

#include "agent/cm/refusals.h"

namespace verbena::agent {

Outcome ClientRole::check_qpn(uint32_t qpn) const {
  if (qpn > 0xffffff) return refuse(EINVAL, "no QP number");
  if (!host_.may_use_qpn(qpn)) return refuse(EPERM, "the QP is another user's");
  return {};
}

}  // namespace verbena::agent
