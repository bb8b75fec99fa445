// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

// Memory that processes share: memfds, whose descriptors they pass to each other. A process maps a memfd only
// if its size is sealed. Otherwise a peer could truncate the memfd, and SIGBUS would kill the process.
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
// Whether `file` is a memfd with F_SEAL_FUTURE_WRITE, as seal_to_its_mappings() sets it. Then nobody can
// write to the memfd except through mappings that are older than the seal, nor punch holes. Blocks for no
// kind of file.
bool is_sealed_to_its_mappings(int file);

// write_memory_file() creates a memfd that holds `bytes`, with a sealed size. read_memory_file() reads a
// memfd as a whole. It fails with EPROTO if `file` is no memfd, its size is not sealed, or its size is not
// `to.size()`. Other errors: those of the system calls.
Result<UniqueFd> write_memory_file(const char* name, ConstBytes bytes);
Result<void> read_memory_file(int file, Bytes to);

// Returns the size of a memfd in bytes. Returns nullopt if `file` is no memfd or its size is not sealed.
// Blocks for no kind of file.
std::optional<size_t> sealed_size(int file);
bool has_sealed_size(int file, size_t bytes);

// Pins the first page of a memfd. Returns a pipe that refers to the page, which stays pinned until the pipe
// is closed. The pin protects against MADV_COLLAPSE. With this call any process that can read a memfd can
// make the kernel merge its pages into a large one. During the merge each access to the pages waits, for
// seconds if the file is mapped a million times. The kernel looks for pinned pages before it locks any, and
// gives up if it finds one. REQUIRES: the first page is no hole. Errors: EPROTO if the file accepts O_DIRECT,
// since then nothing would be pinned; EMFILE, ENFILE, and those of splice(2).
Result<UniqueFd> pin_first_page(int file);

}  // namespace verbena
