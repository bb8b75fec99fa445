// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/run_environment.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <unistd.h>

#include "adapter/engine/shard_dealing.h"
#include "base/command_line/command_line.h"
#include "base/format.h"
#include "commands/verbena/names.h"
#include "commands/verbena/program_file.h"

namespace verbena::commands {
namespace {

constexpr std::string_view kLinkOrder = "verify_asan_link_order";
constexpr const char* kSeparators = ": ,\n\t\r";  // between options in ASAN_OPTIONS

struct Runtime {
  std::string_view gcc;    // name of the library up to ".so"
  std::string_view clang;  // name up to '-', '_' or ".so"
  Sanitizer sanitizer;
  std::string_view name;
  const char* function;  // a symbol in programs built with it
};

constexpr std::array kRuntimes = std::to_array<Runtime>({
    {"libasan", "libclang_rt.asan", Sanitizer::kAddress, "AddressSanitizer", "__asan_init"},
    {"libhwasan", "libclang_rt.hwasan", Sanitizer::kHardwareAddress, "HWAddressSanitizer", "__hwasan_init"},
    {"libtsan", "libclang_rt.tsan", Sanitizer::kThread, "ThreadSanitizer", "__tsan_init"},
    {"liblsan", "libclang_rt.lsan", Sanitizer::kLeak, "LeakSanitizer", "__lsan_do_leak_check"},
    {"libubsan", "libclang_rt.ubsan", Sanitizer::kUndefined, "UndefinedBehaviorSanitizer",
     "__ubsan_handle_out_of_bounds"},
});

bool starts_with_word(std::string_view text, std::string_view word, std::string_view ends) {
  return text.starts_with(word) && text.size() > word.size() &&
         ends.find(text[word.size()]) != std::string_view::npos;
}

// Returns the value of the last verify_asan_link_order, which takes precedence over earlier ones.
std::optional<std::string> link_order_in(std::string_view options) {
  std::optional<std::string> value;
  for (const std::string& option : split(options, kSeparators)) {
    if (starts_with_word(option, kLinkOrder, "=")) value = option.substr(kLinkOrder.size() + 1);
  }
  return value;
}

bool is_shard_count(std::string_view value) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc() && end == value.data() + value.size() && number >= 1 &&
         number <= engine::kMaxShards;
}
bool is_on_or_off(std::string_view value) {
  return value == "off" || value == "0" || value == "on" || value == "1";
}
bool is_zero_or_one(std::string_view value) {
  return value == "0" || value == "1";
}
bool is_congestion_control(std::string_view value) {
  return value == "fixed";
}

struct Setting {
  const char* name;
  bool (*is_known)(std::string_view value);
  std::string allowed;
};

const Setting kSettings[] = {
    {"VERBENA_SHARDS", is_shard_count, verbena::format("a number from 1 to {}", engine::kMaxShards)},
    {"VERBENA_LOCAL", is_on_or_off, "'off', or not set"},
    {"VERBENA_HALT_POLLING", is_zero_or_one, "'0', or not set"},
    {"VERBENA_CONGESTION", is_congestion_control, "'fixed', or not set"},
};

bool can_be_executed(const char* file) {
  std::error_code ignored;
  return ::access(file, X_OK) == 0 && std::filesystem::is_regular_file(file, ignored);
}

// Reports a variable "VERBENA_NAME=value" whose name resembles one of ours.
void add_mistyped(std::string_view entry, std::vector<WrongSetting>& wrong) {
  constexpr std::string_view kPrefix = "VERBENA_";
  if (!entry.starts_with(kPrefix)) return;
  const std::string_view name = entry.substr(kPrefix.size(), entry.find('=') - kPrefix.size());
  std::vector<std::string> ours = {"LOG", "AGENT", "SYS_DIR"};
  for (const Setting& setting : kSettings) ours.emplace_back(setting.name + kPrefix.size());
  if (std::ranges::find(ours, name) != ours.end()) return;
  const std::string_view meant = command_line::closest(name, ours);
  if (meant.empty()) return;
  wrong.push_back({verbena::format("{}{}", kPrefix, name), false,
                   verbena::format("{0}{1} is no variable of Verbena's; did you mean {0}{2}?", kPrefix,
                                   printable(name), meant)});
}

constexpr const char* kPreloadSeparators = ": ";

// Splits a list at any of `separators`. Omits empty items and items equal to `left_out`.
std::vector<std::string> items(std::string_view list, const char* separators, std::string_view left_out) {
  std::vector<std::string> found = split(list, separators);
  std::erase_if(found, [&](const std::string& item) { return item.empty() || item == left_out; });
  return found;
}

bool is_runtime(std::string_view library) {
  return sanitizer_of(library).has_value();
}

std::string preload_item(const std::filesystem::path& preload) {
  const std::string whole = preload.string();
  const bool is_separable = whole.find_first_of(kPreloadSeparators) != std::string::npos;
  return is_separable ? preload.filename().string() : whole;
}

}  // namespace

