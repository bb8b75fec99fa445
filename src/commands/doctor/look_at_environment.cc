// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/format.h"
#include "base/log.h"
#include "base/paths/state_directory.h"
#include "commands/doctor/checks.h"
#include "commands/doctor/program.h"
#include "commands/verbena/program_file.h"
#include "commands/verbena/run_environment.h"

namespace verbena::commands::doctor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibraries = "libraries";

bool stands_in_for_ours(const fs::path& file) {
  const std::string name = file.filename();
  for (const std::string_view library : kVerbenaLibraries) {
    if (name.starts_with(library.substr(0, library.find(".so") + 3))) return true;
  }
  return false;
}

// Reports preloads that hide Verbena's libraries or do not exist. LD_PRELOAD precedes LD_LIBRARY_PATH, so
// `verbena run` cannot override it.
void look_at_preloads(const std::string& list, const std::string& where, const Installation& installation,
                      Findings& findings) {
  for (const std::string& one : split(list, ": \t")) {
    std::error_code ignored;
    if (stands_in_for_ours(one) && !is_ours(one, installation)) {
      findings.fault(kLibraries,
                     verbena::format("{} names {}, which programs get in place of Verbena's", where, one),
                     verbena::format("take it out of {}", where));
    } else if (one.find('/') != std::string::npos && !fs::exists(one, ignored)) {
      findings.cost(
          kLibraries,
          verbena::format("{} names {}, which is not there: the loader complains each time", where, one),
          verbena::format("take it out of {}", where));
    }
  }
}

void look_at_library_path(const Installation& installation, Findings& findings) {
  for (const std::string& folder : split(environment_variable("LD_LIBRARY_PATH"), ":;")) {
    std::error_code ignored;
    if (fs::equivalent(folder, installation.libraries, ignored)) return;  // later folders do not matter
    for (const std::string_view library : kVerbenaLibraries) {
      const fs::path file = fs::path(folder) / library;
      if (!fs::exists(file, ignored)) continue;
      findings.cost(
          kLibraries,
          verbena::format(
              "LD_LIBRARY_PATH leads to {}: programs that are started without 'verbena run' get that one",
              file.string()),
          "start programs by 'verbena run', which puts Verbena's in front, or take the folder out");
      return;
    }
  }
}

// Reports wrong settings, and those that are right in some cases but easily forgotten in a profile.
void look_at_settings(Findings& findings) {
  log_level();  // logs a wrong VERBENA_LOG
  for (const WrongSetting& wrong : wrong_settings()) {
    findings.cost(kLibraries, wrong.what,
                  verbena::format("correct it, or take it out: unset {}", wrong.name));
  }
  if (environment_variable("VERBENA_LOCAL") == "off") {
    findings.cost(kLibraries,
                  "VERBENA_LOCAL=off is in the environment: processes of this host go by UDP, not by memory",
                  "take it out: unset VERBENA_LOCAL");
  }
  if (const std::string folder = environment_variable("VERBENA_SYS_DIR"); !folder.empty()) {
    findings.cost(
        kLibraries,
        verbena::format("VERBENA_SYS_DIR={} is in the environment: programs look for devices there", folder),
        "take it out: unset VERBENA_SYS_DIR");
  }
}

void look_at_files(const Installation& installation, Findings& findings) {
  for (const std::string_view library : kVerbenaLibraries) {
    const fs::path file = installation.libraries / library;
    const auto needed = find_loaded_libraries(file, installation.libraries.string()).libraries;
    const auto missing = std::ranges::find(needed, "", &LoadedLibraries::Library::path);
    std::error_code ignored;
    if (!fs::exists(file, ignored)) {
      findings.fault(kLibraries, verbena::format("{} is missing in Verbena's installation", file.string()),
                     "install it again");
    } else if (missing != needed.end()) {
      findings.fault(kLibraries,
                     verbena::format("{} needs {}, which this system lacks", file.string(), missing->name),
                     "install the package that has it");
    }
  }
  if (installation.preload.empty()) {
    findings.cost(kLibraries,
                  "libverbena-sys.so is missing: programs that look for devices in /sys find none",
                  "install it again");
  }
}

}  // namespace

void look_at_environment(Findings& findings) {
  const auto installation = Installation::of_this_program();
  if (!installation && paths::missing_system_file() != nullptr) {
    findings.unseen(kLibraries, "without /proc nobody can say where Verbena's libraries are");
    return;
  }
  if (!installation) {
    findings.fault(kLibraries, "there is no libibverbs.so.1 of Verbena's beside this program",
                   "run the one in its installation");
    return;
  }
  look_at_files(*installation, findings);
  look_at_preloads(environment_variable("LD_PRELOAD"), "LD_PRELOAD", *installation, findings);
  std::ifstream file("/etc/ld.so.preload");
  for (std::string line; std::getline(file, line);) {
    look_at_preloads(line.substr(0, line.find('#')), "/etc/ld.so.preload", *installation, findings);
  }
  look_at_library_path(*installation, findings);
  look_at_settings(findings);
  if (!findings.amiss(kLibraries)) {
    findings.fine(kLibraries, verbena::format("Verbena's are whole, in {}, and nothing is in front of them",
                                              installation->libraries.string()));
  }
}

}  // namespace verbena::commands::doctor
