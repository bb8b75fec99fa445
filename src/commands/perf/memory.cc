// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/memory.h"

#include <memory>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>

#include "base/unique_fd.h"
#include "commands/perf/failure.h"

namespace verbena::perf {
namespace {

constexpr std::uint64_t kHugePage = 2 << 20;

void* map_file(std::uint64_t size, const Parameters& parameters) {
  const UniqueFd file(::open(parameters.mapped_file.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) fail("--mmap: cannot open " + parameters.mapped_file);
  void* const mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(),
                              static_cast<off_t>(parameters.mapped_offset));
  if (mapped == MAP_FAILED) fail("--mmap: cannot map " + parameters.mapped_file);
  return mapped;
}

void* map_huge_pages(std::uint64_t size) {
  void* const mapped =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (mapped == MAP_FAILED) fail("--use_hugepages: no huge pages are left (vm.nr_hugepages)");
  return mapped;
}

}  // namespace

verbena::region register_buffer(const verbena::pd& domain, std::uint64_t size, verbena::access rights,
                                const Parameters& parameters) {
  const bool huge = parameters.uses_huge_pages;
  if (!huge && parameters.mapped_file.empty()) return domain.allocate(size, rights).value();
  const std::uint64_t length = huge ? (size + kHugePage - 1) / kHugePage * kHugePage : size;
  void* const pages = huge ? map_huge_pages(length) : map_file(length, parameters);
  const std::shared_ptr<void> memory(pages, [length](void* last) { ::munmap(last, length); });
  return domain.register_memory({static_cast<std::byte*>(pages), size}, rights, memory).value();
}

}  // namespace verbena::perf
