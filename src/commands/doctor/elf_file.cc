// SPDX-License-Identifier: Apache-2.0
#include "commands/doctor/elf_file.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace verbena::commands::doctor {
namespace {

// Limits for hostile files. Real tables and names are smaller.
constexpr size_t kMaxTableBytes = 1 << 20;
constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kMaxNames = 1024;

class Reader {
 public:
  explicit Reader(int fd) : fd_(fd) {}

  template <class T>
  bool read(uint64_t at, T& into) const {
    return read_bytes(at, &into, sizeof into) == sizeof into;
  }

  template <class T>
  std::vector<T> table(uint64_t at, uint64_t bytes) const {
    std::vector<T> entries(std::min<uint64_t>(bytes, kMaxTableBytes) / sizeof(T));
    const size_t whole = read_bytes(at, entries.data(), entries.size() * sizeof(T)) / sizeof(T);
    entries.resize(whole);
    return entries;
  }

  // Reads a string up to its zero byte, at most `most` bytes.
  std::string text(uint64_t at, uint64_t most) const {
    std::string name(std::min<uint64_t>(most, kMaxNameBytes), '\0');
    name.resize(read_bytes(at, name.data(), name.size()));
    return name.substr(0, name.find('\0'));
  }

 private:
  size_t read_bytes(uint64_t at, void* into, size_t bytes) const {
    if (at > INT64_MAX) return 0;
    const ssize_t count = ::pread(fd_, into, bytes, static_cast<off_t>(at));
    return count < 0 ? 0 : static_cast<size_t>(count);
  }

  int fd_;
};

// Converts an address of the program into an offset in the file.
std::optional<uint64_t> offset_of(uint64_t address, std::span<const Elf64_Phdr> segments) {
  for (const Elf64_Phdr& one : segments) {
    if (one.p_type == PT_LOAD && address >= one.p_vaddr && address - one.p_vaddr < one.p_filesz) {
      return one.p_offset + (address - one.p_vaddr);
    }
  }
  return std::nullopt;
}

// Returns the value of the first entry with this tag.
std::optional<uint64_t> value_of(Elf64_Sxword tag, std::span<const Elf64_Dyn> entries) {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [tag](const Elf64_Dyn& one) { return one.d_tag == tag; });
  return found == entries.end() ? std::nullopt : std::optional<uint64_t>(found->d_un.d_val);
}

// Calls visit(entry, at) for each entry of a list in which each entry holds the offset of the next. Reads at
// most `left` entries, since a hostile list may be circular.
template <class Entry, class Visit>
void walk(const Reader& reader, uint64_t at, Elf64_Word Entry::*next, size_t& left, Visit visit) {
  for (Entry entry{}; left > 0 && reader.read(at, entry); at += entry.*next) {
    --left;
    visit(entry, at);
    if (entry.*next == 0) return;
  }
}

void read_versions(const Reader& reader, std::span<const Elf64_Phdr> segments,
                   std::span<const Elf64_Dyn> entries, uint64_t names, ElfFile& file) {
  const auto text = [&](uint64_t name) { return reader.text(names + name, kMaxNameBytes); };
  size_t left = kMaxNames;
  const auto needs = value_of(DT_VERNEED, entries);
  if (const auto at = needs ? offset_of(*needs, segments) : std::nullopt) {
    walk<Elf64_Verneed>(
        reader, *at, &Elf64_Verneed::vn_next, left, [&](const Elf64_Verneed& of, uint64_t here) {
          walk<Elf64_Vernaux>(reader, here + of.vn_aux, &Elf64_Vernaux::vna_next, left,
                              [&](const Elf64_Vernaux& one, uint64_t) {
                                if ((one.vna_flags & VER_FLG_WEAK) != 0) return;
                                file.needed_versions.push_back({text(of.vn_file), text(one.vna_name)});
                              });
        });
  }
  left = kMaxNames;
  const auto defines = value_of(DT_VERDEF, entries);
  if (const auto at = defines ? offset_of(*defines, segments) : std::nullopt) {
    walk<Elf64_Verdef>(reader, *at, &Elf64_Verdef::vd_next, left, [&](const Elf64_Verdef& of, uint64_t here) {
      Elf64_Verdaux first{};  // the entries after the first are inherited versions
      if (reader.read(here + of.vd_aux, first)) file.defined_versions.push_back(text(first.vda_name));
    });
  }
}

