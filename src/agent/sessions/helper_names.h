// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::agent {

// Program names that the two processes beside an agent send in their hello. Neither keeps its agent from
// ending.
inline constexpr const char* kStandbyName = "verbena-keeper";  // commands/agent/standby.h
inline constexpr const char* kMirrorName = "verbena-mirror";   // commands/agent/device_mirror.h

}  // namespace verbena::agent
