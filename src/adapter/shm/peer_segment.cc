// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/peer_segment.h"

#include <cerrno>
#include <utility>

#include <sys/ipc.h>
#include <sys/shm.h>
#include <unistd.h>

#include "base/same_file.h"

namespace verbena::engine {
namespace {

// A thread may be in another namespace than its process.
bool shares_our_namespace(const ProcessFolder& process) {
  struct stat ours {};
  const auto theirs = process.look_at("ns/ipc");
  if (!theirs || ::stat("/proc/thread-self/ns/ipc", &ours) != 0) return false;
  return is_same_file(ours, *theirs);
}

// A whole segment; detached unless taken over.
class Attachment {
 public:
  Attachment(int segment, bool writable) : at_(::shmat(segment, nullptr, writable ? 0 : SHM_RDONLY)) {
    if (!*this) error_ = errno;
  }
  ~Attachment() {
    if (*this) ::shmdt(at_);
  }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  explicit operator bool() const { return at_ != reinterpret_cast<void*>(-1); }
  int error() const { return error_; }

  uint64_t begin() const { return reinterpret_cast<uintptr_t>(at_); }
  // What the kernel shows of it.
  std::optional<SharedStretch> shown() const {
    const auto ourselves = ProcessFolder::open(::getpid());
    if (!ourselves) return std::nullopt;
    const auto map = ProcessMap::read(*ourselves);
    return map ? map->find(begin(), begin() + 1) : std::nullopt;
  }
  memory::FileMapping take_over(uint64_t bytes) {
    return memory::FileMapping::adopt(std::exchange(at_, reinterpret_cast<void*>(-1)), bytes);
  }

 private:
  void* at_;
  int error_ = 0;
};

Result<memory::FileMapping> attach(int segment, const SharedStretch& stretch, uint64_t length,
                                   bool writable) {
  Attachment attachment(segment, writable);
  if (!attachment) return fail(attachment.error());
  const auto shown = attachment.shown();
  const bool is_it = shown && shown->file == stretch.file && shown->path == stretch.path &&
                     shown->offset == 0 && shown->mapping_begin == attachment.begin();
  if (!is_it) return fail(ENOENT);
  const uint64_t bytes = shown->mapping_end - shown->mapping_begin;
  if (stretch.offset > bytes || length > bytes - stretch.offset) return fail(ENOENT);
  memory::FileMapping mapping = attachment.take_over(bytes);
  mapping.narrow(stretch.offset, length);
  return mapping;
}

}  // namespace

Result<PeerMapping> attach_peer_segment(const ProcessFolder& process, const SharedStretch& stretch,
                                        uint64_t length) {
  const auto segment = segment_behind(stretch);
  if (!segment || !shares_our_namespace(process)) return fail(ENOENT);
  bool writable = stretch.writable;
  auto mapping = attach(*segment, stretch, length, writable);
  if (!mapping && mapping.error().code == EACCES && writable) {
    writable = false;
    mapping = attach(*segment, stretch, length, writable);
  }
  if (!mapping) return tl::unexpected(mapping.error());
  return PeerMapping{std::move(*mapping), writable};
}

}  // namespace verbena::engine