void read_dynamic(const Reader& reader, std::span<const Elf64_Phdr> segments, const Elf64_Phdr& where,
                  ElfFile& file) {
  std::vector<Elf64_Dyn> entries = reader.table<Elf64_Dyn>(where.p_offset, where.p_filesz);
  entries.erase(
      std::find_if(entries.begin(), entries.end(), [](const Elf64_Dyn& one) { return one.d_tag == DT_NULL; }),
      entries.end());
  // A static program may be a shared object, too (-static-pie).
  const bool is_program = (value_of(DT_FLAGS_1, entries).value_or(0) & DF_1_PIE) != 0;
  file.is_library = !is_program && file.interpreter.empty();
  const auto strings = value_of(DT_STRTAB, entries);
  const auto names = strings ? offset_of(*strings, segments) : std::nullopt;
  if (!names) return;
  if (const auto bytes = value_of(DT_STRSZ, entries)) {
    const std::vector<char> text = reader.table<char>(*names, *bytes);
    file.dynamic_names.assign(text.begin(), text.end());
  }
  const auto text = [&](std::optional<uint64_t> name) {
    return name ? reader.text(*names + *name, kMaxNameBytes) : std::string();
  };
  file.rpath = text(value_of(DT_RPATH, entries));
  file.runpath = text(value_of(DT_RUNPATH, entries));
  file.soname = text(value_of(DT_SONAME, entries));
  for (const Elf64_Dyn& one : entries) {
    if (one.d_tag != DT_NEEDED) continue;
    if (file.needed.size() == kMaxNames) break;
    file.needed.push_back(text(one.d_un.d_val));
  }
  read_versions(reader, segments, entries, *names, file);
}

constexpr unsigned char kOwnOrder = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;

}  // namespace

bool ElfFile::has_dynamic_name(std::string_view name) const {
  const std::string whole = '\0' + std::string(name) + '\0';
  return dynamic_names.find(whole) != std::string::npos;
}

Result<ElfFile> read_elf_file(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return fail(errno);
  const Reader reader(fd.get());
  Elf64_Ehdr head{};
  if (!reader.read(0, head.e_ident) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return fail(ENOEXEC);
  ElfFile file;
  file.is_64_bit = head.e_ident[EI_CLASS] == ELFCLASS64;
  // Up to e_machine, the headers for 32 and 64 bits are the same.
  if (!reader.read(offsetof(Elf64_Ehdr, e_machine), file.machine)) return fail(ENOEXEC);
  const bool is_of_own_order = head.e_ident[EI_DATA] == kOwnOrder;
  if (!is_of_own_order) file.machine = __builtin_bswap16(file.machine);
  if (!file.is_64_bit || !is_of_own_order) return file;
  if (!reader.read(0, head) || head.e_phentsize != sizeof(Elf64_Phdr)) return fail(ENOEXEC);

  const std::vector<Elf64_Phdr> segments =
      reader.table<Elf64_Phdr>(head.e_phoff, uint64_t{head.e_phnum} * sizeof(Elf64_Phdr));
  for (const Elf64_Phdr& one : segments) {
    if (one.p_type == PT_INTERP) file.interpreter = reader.text(one.p_offset, one.p_filesz);
  }
  for (const Elf64_Phdr& one : segments) {
    if (one.p_type != PT_DYNAMIC) continue;
    file.dynamic = true;
    read_dynamic(reader, segments, one, file);
    if (head.e_type != ET_DYN) file.is_library = false;
  }
  return file;
}

ElfFile own_elf_file() {
  return read_elf_file("/proc/self/exe").value_or(ElfFile{});
}

}  // namespace verbena::commands::doctor
