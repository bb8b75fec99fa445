// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/channel_memory.h"

#include <cerrno>

#include <sys/mman.h>

#include "base/sealed_file.h"

namespace verbena::engine {
namespace {

constexpr size_t kBytes = sizeof(shm::ChannelMemory);

}  // namespace

Result<ChannelMapping> ChannelMapping::map_file(int file) {
  void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return fail(errno);
  return ChannelMapping(static_cast<shm::ChannelMemory*>(at));
}

Result<std::pair<ChannelMapping, UniqueFd>> ChannelMapping::make() {
  auto file = make_memory_file("verbena-channel", kBytes);
  if (!file) return tl::unexpected(file.error());
  if (const auto sealed = seal_size(file->get()); !sealed) return tl::unexpected(sealed.error());
  auto mapping = map_file(file->get());
  if (!mapping) return tl::unexpected(mapping.error());
  shm::format(mapping->memory());
  return std::pair(std::move(*mapping), std::move(*file));
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

}  // namespace verbena::engine
