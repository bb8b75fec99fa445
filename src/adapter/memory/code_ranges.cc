// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/code_ranges.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <dlfcn.h>
#include <link.h>

namespace verbena::memory {
namespace {

struct Range {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
};

// Executable segments; an object has one, seldom two.
constinit std::array<Range, 64> ranges;
// Stored last. Two threads that search at the same time write the same values to the same places.
constinit std::atomic<size_t> range_count{0};

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// Pointer to an address in an object's dynamic section: relocated already (glibc) or not yet (musl).
const char* relocated(const dl_phdr_info& object, ElfW(Addr) address) {
  const ElfW(Addr) absolute = address < object.dlpi_addr ? object.dlpi_addr + address : address;
  return reinterpret_cast<const char*>(absolute);
}

const ElfW(Dyn) * dynamic_section(const dl_phdr_info& object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    if (segment.p_type == PT_DYNAMIC) {
      return reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + segment.p_vaddr);
    }
  }
  return nullptr;  // a static program
}

bool holds(const dl_phdr_info& object, const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    const uintptr_t begin = object.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && wanted >= begin && wanted - begin < segment.p_memsz) return true;
  }
  return false;
}

struct Search {
  const void* own = reinterpret_cast<const void*>(&find_guarded_code);
  // The memcpy() that our calls are bound to: an interposed one (a sanitizer's) is in no library that we
  // name.
  const void* copy =
      reinterpret_cast<const void*>(static_cast<void* (*)(void*, const void*, size_t)>(memcpy));
  const ElfW(Dyn) * needed_by_own = nullptr;
  const char* strings = nullptr;
  size_t count = 0;

  bool names(const char* path) const {
    const std::string_view name = base_name(path);
    for (const ElfW(Dyn)* entry = needed_by_own; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_NEEDED && name == base_name(strings + entry->d_un.d_val)) return true;
    }
    return false;
  }
};

int find_own(dl_phdr_info* object, size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  if (!holds(*object, search.own)) return 0;
  const ElfW(Dyn)* dynamic = dynamic_section(*object);
  for (const ElfW(Dyn)* entry = dynamic; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) search.strings = relocated(*object, entry->d_un.d_ptr);
  }
  if (search.strings != nullptr) search.needed_by_own = dynamic;
  return 1;
}

int collect(dl_phdr_info* object, size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  const bool wanted =
      holds(*object, search.own) || holds(*object, search.copy) || search.names(object->dlpi_name);
  if (!wanted) return 0;
  for (int i = 0; i < object->dlpi_phnum && search.count < ranges.size(); ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    ranges[search.count].begin.store(begin, std::memory_order_relaxed);
    ranges[search.count].end.store(begin + segment.p_memsz, std::memory_order_relaxed);
    ++search.count;
  }
  return 0;
}

}  // namespace

void find_guarded_code() {
  if (range_count.load(std::memory_order_acquire) != 0) return;
  Search search;
  dl_iterate_phdr(find_own, &search);
  dl_iterate_phdr(collect, &search);
  range_count.store(search.count, std::memory_order_release);
}

bool is_guarded_code(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  const size_t count = range_count.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    const uintptr_t begin = ranges[i].begin.load(std::memory_order_relaxed);
    if (wanted >= begin && wanted < ranges[i].end.load(std::memory_order_relaxed)) return true;
  }
  return false;
}

}  // namespace verbena::memory
