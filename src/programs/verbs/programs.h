// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::programs {

// The programs, each by its name: what main() calls, and what it answers is the exit status.
int ibv_devices(int argc, char** argv);

}  // namespace verbena::programs
