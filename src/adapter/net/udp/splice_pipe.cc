// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/splice_pipe.h"

#include <bit>
#include <cerrno>
#include <new>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/mman.h>

#include "adapter/net/udp/send_run.h"
#include "adapter/net/udp/system_calls.h"
#include "base/log.h"
#include "base/socket_option.h"

namespace verbena::net {

namespace {

constexpr size_t kPageBytes = 4096;  // or a multiple; then a run occupies fewer pages
constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kPoolBytes = 2 * kHugePageBytes;
// Where a block begins within a page, so that the bytes behind the copied ones begin with a page.
constexpr size_t kBlockAt = kPageBytes - BlockPool::kCopiedBytes % kPageBytes;
constexpr size_t kStride = kBlockAt + SendRun::kBlockBytes;
static_assert(kStride % kPageBytes == 0);
static_assert(SendRun::kMaxBytes - BlockPool::kCopiedBytes <= 15 * kPageBytes);
static_assert(BlockPool::kBlocks * kStride <= kPoolBytes);

std::byte* align_up(std::byte* at, size_t to) {
  return at + (to - std::bit_cast<uintptr_t>(at) % to) % to;
}

// Maps memory that begins with a huge page; null: there is none.
std::byte* map_pool() {
  const size_t bytes = kPoolBytes + kHugePageBytes;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(mapped);
  std::byte* const begin = align_up(first, kHugePageBytes);
  if (begin != first) munmap(first, static_cast<size_t>(begin - first));
  std::byte* const end = begin + kPoolBytes;
  if (end != first + bytes) munmap(end, static_cast<size_t>(first + bytes - end));
  madvise(begin, kPoolBytes, MADV_HUGEPAGE);  // speed only
  return begin;
}

constexpr int kPipeBytes = 65536;  // sixteen pages: the maximum of one call

// Sends the partial datagram that the socket holds back. It is of no use to any receiver.
void let_go(int socket) {
  set_option(socket, IPPROTO_UDP, UDP_CORK, 0);
}

}  // namespace

std::shared_ptr<BlockPool> BlockPool::make() noexcept {
  std::byte* const mapped = map_pool();
  if (mapped == nullptr) return nullptr;
  try {
    return std::shared_ptr<BlockPool>(new BlockPool(mapped));
  } catch (const std::bad_alloc&) {
    munmap(mapped, kPoolBytes);
    return nullptr;
  }
}

BlockPool::~BlockPool() {
  munmap(mapped_, kPoolBytes);
}

BlockPool::Block BlockPool::take(const Receiver& receiver) {
  for (uint32_t i = 0; i < kBlocks; ++i) {
    if (pins_[i].load(std::memory_order_acquire) != 0) continue;
    if (receivers_[i] && *receivers_[i] != receiver) continue;
    return {mapped_ + i * kStride + kBlockAt,
            transport::BlockPin(transport::BlockPin::Count(shared_from_this(), &pins_[i]))};
  }
  return {};
}

void BlockPool::mark(const std::byte* begin, const Receiver& receiver) {
  const auto offset = std::bit_cast<uintptr_t>(begin) - std::bit_cast<uintptr_t>(mapped_);
  if (offset < kBlocks * kStride) receivers_[offset / kStride] = receiver;
}

bool BlockPool::has_foreign() const {
  for (uint32_t i = 0; i < kBlocks; ++i) {
    if (receivers_[i] && pins_[i].load(std::memory_order_acquire) == 0) return true;
  }
  return false;
}

ssize_t SplicePipe::send(int socket, msghdr& message, size_t copied) {
  if (!is_ready()) return system_calls::sendmsg(socket, &message, MSG_DONTWAIT);
  iovec& data = *message.msg_iov;
  const iovec whole = data;
  data.iov_len = copied;
  const ssize_t begun = system_calls::sendmsg(socket, &message, MSG_MORE | MSG_DONTWAIT);
  data = whole;
  if (begun < 0) return begun;

  const iovec rest = {static_cast<std::byte*>(whole.iov_base) + copied, whole.iov_len - copied};
  const auto wanted = static_cast<ssize_t>(rest.iov_len);
  ssize_t got = system_calls::vmsplice(in_.get(), &rest, 1, SPLICE_F_NONBLOCK);
  if (got == wanted) {
    got = system_calls::splice(out_.get(), socket, rest.iov_len, SPLICE_F_NONBLOCK);
    if (got == wanted) {
      ++spliced_;
      return begun + got;
    }
  }
  back_off("splice", got < 0 ? errno : 0);
  let_go(socket);
  return system_calls::sendmsg(socket, &message, MSG_DONTWAIT);
}

bool SplicePipe::is_ready() {
  if (by_copy_ > 0) {
    --by_copy_;
    return false;
  }
  return in_ || open();
}

bool SplicePipe::open() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    back_off("pipe", errno);
    return false;
  }
  out_ = UniqueFd(ends[0]);
  in_ = UniqueFd(ends[1]);
  if (fcntl(in_.get(), F_GETPIPE_SZ) >= kPipeBytes) return true;
  back_off("pipe size", 0);
  return false;
}

void SplicePipe::back_off(const char* what, int error) {
  log_debug("super-packets go by a copy: {} failed with errno {}", what, error);
  in_.reset();  // with whatever is left in it
  out_.reset();
  by_copy_ = kBackOff;
}

}  // namespace verbena::net
