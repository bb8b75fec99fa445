// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/program.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <sstream>

#include "base/format.h"
#include "tools/doctor/command_output.h"
#include "tools/doctor/elf_file.h"
#include "tools/doctor/variable.h"
#include "tools/verbena/program_file.h"
#include "tools/verbena/run_environment.h"
#include "tools/verbena/sanitizers.h"

namespace verbena::tools::doctor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "program";
constexpr Duration kLoaderPatience = std::chrono::seconds(10);
constexpr int kMostInterpreters = 4;

// A program, or else a library of this folder.
fs::path find_file(const std::string& name) {
  fs::path program = find_program(name);
  std::error_code ignored;
  if (program.empty() && fs::is_regular_file(name, ignored)) program = name;
  return program;
}

// ---- what the loader finds

struct Loaded {
  struct Library {
    std::string name;
    std::string path;  // empty: not found
  };
  std::vector<Library> libraries;
  int status = 0;         // of the loader
  std::string complaint;  // of the loader, such as a version of symbols that a library lacks
};

// "	libibverbs.so.1 => /lib/.../libibverbs.so.1 (0x...)"; those without an arrow are the loader's own.
std::optional<Loaded::Library> library_of(const std::string& line) {
  const size_t arrow = line.find(" => ");
  const size_t begin = line.find_first_not_of(" \t");
  if (arrow == std::string::npos || begin >= arrow) return std::nullopt;
  std::string path = line.substr(arrow + 4);
  path = path.substr(0, path.find(" (0x"));
  if (path.starts_with("not found")) path.clear();
  return Loaded::Library{line.substr(begin, arrow - begin), path};
}

// Asks the loader as ldd(1) does, which runs nothing of the file. It is ours, not one that the file names.
std::optional<Loaded> ask_loader(const fs::path& file, std::vector<std::string> environment) {
  const auto own = read_elf_file("/proc/self/exe");
  if (!own || own->interpreter.empty()) return std::nullopt;
  environment.push_back("LD_TRACE_LOADED_OBJECTS=1");
  const auto ran = run_command({own->interpreter, fs::absolute(file).string()}, kLoaderPatience, environment);
  if (!ran || ran->timed_out) return std::nullopt;
  Loaded loaded;
  std::istringstream lines(ran->out);
  for (std::string line; std::getline(lines, line);) {
    if (auto library = library_of(line)) loaded.libraries.push_back(std::move(*library));
  }
  loaded.status = ran->status;
  loaded.complaint = ran->errors.substr(0, ran->errors.find('\n'));
  return loaded;
}

// As `verbena run` has it. The preload is left out: it is not looked for by name.
std::vector<std::string> run_environment(const Installation& installation) {
  return {"LD_LIBRARY_PATH=" + library_path_with(installation.libraries, variable("LD_LIBRARY_PATH"))};
}

// ---- what keeps the loader from ours

void look_at_privileges(const fs::path& file, Findings& findings) {
  const char* kind = privilege_gained_by(file);
  if (kind == nullptr) return;
  findings.fault(
      kProgram,
      verbena::format("{} is {}: the loader keeps Verbena's libraries from it", file.string(), kind),
      "run a copy without (cp PROGRAM .), started with what it needs, as by 'setpriv "
      "--ambient-caps'; or 'verbena "
      "system on'");
}

// `verbena run` has AddressSanitizer accept its preload (sanitizers.h).
void look_at_sanitizer(const fs::path& program, const ElfFile& file, const Installation& installation,
                       Findings& findings) {
  const auto sanitizer = sanitizer_of(file);
  if (!sanitizer) return;
  const std::string what = verbena::format("{} is built with {}", program.string(), name_of(*sanitizer));
  if (*sanitizer == Sanitizer::kAddress && refuses_preloads(variable("ASAN_OPTIONS"))) {
    findings.fault(kProgram,
                   what +
                       ", and ASAN_OPTIONS has verify_asan_link_order=1: it ends when it finds that "
                       "libverbena-sys.so comes before its runtime",
                   "take verify_asan_link_order out of ASAN_OPTIONS");
  } else if (*sanitizer == Sanitizer::kThread) {
    findings.fine(
        kProgram,
        verbena::format("{}: TSAN_OPTIONS=suppressions={} keeps out reports about Verbena's libraries", what,
                        (installation.libraries / "tsan.supp").string()));
  } else if (replaces_malloc(*sanitizer)) {
    findings.fine(kProgram, what + ", which works under 'verbena run', but without --shared-memory");
  } else {
    findings.fine(kProgram, what + ", which works under 'verbena run'");
  }
}

bool is_ours(const std::string& path, const Installation& installation) {
  std::error_code ignored;
  return fs::equivalent(fs::path(path).parent_path(), installation.libraries, ignored);
}

bool stands_for(const std::string& name) {
  return std::find(kVerbenaLibraries.begin(), kVerbenaLibraries.end(), name) != kVerbenaLibraries.end();
}