std::string_view name_of(Sanitizer sanitizer) {
  return std::ranges::find(kRuntimes, sanitizer, &Runtime::sanitizer)->name;
}

std::optional<Sanitizer> sanitizer_of(std::string_view library) {
  const std::string_view file = library.substr(library.rfind('/') + 1);
  if (file.find(".so") == std::string_view::npos) return std::nullopt;
  for (const Runtime& runtime : kRuntimes) {
    if (starts_with_word(file, runtime.gcc, ".") || starts_with_word(file, runtime.clang, "-_.")) {
      return runtime.sanitizer;
    }
  }
  return std::nullopt;
}

std::optional<Sanitizer> sanitizer_of(const doctor::ElfFile& program) {
  // The table's order matters: the sanitizer without malloc() is last.
  for (const Runtime& runtime : kRuntimes) {
    const auto is_needed = [&](const std::string& library) {
      return sanitizer_of(library) == runtime.sanitizer;
    };
    if (std::any_of(program.needed.begin(), program.needed.end(), is_needed) ||
        program.has_dynamic_name(runtime.function)) {
      return runtime.sanitizer;
    }
  }
  return std::nullopt;
}

bool replaces_malloc(Sanitizer sanitizer) {
  return sanitizer != Sanitizer::kUndefined;
}

std::string asan_options_with_preloads(std::string_view current) {
  std::string options(current);
  if (link_order_in(current)) return options;
  if (!options.empty()) options += ':';
  return options.append(kLinkOrder).append("=0");
}

bool refuses_preloads(std::string_view asan_options) {
  const auto value = link_order_in(asan_options);
  return value && *value != "0" && *value != "no" && *value != "false";
}

std::vector<WrongSetting> wrong_settings() {
  std::vector<WrongSetting> wrong;
  for (const Setting& setting : kSettings) {
    const char* value = std::getenv(setting.name);
    if (value == nullptr || *value == '\0' || setting.is_known(value)) continue;
    wrong.push_back({setting.name, true,
                     verbena::format("{}={} has no effect: it has to be {}", setting.name, printable(value),
                                     setting.allowed)});
  }
  const char* agent = std::getenv("VERBENA_AGENT");
  if (agent != nullptr && *agent != '\0' && !can_be_executed(agent)) {
    wrong.push_back(
        {"VERBENA_AGENT", false,
         verbena::format("VERBENA_AGENT={} is not an executable file: where no agent runs, none can be "
                         "started",
                         printable(agent))});
  }
  for (char** entry = environ; *entry != nullptr; ++entry) add_mistyped(*entry, wrong);
  return wrong;
}

std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string library_path_with(const std::filesystem::path& libraries, std::string_view current) {
  const std::string first = libraries.string();
  std::vector<std::string> folders = items(current, ":;", first);
  folders.insert(folders.begin(), first);
  return verbena::join(folders, ":");
}

std::string path_with(const std::filesystem::path& commands, std::string_view current) {
  std::string first = commands.string() + ':';
  if (current.starts_with(first)) return std::string(current);
  return first.append(current.empty() ? kDefaultPath : current);
}

std::string path_with_last(const std::filesystem::path& programs, std::string_view current) {
  const std::string last = ':' + programs.string();
  std::string path(current.empty() ? kDefaultPath : current);
  return path.ends_with(last) ? path : path.append(last);
}

std::string preload_with(const std::filesystem::path& preload, std::string_view current) {
  const std::string ours = preload_item(preload);
  std::vector<std::string> libraries = items(current, kPreloadSeparators, ours);
  const auto behind_runtimes = std::stable_partition(libraries.begin(), libraries.end(), is_runtime);
  libraries.insert(behind_runtimes, ours);
  return verbena::join(libraries, ":");
}

bool preloads_only(const std::filesystem::path& preload, std::string_view current) {
  const std::string ours = preload_item(preload);
  const std::vector<std::string> libraries = items(current, kPreloadSeparators, ours);
  return std::all_of(libraries.begin(), libraries.end(), is_runtime);
}

}  // namespace verbena::commands
