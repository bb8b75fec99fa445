// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include <CLI/CLI.hpp>

#include "base/log.h"
#include "base/paths/state_directory.h"
#include "commands/doctor/elf_file.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/help.h"
#include "commands/verbena/installation.h"
#include "commands/verbena/program_file.h"
#include "commands/verbena/report.h"
#include "commands/verbena/run_environment.h"
#include "control/client/command_client.h"
#include "control/model/agent_process.h"

namespace verbena::commands {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunExamples =
    "Examples:\n"
    "  verbena run ibv_devices                  which RDMA devices a program sees\n"
    "  verbena run ib_write_bw                  a server; its client, in another terminal or on another "
    "host:\n"
    "  verbena run ib_write_bw 192.0.2.1\n"
    "  verbena run --shared-memory ib_write_lat with buffers that others on this host can map\n"
    "  verbena run -- ./my_program --help       everything after the program's name is the program's\n"
    "\n"
    "--shared-memory is for programs that use RDMA on one host: one-sided operations on what they allocate "
    "need\n"
    "no system call then. It costs slower page faults, and at each fork() a copy (" VERBENA_DOCDIR
    "/one-host.md).\n"
    "\n"
    "The program runs as you, unmodified; its children inherit the libraries. Exit status: the program's;\n"
    "127 if there is no such program, 126 if it cannot be started.\n";

void put_first_in_preload(const fs::path& library) {
  setenv("LD_PRELOAD", preload_with(library, environment_variable("LD_PRELOAD")).c_str(), 1);
}

// Changes PATH with `with`. Does nothing if `folder` contains ':', which PATH cannot express.
void extend_path(const fs::path& folder, std::string (*with)(const fs::path&, std::string_view)) {
  if (folder.empty() || folder.string().find(':') != std::string::npos) return;
  setenv("PATH", with(folder, environment_variable("PATH")).c_str(), 1);
}

// Makes AddressSanitizer accept our preload, in the program and its children. With further preloads by the
// user, their order still matters, so there the program's sanitizer runtime goes first into LD_PRELOAD.
void prepare_for_sanitizers(const doctor::ElfFile& program, const Installation& installation) {
  if (preloads_only(installation.preload, environment_variable("LD_PRELOAD"))) {
    setenv("ASAN_OPTIONS", asan_options_with_preloads(environment_variable("ASAN_OPTIONS")).c_str(), 1);
    return;
  }
  const auto runtime = std::find_if(program.needed.begin(), program.needed.end(), [](const std::string& one) {
    return sanitizer_of(one) == Sanitizer::kAddress;
  });
  if (runtime != program.needed.end()) put_first_in_preload(*runtime);
}

// Whether --shared-memory can have effect: its malloc() would conflict with a sanitizer's. Prints a warning
// if not.
bool may_have_memory(const fs::path& program, const doctor::ElfFile& elf) {
  const auto sanitizer = sanitizer_of(elf);
  if (!sanitizer || !replaces_malloc(*sanitizer)) return true;
  complain(
      "warning: '{}' is built with {}, which has a malloc() of its own, so --shared-memory has no effect",
      program.string(), name_of(*sanitizer));
  return false;
}

// Sets the loader's variables for the program. Returns false, after a message, if Verbena's libraries cannot
// come before the system's.
bool prepare_environment(const Installation& installation, const fs::path& program, bool shared_memory) {
  if (installation.libraries.string().find_first_of(":;") != std::string::npos) {
    complain("the libraries are in '{}'; the loader cannot take a folder with ':' or ';' in its name",
             installation.libraries.string());
    return false;
  }
  if (shared_memory && installation.memory.empty()) {
    complain("no libverbena-memory.so in '{}', which --shared-memory needs", installation.libraries.string());
    return false;
  }
  setenv("LD_LIBRARY_PATH",
         library_path_with(installation.libraries, environment_variable("LD_LIBRARY_PATH")).c_str(), 1);
  extend_path(installation.commands, path_with);
  extend_path(installation.programs, path_with_last);
#ifdef VERBENA_SANITIZER_RUNTIME
  put_first_in_preload(VERBENA_SANITIZER_RUNTIME);
  setenv("ASAN_OPTIONS", "detect_leaks=0", 0);  // leaks of the program are not our concern
#endif
  const doctor::ElfFile elf = doctor::read_elf_file(program).value_or(doctor::ElfFile{});
  if (elf.machine == doctor::own_elf_file().machine && !elf.is_library && elf.interpreter.empty()) {
    complain(
        "warning: '{}' is linked statically, so Verbena's libraries cannot reach it, but only what it "
        "starts; "
        "link it with libibverbs.so.1",
        program.string());
  }
  if (shared_memory && may_have_memory(program, elf)) put_first_in_preload(installation.memory);
  prepare_for_sanitizers(elf, installation);
  if (!installation.preload.empty()) put_first_in_preload(installation.preload);
  return true;
}

// Indexed by LogLevel.
constexpr const char* kLogLevels[] = {"none", "error", "warning", "info", "debug"};

// Warns once about wrong environment variables and removes them. Otherwise the program's libraries and the
// agent would each repeat the warning about VERBENA_LOG.
void look_at_settings() {
  for (const WrongSetting& wrong : wrong_settings()) {
    complain("warning: {}", wrong.what);
    if (wrong.is_ours) unsetenv(wrong.name.c_str());
  }
  if (!environment_variable("VERBENA_LOG").empty()) {
    setenv("VERBENA_LOG", kLogLevels[static_cast<size_t>(log_level())], 1);
  }
}

// Starts an agent if none runs. The program would start one itself when needed; doing so here shows errors
// before the program reports "no devices". Programs without RDMA still run, so errors are only warnings.
void start_agent(const Installation& installation) {
  const auto admin = control::Admin::connect({.start_agent = true, .agent_program = installation.agent});
  if (admin) return control::show_devices_here(installation.agent);
  const control::AdminError& error = admin.error();
  if (error.code == ETIMEDOUT) {
    complain("warning: {}; programs that use RDMA wait for it", error.text);
  } else if (const char* missing = paths::missing_system_file()) {
    complain("warning: no agent can be started, so programs will find no RDMA device: {}", missing);
  } else if (error.code == ECONNREFUSED) {
    complain(
        "warning: no agent can be started, so programs will find no RDMA device; 'verbena doctor' shows why");
  } else {
    complain("warning: {}, so programs will find no RDMA device", error.text);
  }
}

// Runs `name`, found as execvp(3) finds it, with `command` as its argument vector; command[0] may differ from
// `name`.
int run(const std::optional<Installation>& installation, const std::string& name,
        const std::vector<std::string>& command, bool shared_memory) {
  if (!installation) return complain_of_no_installation();
  look_at_settings();
  const fs::path program = find_program(name);
  if (!prepare_environment(*installation, program, shared_memory)) return kFailed;
  std::error_code ignored;
  if (fs::exists(program, ignored)) {
    if (const char* privilege = privilege_gained_by(program)) {
      complain(
          "warning: '{}' is {}, so the loader keeps Verbena's libraries from it; run a copy that is not "
          "(cp '{}' .), or as root 'verbena system on'",
          program.string(), privilege, program.string());
    }
    start_agent(*installation);
  }
  return start_program(program, command);
}

}  // namespace

