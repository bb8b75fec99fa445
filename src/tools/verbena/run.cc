// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "agent_client/client.h"
#include "base/time.h"
#include "tools/verbena/commands.h"
#include "tools/verbena/help.h"
#include "tools/verbena/installation.h"
#include "tools/verbena/message.h"
#include "tools/verbena/run_environment.h"

namespace verbena::tools {
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
    "no system call then. It costs slower page faults, and at each fork() a copy (docs/one-host.md).\n"
    "\n"
    "The program runs as you, unmodified; its children inherit the libraries. Exit status: the program's;\n"
    "127 if there is no such program, 126 if it cannot be started.\n";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// What execvp() would run for `name`, or nothing.
fs::path find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  std::string path = environment("PATH");
  if (path.empty()) path = "/bin:/usr/bin";
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const fs::path candidate = fs::path(path.substr(begin, end - begin)) / name;
    if (access(candidate.c_str(), X_OK) == 0 && !fs::is_directory(candidate)) return candidate;
    begin = end + 1;
  }
  return {};
}

// The loader ignores the library path for programs that gain privilege, so they would see other libraries.
bool gains_privilege(const fs::path& program) {
  struct stat attributes {};
  return stat(program.c_str(), &attributes) == 0 && (attributes.st_mode & (S_ISUID | S_ISGID)) != 0;
}

void put_first_in_preload(const fs::path& library) {
  setenv("LD_PRELOAD", preload_with(library, environment("LD_PRELOAD")).c_str(), 1);
}

// PATH cannot say a folder with ':' in its name.
void extend_path(const fs::path& folder, std::string (*with)(const fs::path&, std::string_view)) {
  if (folder.empty() || folder.string().find(':') != std::string::npos) return;
  setenv("PATH", with(folder, environment("PATH")).c_str(), 1);
}

// False, after a message, if the libraries cannot be put in front of the system's.
bool prepare_environment(const Installation& installation, bool shared_memory) {
  if (installation.libraries.string().find_first_of(":;") != std::string::npos) {
    complain("the libraries are in '{}'; the loader cannot take a folder with ':' or ';' in its name",
             installation.libraries.string());
    return false;
  }
  if (shared_memory && installation.memory.empty()) {
    complain("no libverbena-memory.so in '{}', which --shared-memory needs", installation.libraries.string());
    return false;
  }
  setenv("LD_LIBRARY_PATH", library_path_with(installation.libraries, environment("LD_LIBRARY_PATH")).c_str(),
         1);
  extend_path(installation.commands, path_with);
  extend_path(installation.programs, path_with_last);
  if (shared_memory) put_first_in_preload(installation.memory);
  if (!installation.preload.empty()) put_first_in_preload(installation.preload);
#ifdef VERBENA_SANITIZER_RUNTIME
  put_first_in_preload(VERBENA_SANITIZER_RUNTIME);
  setenv("ASAN_OPTIONS", "detect_leaks=0", 0);  // what the program leaks is its own business
#endif
  return true;
}

// The program starts an agent itself when it needs one; starting it here shows the user what is wrong before
// a program finds "no devices". Programs that need no agent still run, so this only warns. On a busy machine
// an agent that comes, or one that is about to end, may take longer than a call waits.
void start_agent(const Installation& installation) {
  constexpr Duration kPatience = std::chrono::seconds(10);
  const auto connect = [&] {
    return agent_client::Client::connect({.start_agent = true, .agent_program = installation.agent});
  };
  const TimePoint end = MonotonicClock::now() + kPatience;
  auto client = connect();
  while (!client && client.error().code == ETIMEDOUT && MonotonicClock::now() < end) client = connect();
  if (!client) {
    complain(
        "warning: no agent can be started ({}), so programs will find no RDMA device; "
        "'verbena agent' shows why",
        std::strerror(client.error().code));
  }
}

// `file` is what is executed, and found as execvp(3) finds it; it may have another name for itself.
int exec(const std::string& file, const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(file.c_str(), arguments.data());
  const int error = errno;
  if (error == ENOENT) {
    complain("there is no program '{}'{}", command[0],
             command[0].find('/') == std::string::npos ? " in PATH" : "");
    return kNotFound;
  }
  complain("cannot run '{}': {}", command[0], std::strerror(error));
  return kNotExecutable;
}

int run(const std::optional<Installation>& installation, const std::string& file,
        const std::vector<std::string>& command, bool shared_memory) {
  if (!installation) {
    complain("no libibverbs.so.1 of Verbena's beside this program: is it copied out of its installation?");
    return kFailed;
  }
  if (!prepare_environment(*installation, shared_memory)) return kFailed;
  const fs::path program = find_program(file);
  if (!program.empty() && gains_privilege(program)) {
    complain("warning: '{}' is set-user-ID or set-group-ID; the loader keeps Verbena's libraries from it",
             program.string());
  }
  if (!program.empty()) start_agent(*installation);
  return exec(file, command);
}

}  // namespace

std::optional<int> run_own_program(int argc, const char* const* argv) {
  if (argc < 2) return std::nullopt;
  const auto installation = Installation::of_this_program();
  const fs::path file = installation ? installation->program(argv[1]) : fs::path();
  if (file.empty()) return std::nullopt;
  return run(installation, file.string(), {argv + 1, argv + argc}, false);
}

Words cut_words(int argc, const char* const* argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
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
      throw CLI::ValidationError("run", "which program? For example: verbena run ibv_devices");
    }
    status = run(Installation::of_this_program(), program[0], program, *shared_memory);
  });
}

}  // namespace verbena::tools
