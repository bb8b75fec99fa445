// SPDX-License-Identifier: Apache-2.0
#include "base/sealed_file.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace verbena {
namespace {

bool may_make_file_of(size_t bytes) {
  rlimit limit;
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

}  // namespace

Result<UniqueFd> make_private_file(const char* name, size_t bytes) {
  if (!may_make_file_of(bytes)) return fail(EFBIG);
  UniqueFd file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ::fchmod(file.get(), 0600) != 0) return fail(errno);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return fail(errno);
  return file;
}

Result<UniqueFd> make_memory_file(const char* name, size_t bytes) {
  auto file = make_private_file(name, bytes);
  if (!file) return file;
  if (const int error = ::posix_fallocate(file->get(), 0, static_cast<off_t>(bytes)); error != 0)
    return fail(error);
  return file;
}

Result<void> seal_size(int file, int others) {
  constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::fcntl(file, F_ADD_SEALS, kSize | others) != 0) return fail(errno);
  return {};
}

Result<void> seal_to_its_mappings(int file) {
  const auto sealed = seal_size(file, F_SEAL_FUTURE_WRITE);
  return sealed || sealed.error().code != EINVAL ? sealed : seal_size(file);
}

bool is_sealed_to_its_mappings(int file) {
  const int seals = ::fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_FUTURE_WRITE) != 0;
}

Result<UniqueFd> write_memory_file(const char* name, ConstBytes bytes) {
  auto file = make_memory_file(name, bytes.size());
  if (!file) return file;
  for (size_t done = 0; done < bytes.size();) {
    const ConstBytes rest = bytes.subspan(done);
    const ssize_t written = ::pwrite(file->get(), rest.data(), rest.size(), static_cast<off_t>(done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail(written < 0 ? errno : EIO);
    done += static_cast<size_t>(written);
  }
  if (const auto sealed = seal_size(file->get()); !sealed) return fail(sealed.error().code);
  return file;
}

Result<void> read_memory_file(int file, Bytes to) {
  if (!has_sealed_size(file, to.size())) return fail(EPROTO);
  for (size_t done = 0; done < to.size();) {
    const Bytes rest = to.subspan(done);
    const ssize_t got = ::pread(file, rest.data(), rest.size(), static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail(got < 0 ? errno : EPROTO);
    done += static_cast<size_t>(got);
  }
  return {};
}

// Checks the seals first: only memfds have any, and fstat() of other files might wait for a file server.
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

// splice(2) refers to the page and copies nothing, except from a file opened with O_DIRECT, as memfds can be
// since Linux 6.6. A descriptor of memfd_create(2) cannot get that flag later. Containers often forbid
// vmsplice(2).
Result<UniqueFd> pin_first_page(int file) {
  if (::fcntl(file, F_SETFL, O_DIRECT) == 0 || errno != EINVAL) return fail(EPROTO);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return fail(errno);
  UniqueFd reading(ends[0]);
  const UniqueFd writing(ends[1]);
  ::fcntl(writing.get(), F_SETPIPE_SZ, 1);  // one page, of the many that a user's pipes may have together
  off_t start = 0;
  const ssize_t taken = ::splice(file, &start, writing.get(), nullptr, 1, SPLICE_F_NONBLOCK);
  if (taken != 1) return fail(taken < 0 ? errno : ENODATA);
  return reading;
}

}  // namespace verbena