std::optional<int> run_own_program(const std::vector<std::string>& words) {
  if (words.empty()) return std::nullopt;
  const auto installation = Installation::of_this_program();
  const fs::path file = installation ? installation->program(words.front()) : fs::path();
  if (file.empty()) return std::nullopt;
  return run(installation, file.string(), words, false);
}

Words cut_words(const std::vector<std::string>& words) {
  if (words.empty() || words.front() != "run") return {words, {}};
  const auto program = std::find_if(words.begin() + 1, words.end(),
                                    [](const std::string& word) { return word == "--" || word[0] != '-'; });
  const bool mark = program != words.end() && *program == "--";
  return {{words.begin(), program}, {mark ? program + 1 : program, words.end()}};
}

void add_run(CLI::App& verbena, const std::vector<std::string>& program, int& status) {
  CLI::App* command = verbena.add_subcommand("run", "Run a program with Verbena as its RDMA libraries");
  explain(*command, "verbena run [--shared-memory] [--] PROGRAM [ARGUMENT...]", kRunExamples);
  const auto shared_memory = std::make_shared<bool>(false);
  command->add_flag("--shared-memory", *shared_memory,
                    "back its large allocations by memory that other processes can map");
  command->callback([&program, &status, shared_memory] {
    if (program.empty()) {
      throw CLI::ValidationError("run", "the program is missing; for example: verbena run ibv_devices");
    }
    status = run(Installation::of_this_program(), program[0], program, *shared_memory);
  });
}

}  // namespace verbena::commands
