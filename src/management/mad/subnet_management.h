// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "management/mad/mad.h"
#include "management/mad/subnet.h"

namespace verbena::mad {

// Answers a subnet management packet (IBTA volume 1, 14.2) from our own adapter. It reaches its node by a
// directed route, by `lid`, or by LID first and a directed route from there. Nothing if the route leads
// nowhere, as a real fabric would not answer either. Nothing can be set. Pure.
std::optional<Mad> answer_subnet_management(Subnet& subnet, const Mad& request, uint16_t lid);

}  // namespace verbena::mad
