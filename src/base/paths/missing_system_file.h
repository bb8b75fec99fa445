// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::paths {

// Names a file that every Linux system has, that Verbena needs and that cannot be opened here, as in a bare
// chroot, with the reason and what to do. nullptr: all are there.
const char* missing_system_file();

}  // namespace verbena::paths
