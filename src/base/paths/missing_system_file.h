// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::paths {

// Returns an error text if /proc is not mounted or /dev/null cannot be opened, as in a bare chroot. The text
// names the file, its use and the command that fixes the problem. Returns nullptr if both are there.
const char* missing_system_file();

}  // namespace verbena::paths
