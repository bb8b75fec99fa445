// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>

namespace verbena::sysfs {

// Open, read and close a directory as opendir(3), readdir(3) and closedir(3) do, with the agent's entries
// included. glob(3) gets these functions as callbacks.
DIR* open_shown_directory(const char* path);
dirent* read_shown_directory(DIR* directory);
void close_shown_directory(DIR* directory);

}  // namespace verbena::sysfs
