// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/peer_mapping.h"

#include <sys/stat.h>

#include "adapter/shm/peer_file.h"
#include "adapter/shm/peer_segment.h"

namespace verbena::engine {
namespace {

bool holds(int file, uint64_t end) {
  struct stat found {};
  return ::fstat(file, &found) == 0 && found.st_size >= 0 && static_cast<uint64_t>(found.st_size) >= end;
}

}  // namespace

// A file first: to map it changes nothing that others see, whereas segments count who has them.
Result<PeerMapping> map_peer_memory(const ProcessFolder& process, const SharedStretch& stretch,
                                    uint64_t length, dev_t internal) {
  const auto file = open_peer_file(process, stretch, internal);
  if (!file) return attach_peer_segment(process, stretch, length);
  if (!holds(file->get(), stretch.offset + length)) return fail(EINVAL);
  auto memory = memory::FileMapping::create(file->get(), stretch.offset, length, stretch.writable,
                                            mapping_unit(file->get()));
  if (!memory) return tl::unexpected(memory.error());
  return PeerMapping{std::move(*memory), stretch.writable};
}

}  // namespace verbena::engine
