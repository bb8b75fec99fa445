// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/sanitizers.h"

#include <algorithm>
#include <array>

namespace verbena::commands {
namespace {

constexpr std::string_view kLinkOrder = "verify_asan_link_order";
constexpr std::string_view kSeparators = ": ,\n\t\r";  // between options in ASAN_OPTIONS

struct Runtime {
  std::string_view gcc;    // name of the library up to ".so"
  std::string_view clang;  // name up to '-', '_' or ".so"
  Sanitizer sanitizer;
  const char* function;  // a symbol in programs built with it
};

constexpr std::array kRuntimes = std::to_array<Runtime>({
    {"libasan", "libclang_rt.asan", Sanitizer::kAddress, "__asan_init"},
    {"libhwasan", "libclang_rt.hwasan", Sanitizer::kHardwareAddress, "__hwasan_init"},
    {"libtsan", "libclang_rt.tsan", Sanitizer::kThread, "__tsan_init"},
    {"liblsan", "libclang_rt.lsan", Sanitizer::kLeak, "__lsan_do_leak_check"},
    {"libubsan", "libclang_rt.ubsan", Sanitizer::kUndefined, "__ubsan_handle_out_of_bounds"},
});

bool starts_with_word(std::string_view text, std::string_view word, std::string_view ends) {
  return text.starts_with(word) && text.size() > word.size() &&
         ends.find(text[word.size()]) != std::string_view::npos;
}

// Returns the value of the last verify_asan_link_order, which takes precedence over earlier ones.
std::optional<std::string_view> link_order_in(std::string_view options) {
  std::optional<std::string_view> value;
  while (!options.empty()) {
    const size_t end = std::min(options.find_first_of(kSeparators), options.size());
    const std::string_view option = options.substr(0, end);
    options.remove_prefix(std::min(end + 1, options.size()));
    if (starts_with_word(option, kLinkOrder, "=")) value = option.substr(kLinkOrder.size() + 1);
  }
  return value;
}

}  // namespace

std::string_view name_of(Sanitizer sanitizer) {
  switch (sanitizer) {
    case Sanitizer::kAddress:
      return "AddressSanitizer";
    case Sanitizer::kHardwareAddress:
      return "HWAddressSanitizer";
    case Sanitizer::kThread:
      return "ThreadSanitizer";
    case Sanitizer::kLeak:
      return "LeakSanitizer";
    case Sanitizer::kUndefined:
      return "UndefinedBehaviorSanitizer";
  }
  return {};
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

}  // namespace verbena::commands