std::string reason_for(const std::string& path, const ElfFile& file) {
  if (!file.rpath.empty()) return verbena::format("its RPATH, {}, goes before Verbena's folder", file.rpath);
  return verbena::format("something it is linked with leads to {}", path);
}

void look_at_libraries(const fs::path& program, const ElfFile& file, const Installation& installation,
                       Findings& findings) {
  const auto loaded = ask_loader(program, run_environment(installation));
  if (!loaded) return findings.unseen(kProgram, "the loader could not be asked which libraries it finds");
  std::string ours;
  for (const Loaded::Library& one : loaded->libraries) {
    if (one.path.empty()) {
      findings.fault(kProgram, verbena::format("it needs {}, which is not found", one.name),
                     "install the package that has it");
    } else if (stands_for(one.name) && is_ours(one.path, installation)) {
      ours += (ours.empty() ? "" : ", ") + one.name;
    } else if (stands_for(one.name)) {
      findings.fault(
          kProgram,
          verbena::format("it loads {} in place of Verbena's: {}", one.path, reason_for(one.path, file)),
          "take the path out (patchelf --remove-rpath, or make it a RUNPATH), or move that library away");
    }
  }
  if (loaded->complaint.find("version `") != std::string::npos) {
    findings.fault(kProgram,
                   verbena::format("it is built for another libibverbs or librdmacm: {}", loaded->complaint),
                   "take it as built for your distribution's rdma-core, or a later Verbena");
  } else if (loaded->status != 0 && !findings.amiss(kProgram)) {
    findings.fault(kProgram, verbena::format("the loader refuses it: {}", loaded->complaint),
                   "install what it needs, or build it again");
  }
  if (findings.amiss(kProgram)) return;
  findings.fine(kProgram,
                ours.empty()
                    ? verbena::format("{} is linked with none of libibverbs and librdmacm; what it loads "
                                      "while it runs (dlopen) will be Verbena's",
                                      program.string())
                    : verbena::format("{} loads Verbena's {}", program.string(), ours));
}

void look_at_elf_file(const fs::path& program, const ElfFile& file, const Installation& installation,
                      Findings& findings) {
  look_at_privileges(program, findings);
  if (!file.is_64_bit || file.machine != own_machine()) {
    findings.fault(kProgram,
                   verbena::format("{} is built for another machine than Verbena's libraries{}",
                                   program.string(), file.is_64_bit ? "" : ": for 32 bits"),
                   "take one that is built for this machine");
  } else if (file.is_library) {
    look_at_libraries(program, file, installation, findings);
  } else if (!file.dynamic || file.interpreter.empty()) {
    findings.fault(
        kProgram,
        verbena::format("{} is linked statically: what it knows of RDMA is in it, and nothing can be put in "
                        "front",
                        program.string()),
        "link it with libibverbs.so.1 and librdmacm.so.1");
  } else if (const auto own = read_elf_file("/proc/self/exe"); own && file.interpreter != own->interpreter) {
    findings.fault(kProgram,
                   verbena::format("{} uses another C library than Verbena's: its loader is {}",
                                   program.string(), file.interpreter),
                   "build it for glibc, or run it in a container that has glibc");
  } else {
    look_at_sanitizer(program, file, installation, findings);
    look_at_libraries(program, file, installation, findings);
  }
}

}  // namespace

bool is_program(const std::string& name) {
  std::error_code ignored;
  const fs::path found = find_file(name);
  return !found.empty() && fs::exists(found, ignored);
}

Result<void> look_at_program(const std::string& name, const Installation& installation, Findings& findings) {
  fs::path program = find_file(name);
  if (program.empty()) return fail(ENOENT);
  for (int i = 0; i < kMostInterpreters; ++i) {
    const auto file = read_elf_file(program);
    if (file) {
      look_at_elf_file(program, *file, installation, findings);
      return {};
    }
    if (file.error().code != ENOEXEC) return fail(file.error().code);
    const std::string interpreter = interpreter_of_script(program);
    if (interpreter.empty()) return fail(ENOEXEC);
    fs::path next = find_program(interpreter);
    std::error_code ignored;
    if (next.empty() || !fs::exists(next, ignored)) {
      findings.fault(
          kProgram,
          verbena::format("{} is a script for {}, which is not there", program.string(), interpreter),
          "install it, or correct the script's first line");
      return {};
    }
    findings.fine(kProgram, verbena::format("{} is a script for {}", program.string(), interpreter));
    program = std::move(next);
  }
  return fail(ELOOP);
}

std::vector<std::string> missing_libraries(const fs::path& library) {
  std::vector<std::string> missing;
  const auto loaded = ask_loader(library, {"LD_LIBRARY_PATH=" + library.parent_path().string()});
  if (!loaded) return missing;
  for (const Loaded::Library& one : loaded->libraries) {
    if (one.path.empty()) missing.push_back(one.name);
  }
  return missing;
}

}  // namespace verbena::tools::doctor
