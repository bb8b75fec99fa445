// SPDX-License-Identifier: Apache-2.0
#include "base/sealed_file.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

namespace verbena {
namespace {

bool may_make_file_of(size_t bytes) {
  rlimit limit;
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

}  // namespace

Result<UniqueFd> make_memory_file(const char* name, size_t bytes) {
  if (!may_make_file_of(bytes)) return fail(EFBIG);
  UniqueFd file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return fail(errno);
  if (const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)); error != 0)
    return fail(error);
  return file;
}

Result<void> seal_size(int file, int others) {
  constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::fcntl(file, F_ADD_SEALS, kSize | others) != 0) return fail(errno);
  return {};
}

// The seals first: only files in memory have any, and to ask others for their size might wait for a server.
std::optional<size_t> sealed_size(int file) {
  constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = ::fcntl(file, F_GET_SEALS);
  struct stat found;
  if (seals < 0 || (seals & kSize) != kSize || ::fstat(file, &found) != 0) return std::nullopt;
  return static_cast<size_t>(found.st_size);
}

bool has_sealed_size(int file, size_t bytes) {
  return sealed_size(file) == bytes;
}

}  // namespace verbena
