// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "commands/doctor/finding.h"
#include "commands/verbena/installation.h"

namespace verbena::commands::doctor {

// The libraries that programs ask for, and find Verbena's.
inline constexpr std::array<std::string_view, 5> kVerbenaLibraries = {
    "libibverbs.so.1", "librdmacm.so.1", "libibumad.so.3", "libmlx5.so.1", "libefa.so.1"};

// Whether a program would run on Verbena, and on which libraries; nothing of the program is run. `name` is
// looked for in PATH where it has no '/'. An error: there is no such program, or it cannot be read.
Result<void> look_at_program(const std::string& name, const Installation& installation, Findings& findings);

// Whether look_at_program() would find a file of that name.
bool is_program(const std::string& name);

// What a shared library needs and the loader does not find.
std::vector<std::string> missing_libraries(const std::filesystem::path& library);

}  // namespace verbena::commands::doctor
