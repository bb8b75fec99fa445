// SPDX-License-Identifier: Apache-2.0
#include "commands/doctor/program.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <sstream>
#include <utility>

#include "base/format.h"
#include "commands/doctor/command_output.h"
#include "commands/doctor/elf_file.h"
#include "commands/verbena/program_file.h"
#include "commands/verbena/run_environment.h"

namespace verbena::commands::doctor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "program";
constexpr int kMaxInterpreters = 4;

// Finds a program in PATH, or else a file in the current folder, such as a library.
fs::path find_file(const std::string& name) {
  fs::path program = find_program(name);
  std::error_code ignored;
  if (program.empty() && fs::is_regular_file(name, ignored)) program = name;
  return program;
}

// LD_LIBRARY_PATH as `verbena run` sets it. The preload is not considered: its name is a full path.
std::string run_library_path(const Installation& installation) {
  return library_path_with(installation.libraries, environment_variable("LD_LIBRARY_PATH"));
}

// ---- obstacles to loading Verbena's libraries

void look_at_privileges(const fs::path& file, Findings& findings) {
  const char* kind = privilege_gained_by(file);
  if (kind == nullptr) return;
  findings.fault(
      kProgram,
      verbena::format("{} is {}: the loader keeps Verbena's libraries from it", file.string(), kind),
      "run a copy without (cp PROGRAM .), started with what it needs, as by 'setpriv --ambient-caps'; or "
      "'verbena system on'");
}

