// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "management/mad/mad.h"
#include "management/mad/subnet.h"

namespace verbena::mad {

// Answers a Get or Set of subnet management (IBTA volume 1, 14.2) that our own adapter sent. The request
// reaches its node by a directed route, by the destination `lid`, or by LID first and a directed route from
// there. A Set gets the status for an unsupported attribute. Returns nullopt for other methods, and if the
// route leads nowhere, since a real fabric would not answer either. Pure.
std::optional<Mad> answer_subnet_management(Subnet& subnet, const Mad& request, uint16_t lid);

}  // namespace verbena::mad
