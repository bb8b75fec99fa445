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

// Verbena's libraries that replace those of rdma-core.
inline constexpr std::array<std::string_view, 5> kVerbenaLibraries = {
    "libibverbs.so.1", "librdmacm.so.1", "libibumad.so.3", "libmlx5.so.1", "libefa.so.1"};

// Checks whether a program would run on Verbena, and with which libraries, without running any of its code.
// `name` may also be a shared library. Searches for `name` in PATH if it has no '/', then in the current
// folder. Fails with ENOENT if there is no such file, and with ENOEXEC if it is neither an ELF file nor a
// script. Fails with ELOOP after 4 levels of scripts.
Result<void> look_at_program(const std::string& name, const Installation& installation, Findings& findings);

// Whether look_at_program() would find a file for `name`.
bool is_program(const std::string& name);

// Returns the libraries that `library` needs and that are neither in its folder nor found by the loader.
std::vector<std::string> missing_libraries(const std::filesystem::path& library);

}  // namespace verbena::commands::doctor
