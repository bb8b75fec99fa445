// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

// Memory that processes share, as a file that is handed from one to the other. It is mapped only if its size
// is sealed: who shortened it would end the others by SIGBUS.
namespace verbena {

// A new file of so many zeros, all of whose pages are there: memory that is short later would be a SIGBUS.
// Its size is to be sealed. Errors: the kernel's; EFBIG: beyond RLIMIT_FSIZE, where to try raises SIGXFSZ, of
// which a process dies.
Result<UniqueFd> make_memory_file(const char* name, size_t bytes);

// A new file of zeros, which takes memory only where it is written. Another user who has it for reading
// cannot reopen it for writing through /proc. Callers seal it before they hand it out. Errors: as above.
Result<UniqueFd> make_private_file(const char* name, size_t bytes);

// Nobody can change its size any more, nor its seals. `others`: F_SEAL_... that are added besides.
Result<void> seal_size(int file, int others = 0);

// Seals the size, and lets only the mappings that exist write the file. Kernels before 5.1 seal the size
// only.
Result<void> seal_to_its_mappings(int file);

// A new file with these bytes, whose size is sealed; and as many bytes out of such a file. EPROTO: it is
// none.
Result<UniqueFd> write_memory_file(const char* name, ConstBytes bytes);
Result<void> read_memory_file(int file, Bytes to);

// The size of such a file, which nobody can change. Nothing: it is none. Waits for no kind of file.
std::optional<size_t> sealed_size(int file);
bool has_sealed_size(int file, size_t bytes);

}  // namespace verbena
