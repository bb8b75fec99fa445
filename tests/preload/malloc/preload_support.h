// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Helpers for programs that examine the mappings behind their own memory.
namespace verbena::backing_testing {

inline constexpr size_t kMebibyte = 1 << 20;
inline const size_t kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
inline constexpr const char* kFile = "/memfd:verbena (deleted)";

// Returns the line of /proc/self/maps for this address.
inline std::string line_of(const void* at) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    if (begin <= reinterpret_cast<uintptr_t>(at) && reinterpret_cast<uintptr_t>(at) < end) return line;
  }
  return {};
}

inline bool is_shared(const void* at) {
  return line_of(at).ends_with(kFile);
}

// Returns the mapping's permissions, such as "rw-s".
inline std::string rights_of(const void* at) {
  const std::string line = line_of(at);
  const size_t space = line.find(' ');
  return space == std::string::npos ? "" : line.substr(space + 1, 4);
}

// Returns the descriptor of the heap's memfd.
inline std::optional<int> file_of_blocks() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  while (const dirent* entry = ::readdir(folder.get())) {
    char name[256];
    const ssize_t length = ::readlinkat(::dirfd(folder.get()), entry->d_name, name, sizeof name);
    if (length > 0 && std::string(name, static_cast<size_t>(length)) == kFile)
      return std::atoi(entry->d_name);
  }
  return std::nullopt;
}

// Returns the memory that the memfd occupies, in bytes.
inline uint64_t bytes_of_file() {
  struct stat found {};
  const auto file = file_of_blocks();
  if (!file || ::fstat(*file, &found) != 0) return 0;
  return static_cast<uint64_t>(found.st_blocks) * 512;
}

inline void fill(void* at, size_t bytes, uint8_t value) {
  std::fill_n(static_cast<volatile uint8_t*>(at), bytes, value);
}

inline bool are(const void* at, size_t bytes, uint8_t value) {
  const auto* const begin = static_cast<const uint8_t*>(at);
  return std::all_of(begin, begin + bytes, [value](uint8_t byte) { return byte == value; });
}

struct Free {
  void operator()(void* at) const { std::free(at); }
};
using Block = std::unique_ptr<void, Free>;

// Hides a pointer from the compiler, which knows malloc() and free(): it would remove calls, and warn of a
// use after free.
inline void* hidden(void* at) {
  asm volatile("" : "+r"(at) : : "memory");
  return at;
}

inline Block allocate(size_t bytes) {
  return Block(hidden(std::malloc(bytes)));
}

// Runs holds() in a child of fork() and returns its result. Kills a child that hangs after 60 seconds.
inline bool in_child(const std::function<bool()>& holds) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(holds() ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace verbena::backing_testing
