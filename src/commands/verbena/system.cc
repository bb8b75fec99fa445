// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <CLI/CLI.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "base/format.h"
#include "commands/doctor/command_output.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/help.h"
#include "commands/verbena/installation.h"
#include "commands/verbena/report.h"

namespace verbena::commands {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSystemExamples =
    "While it is on, every program on this machine finds Verbena's libraries without 'verbena run', also "
    "those that\n"
    "are set-user-ID. What 'verbena run' does beyond that is missing: programs that look for a device in\n"
    "/sys/class/infiniband or /dev/infiniband before they ask libibverbs find none. It is off after "
    "installation.\n"
    "All files of the installation and all folders above them must be root's, and writable for root alone.\n"
    "\n"
    "Examples:\n"
    "  sudo verbena system on\n"
    "  verbena system status                    exit status 0: on, 1: off\n"
    "  sudo verbena system off\n";

// The loader's configuration. Its file name sorts first: files are read in the order of their names, and the
// loader's cache prefers earlier folders.
constexpr const char* kFile = "/etc/ld.so.conf.d/00-verbena.conf";

bool is_on() {
  std::error_code ignored;
  return fs::exists(kFile, ignored);
}

int tell_loader() {
  const auto ran = doctor::run_command({"ldconfig"}, std::chrono::minutes(1));
  if (ran && ran->status == 0) return kDone;
  return complain("ldconfig failed: {}", ran ? ran->errors : "it is not there");
}

bool is_root() {
  if (::geteuid() == 0) return true;
  complain("only root may change what every program loads: sudo verbena system on|off");
  return false;
}

int switch_on() {
  if (!is_root()) return kFailed;
  const auto installation = Installation::of_this_program();
  if (!installation) return complain_of_no_installation();
  if (const auto found = find_changeable_file(*installation)) {
    return complain(
        "{}. Or install Verbena where only root can write, as every program of root's would load it",
        found->why());
  }
  ::umask(022);  // nobody else may add folders to root's loader
  std::ofstream file(kFile, std::ios::trunc);
  file << "# Written by 'verbena system on'; 'verbena system off' removes it.\n"
       << installation->libraries.string() << "\n";
  file.close();
  ::chmod(kFile, 0644);
  if (!file) return complain("cannot write {}: {}", kFile, std::strerror(errno));
  return tell_loader();
}

int switch_off() {
  if (!is_root()) return kFailed;
  std::error_code error;
  const bool removed = fs::remove(kFile, error);
  if (error) return complain("cannot remove {}: {}", kFile, error.message());
  return removed ? tell_loader() : kDone;
}

int show() {
  if (!is_on()) {
    verbena::print("off: programs find Verbena's libraries under 'verbena run'\n");
    return kFailed;
  }
  verbena::print(
      "on: every program finds Verbena's libraries; only under 'verbena run' are devices shown in /sys and "
      "/dev\n");
  return kDone;
}

void add(CLI::App& system, const char* name, const char* what, int (*act)(), int& status) {
  CLI::App* command = system.add_subcommand(name, what);
  explain(*command, verbena::format("verbena system {}", name), "");
  command->callback([act, &status] { status = act(); });
}

}  // namespace

void add_system(CLI::App& verbena, int& status) {
  CLI::App* command =
      verbena.add_subcommand("system", "Have every program find Verbena's libraries, without 'verbena run'");
  explain(*command, "verbena system on|off|status", kSystemExamples);
  command->require_subcommand(1);
  add(*command, "on", "From now on (root)", switch_on, status);
  add(*command, "off", "No more (root)", switch_off, status);
  add(*command, "status", "Say which", show, status);
}

}  // namespace verbena::commands
