// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <sys/socket.h>

#include "adapter/transport/packet_io.h"
#include "base/own_fd.h"
#include "wire/roce/path.h"

namespace verbena::net {

// A pool of memory blocks for a Sender's super-packets (SendRun) that may be sent without a copy
// (SplicePipe). A block is free when nobody holds a pin on it. take() returns the first free block, so that
// few blocks occupy the CPU cache.
//
// A receiver may acknowledge packets that it has not read from its socket yet. Then the block's pins are gone
// while the kernel's queued packets still refer to the block, and the receiver later reads what the block
// holds by that time. So a block that was spliced for one receiver is never used for another: no receiver
// sees data that are meant for another.
//
// The pool consists of two huge pages where these are available, since the kernel looks up parts of a huge
// page faster. take() and mark() are for one thread at a time.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  // Number of bytes at the beginning of a run that are copied. The rest then occupies at most fifteen whole
  // pages. This fits a packet of the kernel, which refers to at most seventeen pieces of memory: the copied
  // bytes take up to two of them.
  static constexpr size_t kCopiedBytes = 64 + 4096;
  static constexpr uint32_t kBlocks = 60;

  // Returns null if there is no memory for the pool.
  static std::shared_ptr<BlockPool> make() noexcept;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  // A process that can read the packets of a block: the host's address, and the slot of the QPN.
  struct Receiver {
    roce::Address address;
    uint32_t slot;
    bool operator==(const Receiver&) const = default;
  };
  struct Block {
    std::byte* begin = nullptr;  // SendRun::kBlockBytes long; null if none is free
    transport::BlockPin pin;     // empty if no block is free
  };
  // Returns the first free block that was not spliced for another receiver; an empty Block if there is none.
  Block take(const Receiver& receiver);
  // Records that the block at `begin` was spliced for the receiver. Does nothing if the block is not of this
  // pool.
  void mark(const std::byte* begin, const Receiver& receiver);
  // Returns whether there is a free block that was spliced for a receiver. take() gives such a block only to
  // this receiver.
  bool has_foreign() const;

 private:
  explicit BlockPool(std::byte* mapped) : mapped_(mapped) {}

  std::byte* const mapped_;
  std::array<std::atomic<uint32_t>, kBlocks> pins_{};
  std::array<std::optional<Receiver>, kBlocks> receivers_{};
};

// Sends a datagram or super-packet without copying it: the kernel's packet refers to the pages of the
// sender's memory. The pages go through a pipe to the socket (vmsplice(2), splice(2)). The first bytes are
// copied by sendmsg(2) with MSG_MORE, since only sendmsg() can name the destination and the control messages.
// The socket appends the spliced bytes to the copied ones.
//
// If splicing fails, this datagram and the next kBackOff are sent by copy. Reasons are a sandbox that forbids
// the calls, or a user's limit for pipe memory (pipe(7)). One thread at a time.
class SplicePipe {
 public:
  // Minimum size in bytes for sending without a copy: for less, a copy is cheaper than two system calls.
  static constexpr size_t kLeastBytes = 16384;
  // After a splice failure, this many datagrams are sent by copy before splicing is tried again.
  static constexpr uint32_t kBackOff = 10'000;

  // Sends the message, of which the first `copied` bytes are copied, and returns what sendmsg() would return.
  // The bytes behind them must stay unchanged until the receiver has taken the datagram. REQUIRES: the
  // message has one piece of memory, of more than `copied` bytes
  ssize_t send(int socket, msghdr& message, size_t copied);

  // Returns false if the application has closed the pipe, whose descriptor numbers may now be other files'.
  bool is_whole() const { return !in_ || (in_.is_ours() && out_.is_ours()); }

  // Returns how many datagrams were sent without a copy.
  uint64_t spliced() const { return spliced_; }

 private:
  bool is_ready();
  bool open();
  void back_off(const char* what, int error);

  OwnFd in_;
  OwnFd out_;
  uint32_t by_copy_ = 0;
  uint64_t spliced_ = 0;
};

}  // namespace verbena::net
