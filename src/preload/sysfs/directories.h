// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>

namespace verbena::sysfs {

// This library's own versions, for functions of the C library that take callbacks.
DIR* open_shown_directory(const char* path);
dirent* read_shown_directory(DIR* directory);
void close_shown_directory(DIR* directory);

}  // namespace verbena::sysfs
