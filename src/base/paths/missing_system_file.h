// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::paths {

// An error text if a system file that Verbena needs cannot be opened, as in a bare chroot: names the file,
// the reason and the fix. nullptr if all are there.
const char* missing_system_file();

}  // namespace verbena::paths
