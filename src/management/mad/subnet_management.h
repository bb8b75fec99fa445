// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "management/mad/mad.h"
#include "management/mad/subnet.h"

namespace verbena::mad {

// What the fabric answers to a subnet management packet (IBTA volume 1, 14.2) that our own adapter sends: by
// a directed route, or to the node with `lid`; or by LID first and from there on by a directed route.
// Nothing, where it leads nowhere: then there is no answer on a real fabric either. Nothing can be set. Pure.
std::optional<Mad> answer_subnet_management(Subnet& subnet, const Mad& request, uint16_t lid);

}  // namespace verbena::mad
