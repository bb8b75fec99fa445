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

// Creates a memfd of `bytes` zeros that takes memory only where it is written. Its mode is 0600. So another
// user who gets a descriptor cannot reopen the file for writing through /proc. Nor can that user have the
// kernel page it out (MADV_PAGEOUT), which would keep others waiting for its pages. The caller seals the size
// before passing it on. Errors: EFBIG if `bytes` exceeds RLIMIT_FSIZE, where the kernel would kill the
// process by SIGXFSZ; those of memfd_create(2) and ftruncate(2).
Result<UniqueFd> make_private_file(const char* name, size_t bytes);

// Like make_private_file(), but allocates all pages: a shortage of memory would raise SIGBUS later. Errors:
// also those of fallocate(2).
Result<UniqueFd> make_memory_file(const char* name, size_t bytes);

// Seals the size of a memfd, and forbids further seals (F_SEAL_SEAL). `others`: additional F_SEAL_... flags.
Result<void> seal_size(int file, int others = 0);

// Like seal_size(), but also forbids all writes except through the mappings that exist now
// (F_SEAL_FUTURE_WRITE). Kernels before 5.1 seal the size only.
Result<void> seal_to_its_mappings(int file);
// Returns whether that seal is there: nobody can write or punch holes except through older mappings. Blocks
// for no kind of file.
bool is_sealed_to_its_mappings(int file);

// Create a memfd with these bytes and a sealed size, and read all bytes of such a memfd. read_memory_file()
// fails with EPROTO if `file` is no memfd, its size is not sealed, or its size is not `to.size()`.
Result<UniqueFd> write_memory_file(const char* name, ConstBytes bytes);
Result<void> read_memory_file(int file, Bytes to);

// Returns the size of a memfd in bytes. Returns nullopt if `file` is no memfd or its size is not sealed.
// Blocks for no kind of file.
std::optional<size_t> sealed_size(int file);
bool has_sealed_size(int file, size_t bytes);

// Pins the first page of a memfd as long as the returned descriptor is open: a pipe that refers to it. Any
// process that can read a memfd can have the kernel gather its pages into a large one (MADV_COLLAPSE).
// Meanwhile each access waits, for seconds if the file is mapped a million times. The kernel looks for pinned
// pages before it locks any, and gives up if there is one. REQUIRES: the page is there, not a hole. Errors:
// EPROTO if the file can be read with O_DIRECT: nothing would be pinned. EMFILE, ENFILE, and those of
// splice(2).
Result<UniqueFd> pin_first_page(int file);

}  // namespace verbena
