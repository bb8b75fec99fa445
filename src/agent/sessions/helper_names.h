// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::agent {

// Program names that an agent's two helper processes send in their hello. An agent may end while it has no
// other clients than these.
inline constexpr const char* kStandbyName = "verbena-keeper";  // commands/agent/standby.h
inline constexpr const char* kMirrorName = "verbena-mirror";   // commands/agent/device_mirror.h

}  // namespace verbena::agent
