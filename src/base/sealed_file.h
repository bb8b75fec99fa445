// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

// Memory that processes share, as memfds whose descriptors they pass to each other. A file is mapped only if
// its size is sealed: a peer that truncated it would kill this process by SIGBUS.
namespace verbena {

// Creates a memfd of `bytes` zeros with all pages allocated: a shortage of memory would raise SIGBUS later.
// The caller seals its size. Errors: the kernel's; EFBIG: beyond RLIMIT_FSIZE, where the kernel would raise
// SIGXFSZ, which kills the process.
Result<UniqueFd> make_memory_file(const char* name, size_t bytes);

// Creates a memfd of zeros that takes memory only where it is written. Another user who may read it cannot
// reopen it for writing through /proc. Callers seal it before they pass it on. Errors: as above.
Result<UniqueFd> make_private_file(const char* name, size_t bytes);

// Seals the size and the set of seals. `others`: additional F_SEAL_... flags.
Result<void> seal_size(int file, int others = 0);

// Seals the size, and lets only the mappings that exist write the file. Kernels before 5.1 seal the size
// only.
Result<void> seal_to_its_mappings(int file);

// Create a size-sealed memfd with these bytes, and read exactly `to.size()` bytes from one. EPROTO: it is no
// memfd of that size, or not sealed.
Result<UniqueFd> write_memory_file(const char* name, ConstBytes bytes);
Result<void> read_memory_file(int file, Bytes to);

// The size of a size-sealed memfd. Nothing if it is none. Blocks for no kind of file.
std::optional<size_t> sealed_size(int file);
bool has_sealed_size(int file, size_t bytes);

}  // namespace verbena
