// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/channel_memory.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sealed_file.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace verbena::engine {
namespace {

constexpr size_t kBytes = sizeof(shm::ChannelMemory);
constexpr size_t kHalfBytes = sizeof(shm::ChannelHalf);
// The bytes that a lane uses while its ring is narrow.
constexpr size_t kNarrowLaneBytes = offsetof(shm::Lane, payload) + shm::kRingBytes.front();
constexpr const char* kName = "verbena-channel";

// Rounds to whole pages. Returns an errno value or 0.
int populate(std::byte* begin, size_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) & ~(page - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(begin) + bytes + page - 1) & ~(page - 1);
  return ::madvise(reinterpret_cast<void*>(first), end - first, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
}

// Allocates what a lane uses while its ring is narrow, or all of the file where the kernel cannot allocate
// the rest later. Returns an errno value or 0.
int allocate_narrow(int file, size_t file_bytes, shm::Lane& lane) {
  const int error = populate(reinterpret_cast<std::byte*>(&lane), kNarrowLaneBytes);
  return error != EINVAL ? error : ::posix_fallocate(file, 0, static_cast<off_t>(file_bytes));
}

}  // namespace

bool allocate_pages(std::byte* begin, size_t bytes) {
  const int error = populate(begin, bytes);
  return error == 0 || error == EINVAL;
}

Result<ChannelMapping> ChannelMapping::map_file(int file) {
  void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return fail(errno);
  return ChannelMapping(static_cast<shm::ChannelMemory*>(at));
}

Result<UniqueFd> ChannelMapping::make_empty_file() {
  auto file = make_private_file(kName, kBytes);
  if (!file) return file;
  if (const auto sealed = seal_size(file->get()); !sealed) return tl::unexpected(sealed.error());
  return file;
}

Result<std::pair<ChannelMapping, UniqueFd>> ChannelMapping::make() {
  auto file = make_empty_file();
  if (!file) return tl::unexpected(file.error());
  auto mapping = map_file(file->get());
  if (!mapping) return tl::unexpected(mapping.error());
  for (shm::Lane& lane : mapping->memory().lanes) {
    if (const int error = allocate_narrow(file->get(), kBytes, lane); error != 0) return fail(error);
  }
  shm::format(mapping->memory());
  return std::pair(std::move(*mapping), std::move(*file));
}

Result<UniqueFd> ChannelMapping::make_file() {
  auto made = make();
  if (!made) return tl::unexpected(made.error());
  return std::move(made->second);
}

Result<ChannelMapping> ChannelMapping::map(int file) {
  if (!has_sealed_size(file, kBytes)) return fail(EPROTO);
  auto mapping = map_file(file);
  if (mapping && !shm::is_formatted(mapping->memory())) return fail(EPROTO);
  return mapping;
}

ChannelMapping::~ChannelMapping() {
  if (memory_ != nullptr) ::munmap(memory_, kBytes);
}

template <class Half>
HalfMapping<Half>::~HalfMapping() {
  if (half_ != nullptr) ::munmap(const_cast<shm::ChannelHalf*>(half_), kHalfBytes);
}

template <class Half>
Result<void> HalfMapping<Half>::pin(int file) {
  auto pin = pin_first_page(file);
  if (!pin) return tl::unexpected(pin.error());
  pin_ = std::move(*pin);
  return {};
}
template class HalfMapping<shm::ChannelHalf>;
template class HalfMapping<const shm::ChannelHalf>;

Result<std::pair<OwnHalf, UniqueFd>> make_half() {
  auto file = make_private_file(kName, kHalfBytes);
  if (!file) return tl::unexpected(file.error());
  void* const at = ::mmap(nullptr, kHalfBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0);
  if (at == MAP_FAILED) return fail(errno);
  auto* const memory = static_cast<shm::ChannelHalf*>(at);
  OwnHalf half(memory);
  // The other process can make fork() wait for locks of the file. Children use no channel of their parent.
  if (::madvise(at, kHalfBytes, MADV_DONTFORK) != 0) return fail(errno);
  if (const int error = allocate_narrow(file->get(), kHalfBytes, half.lane()); error != 0) return fail(error);
  shm::format(*memory);
  if (const auto sealed = seal_to_its_mappings(file->get()); !sealed) return tl::unexpected(sealed.error());
  if (!is_sealed_half(file->get())) return fail(EOPNOTSUPP);
  if (const auto pinned = half.pin(file->get()); !pinned) return tl::unexpected(pinned.error());
  return std::pair(std::move(half), std::move(*file));
}

bool is_sealed_half(int file) {
  return has_sealed_size(file, kHalfBytes) && is_sealed_to_its_mappings(file);
}

// Nobody can punch holes into a file with these seals, so no access waits for that. Its maker can still make
// mmap(), munmap() and the first access to a page wait: by many mappings, and by asking the kernel to page
// it out. A page that is locked here stays. It is pinned afterwards, so that the wait for a page that is not
// there yet counts as its maker's.
Result<TheirHalf> map_half(int file) {
  if (!is_sealed_half(file)) return fail(EPROTO);
  void* const at = ::mmap(nullptr, kHalfBytes, PROT_READ, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return fail(errno);
  const auto* const memory = static_cast<const shm::ChannelHalf*>(at);
  TheirHalf half(memory);
  // A child's fork() would wait for the same locks.
  if (::madvise(at, kHalfBytes, MADV_DONTFORK) != 0) return fail(errno);
  if (::mlock(at, offsetof(shm::ChannelHalf, lane) + kNarrowLaneBytes) != 0) return fail(errno);
  if (const auto pinned = half.pin(file); !pinned) return tl::unexpected(pinned.error());
  if (!shm::is_formatted(*memory)) return fail(EPROTO);
  return half;
}

}  // namespace verbena::engine