// `verbena run` makes AddressSanitizer accept its preload (run_environment.h).
void look_at_sanitizer(const fs::path& program, const ElfFile& file, const Installation& installation,
                       Findings& findings) {
  const auto sanitizer = sanitizer_of(file);
  if (!sanitizer) return;
  const std::string what = verbena::format("{} is built with {}", program.string(), name_of(*sanitizer));
  if (*sanitizer == Sanitizer::kAddress && refuses_preloads(environment_variable("ASAN_OPTIONS"))) {
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

bool stands_for(const std::string& name) {
  return std::find(kVerbenaLibraries.begin(), kVerbenaLibraries.end(), name) != kVerbenaLibraries.end();
}

std::string reason_for(const std::string& path, const ElfFile& file) {
  if (!file.rpath.empty()) return verbena::format("its RPATH, {}, goes before Verbena's folder", file.rpath);
  return verbena::format("something it is linked with leads to {}", path);
}

void look_at_libraries(const fs::path& program, const ElfFile& file, const Installation& installation,
                       Findings& findings) {
  const LoadedLibraries loaded = find_loaded_libraries(program, run_library_path(installation));
  std::string ours;
  for (const LoadedLibraries::Library& one : loaded.libraries) {
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
  if (!loaded.missing_version.empty()) {
    findings.fault(kProgram,
                   verbena::format("it is built for another libibverbs or librdmacm: it lacks {}",
                                   loaded.missing_version),
                   "take it as built for your distribution's rdma-core, or a later Verbena");
  }
  if (findings.amiss(kProgram)) return;
  findings.fine(kProgram, ours.empty()
                              ? verbena::format("{} is linked with none of libibverbs and librdmacm; what it "
                                                "loads while it runs (dlopen) will be Verbena's",
                                                program.string())
                              : verbena::format("{} loads Verbena's {}", program.string(), ours));
}

void look_at_elf_file(const fs::path& program, const ElfFile& file, const Installation& installation,
                      Findings& findings) {
  look_at_privileges(program, findings);
  const ElfFile own = own_elf_file();
  if (!file.is_64_bit || file.machine != own.machine) {
    findings.fault(kProgram,
                   verbena::format("{} is built for another machine than Verbena's libraries{}",
                                   program.string(), file.is_64_bit ? "" : ": for 32 bits"),
                   "take one that is built for this machine");
  } else if (file.is_library) {
    look_at_libraries(program, file, installation, findings);
  } else if (!file.dynamic || file.interpreter.empty()) {
    findings.fault(
        kProgram,
        verbena::format(
            "{} is linked statically: what it knows of RDMA is in it, and nothing can be put in front",
            program.string()),
        "link it with libibverbs.so.1 and librdmacm.so.1");
  } else if (file.interpreter != own.interpreter) {
    findings.fault(kProgram,
                   verbena::format("{} uses another C library than Verbena's: its loader is {}",
                                   program.string(), file.interpreter),
                   "build it for glibc, or run it in a container that has glibc");
  } else {
    look_at_sanitizer(program, file, installation, findings);
    look_at_libraries(program, file, installation, findings);
  }
}

constexpr Duration kCachePatience = std::chrono::seconds(10);
constexpr size_t kMaxObjects = 1024;

// Parses `ldconfig -p`, with lines such as " libz.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libz.so.1".
std::multimap<std::string, std::string> loader_cache() {
  std::multimap<std::string, std::string> cache;
  const auto ran = run_command({"ldconfig", "-p"}, kCachePatience);
  std::istringstream lines(ran && !ran->timed_out ? ran->out : std::string());
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(" \t");
    const size_t kind = line.find(" (");
    const size_t arrow = line.find(") => ");
    if (arrow == std::string::npos || kind > arrow || begin >= kind) continue;
    if (line.find("hwcap", kind) < arrow) continue;  // needs a newer processor
    cache.emplace(line.substr(begin, kind - begin), line.substr(arrow + 5));
  }
  return cache;
}

// A loaded file, and the file that needs it.
struct Object {
  std::string path;
  ElfFile file;
  const Object* loader;  // null for the program itself
};

class Search {
 public:
  explicit Search(const std::string& library_path)
      : library_path_(split(library_path, ":;")), cache_(loader_cache()) {}

  LoadedLibraries run(const fs::path& file) {
    std::error_code error;
    const fs::path whole = fs::canonical(file, error);
    add_object(error ? fs::absolute(file, error).string() : whole.string(), nullptr);
    // Breadth-first, as the loader: the first file that needs a library determines its search path.
    for (size_t i = 0; i < objects_.size(); ++i) {
      for (const std::string& name : objects_[i].file.needed) add_library(name, objects_[i]);
    }
    for (const Object& object : objects_) check_versions(object);
    return std::move(found_);
  }

 private:
  const Object* add_object(const std::string& path, const Object* loader) {
    auto file = read_elf_file(path);
    if (!file || objects_.size() == kMaxObjects) return nullptr;
    return &objects_.emplace_back(Object{path, std::move(*file), loader});
  }

  void add_library(const std::string& name, const Object& loader) {
    if (name == fs::path(own_.interpreter).filename() || names_.contains(name)) return;
    const std::string path = find(name, loader);
    const Object* const object = path.empty() ? nullptr : add_object(path, &loader);
    names_.emplace(name, object);
    if (object != nullptr && !object->file.soname.empty()) names_.emplace(object->file.soname, object);
    found_.libraries.push_back({name, path});
  }

  std::string find(const std::string& name, const Object& loader) const {
    if (name.find('/') != std::string::npos) {
      const auto path = replace_origin(name, loader);
      return path && is_library(*path) ? *path : std::string();
    }
    // A RUNPATH applies only to the file that has it, and makes the loader ignore all RPATHs of its
    // ancestors.
    std::string path;
    for (const Object* at = &loader; loader.file.runpath.empty() && at != nullptr && path.empty();
         at = at->loader) {
      if (at->file.runpath.empty()) path = find_in(split(at->file.rpath, ":"), name, *at);
    }
    if (path.empty()) path = find_in(library_path_, name, objects_.front());
    if (path.empty()) path = find_in(split(loader.file.runpath, ":"), name, loader);
    if (path.empty()) path = find_in_cache(name);
    if (path.empty()) path = find_in({"/lib64", "/usr/lib64", "/lib", "/usr/lib"}, name, loader);
    return path;
  }

  std::string find_in(const std::vector<std::string>& folders, const std::string& name,
                      const Object& of) const {
    for (const std::string& folder : folders) {
      const auto place = replace_origin(folder.empty() ? "." : folder, of);
      if (!place) continue;
      std::error_code ignored;
      const std::string path = fs::absolute(fs::path(*place) / name, ignored).string();
      if (is_library(path)) return path;
    }
    return {};
  }

  std::string find_in_cache(const std::string& name) const {
    const auto [first, last] = cache_.equal_range(name);
    const auto found = std::find_if(first, last, [&](const auto& entry) { return is_library(entry.second); });
    return found == last ? std::string() : found->second;
  }

  bool is_library(const std::string& path) const {
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) return false;
    const auto file = read_elf_file(path);
    return file && file->is_64_bit && file->machine == own_.machine;
  }

  // Replaces $ORIGIN. Nullopt if the text holds another variable, or becomes too long.
  static std::optional<std::string> replace_origin(std::string text, const Object& of) {
    const std::string origin = fs::path(of.path).parent_path().string();
    for (const std::string_view name : {"${ORIGIN}", "$ORIGIN"}) {
      for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += origin.size()) {
        text.replace(at, name.size(), origin);
        if (text.size() > kMaxPathBytes) return std::nullopt;
      }
    }
    if (origin.find('$') == std::string::npos && text.find('$') != std::string::npos) return std::nullopt;
    return text;
  }

  void check_versions(const Object& object) {
    for (const ElfFile::NeededVersion& one : object.file.needed_versions) {
      const auto library = names_.find(one.library);
      if (library == names_.end() || library->second == nullptr) continue;
      const std::vector<std::string>& defined = library->second->file.defined_versions;
      if (defined.empty() || std::ranges::find(defined, one.version) != defined.end()) continue;
      if (found_.missing_version.empty()) {
        found_.missing_version =
            verbena::format("{} of {}, for {}", one.version, library->second->path, object.path);
      }
    }
  }

  static constexpr size_t kMaxPathBytes = 4096;

  const std::vector<std::string> library_path_;
  const std::multimap<std::string, std::string> cache_;
  const ElfFile own_ = own_elf_file();  // its loader is always loaded
  std::deque<Object> objects_;  // the program first; a deque, so that pointers to its elements stay valid
  std::map<std::string, const Object*> names_;
  LoadedLibraries found_;
};

}  // namespace

bool is_ours(const fs::path& file, const Installation& installation) {
  std::error_code ignored;
  return fs::equivalent(file.parent_path(), installation.libraries, ignored);
}

bool is_program(const std::string& name) {
  std::error_code ignored;
  const fs::path found = find_file(name);
  return !found.empty() && fs::exists(found, ignored);
}

Result<void> look_at_program(const std::string& name, const Installation& installation, Findings& findings) {
  fs::path program = find_file(name);
  if (program.empty()) return fail(ENOENT);
  for (int i = 0; i < kMaxInterpreters; ++i) {
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

LoadedLibraries find_loaded_libraries(const fs::path& file, const std::string& library_path) {
  return Search(library_path).run(file);
}

}  // namespace verbena::commands::doctor
