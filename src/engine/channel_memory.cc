// SPDX-License-Identifier: Apache-2.0
#include "engine/channel_memory.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

namespace verbena::engine {
namespace {

constexpr size_t kBytes = sizeof(local::ChannelMemory);
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

bool has_sealed_size(int file) {
  struct stat found;
  if (::fstat(file, &found) != 0 || found.st_size != static_cast<off_t>(kBytes)) return false;
  const int seals = ::fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

}  // namespace

bool may_make_file_of(size_t bytes) {
  rlimit limit;
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

Result<ChannelMapping> ChannelMapping::map_file(int file) {
  void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return fail(errno);
  return ChannelMapping(static_cast<local::ChannelMemory*>(at));
}

Result<std::pair<ChannelMapping, UniqueFd>> ChannelMapping::make() {
  if (!may_make_file_of(kBytes)) return fail(EFBIG);
  UniqueFd file(::memfd_create("verbena-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return fail(errno);
  // All of it now: memory that is short later would be a SIGBUS.
  if (const int error = ::posix_fallocate(file.get(), 0, kBytes); error != 0) return fail(error);
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return fail(errno);
  auto mapping = map_file(file.get());
  if (!mapping) return tl::unexpected(mapping.error());
  local::format(mapping->memory());
  return std::pair(std::move(*mapping), std::move(file));
}

Result<ChannelMapping> ChannelMapping::map(int file) {
  if (!has_sealed_size(file)) return fail(EPROTO);
  auto mapping = map_file(file);
  if (mapping && !local::is_formatted(mapping->memory())) return fail(EPROTO);
  return mapping;
}

ChannelMapping::~ChannelMapping() {
  if (memory_ != nullptr) ::munmap(memory_, kBytes);
}

}  // namespace verbena::engine
