// SPDX-License-Identifier: Apache-2.0
#include "agent/status/trace_copy.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sealed_file.h"
#include "control/protocol/trace_ring.h"

namespace verbena::agent {
namespace {

using protocol::TraceRing;
using protocol::TraceRings;

bool copy_range(int from, size_t offset, int to, size_t to_offset, size_t bytes) {
  std::array<std::byte, 16 * 1024> some;
  for (size_t done = 0; done < bytes;) {
    const size_t part = std::min(some.size(), bytes - done);
    const auto got = ::pread(from, some.data(), part, static_cast<off_t>(offset + done));
    if (got <= 0) return false;
    const auto at = static_cast<off_t>(to_offset + done);
    if (::pwrite(to, some.data(), static_cast<size_t>(got), at) != got) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

// Returns the size of the used part of a ring with its head, or 0 if it is unused.
size_t used_bytes(int file, size_t ring) {
  uint64_t written = 0;
  const auto at = static_cast<off_t>(ring + offsetof(TraceRing, written));
  if (::pread(file, &written, sizeof written, at) != sizeof written || written == 0) return 0;
  const size_t entries = std::min<uint64_t>(written, protocol::kTraceEntries);
  return offsetof(TraceRing, entries) + entries * sizeof(protocol::TraceEntry);
}

}  // namespace

Result<size_t> copy_rings(int from, size_t offset, int to, size_t to_offset) {
  size_t copied = 0;
  for (const size_t ring : {offsetof(TraceRings, events), offsetof(TraceRings, details)}) {
    const size_t used = used_bytes(from, offset + ring);
    if (!copy_range(from, offset + ring, to, to_offset + ring, used)) return fail(EIO);
    copied += used;
  }
  if (copied == 0) return fail(ENODATA);
  if (!copy_range(from, offset, to, to_offset, offsetof(TraceRings, events))) return fail(EIO);
  return copied;
}

Result<TraceCopy> copy_rings(int from, size_t offset) {
  TraceCopy copy;
  copy.file.reset(::memfd_create("verbena-trace", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!copy.file) return fail(errno);
  if (::ftruncate(copy.file.get(), sizeof(TraceRings)) != 0) return fail(errno);
  const auto copied = copy_rings(from, offset, copy.file.get(), 0);
  if (!copied) return fail(copied.error().code);
  copy.bytes = *copied;
  if (const auto sealed = seal_size(copy.file.get(), F_SEAL_WRITE); !sealed) return fail(sealed.error().code);
  return copy;
}

}  // namespace verbena::agent
