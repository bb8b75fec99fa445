// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>

// Files that throw std::system_error.
namespace example {

[[noreturn]] inline void fail(int code, const std::string& tried) {
  throw std::system_error(code, std::generic_category(), tried);
}

struct closes {
  void operator()(std::FILE* opened) const { std::fclose(opened); }
};
using file = std::unique_ptr<std::FILE, closes>;

inline file open_file(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (fd < 0) fail(errno, "open " + path);
  return file(::fdopen(fd, (flags & O_WRONLY) != 0 ? "w" : "r"));
}
inline std::uint64_t size_of(const file& one) {
  struct stat found {};
  if (::fstat(::fileno(one.get()), &found) != 0) fail(errno, "look at a file");
  if (!S_ISREG(found.st_mode)) fail(EINVAL, "open a file that is not a regular file");
  return static_cast<std::uint64_t>(found.st_size);
}
inline void read_from(const file& from, std::span<std::byte> into) {
  if (std::fread(into.data(), 1, into.size(), from.get()) != into.size()) fail(EIO, "read a file");
}
inline void write_to(const file& to, std::span<std::byte> from) {
  if (std::fwrite(from.data(), 1, from.size(), to.get()) != from.size() || std::fflush(to.get()) != 0)
    fail(errno, "write a file");
}

}  // namespace example
