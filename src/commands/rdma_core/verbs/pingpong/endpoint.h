// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "commands/rdma_core/verbs/pingpong/end.h"
#include "commands/rdma_core/verbs/pingpong/exchange.h"

namespace verbena::rdma_core {

// The wr_id of work requests. The values are also bits for the completions that a queue pair still waits for.
enum Work : uint64_t { kReceive = 1, kSend = 2 };

struct Completion {
  uint64_t id;
  ibv_wc_status status;
  uint32_t qpn;
  uint64_t timestamp;  // in device clock cycles; 0 without Settings::timestamps
};

// One end of a pingpong over RC, UC or UD: a buffer, and queue pairs that send it and receive into it.
// Functions return false or nullopt after reporting an error.
class Endpoint : public PingpongEnd {
 public:
  Endpoint(const PingpongProgram& program, const Settings& settings) : PingpongEnd(program, settings) {}

  // Creates all objects and moves the queue pairs to INIT, so that receives can be posted.
  bool open(ibv_device* device);

  // Returns the address of each queue pair, with a new random PSN. Call it once, before connect().
  std::optional<std::vector<Address>> addresses() const;

  // Moves the queue pairs to RTS. `local` is the result of addresses(), `remote` the peer's addresses.
  bool connect(std::span<const Address> local, std::span<const Address> remote);

  // Posts up to `count` receives and returns the number posted. Reports no error.
  unsigned post_receives(unsigned count);
  // Posts a signaled send of the buffer to the queue pair with this index.
  bool post_send(size_t queue_pair);

  // Polls once for completions. Returns their number, which may be 0, or nullopt after reporting an error.
  std::optional<size_t> poll(std::span<Completion> completions);

  // Returns the index of the queue pair with this number, or nullopt if there is none.
  std::optional<size_t> find(uint32_t qpn) const;

  // With Settings::check: mark_pages() writes a 0 into each page of the message that the client sends.
  // wrong_pages() returns the indices of pages without a 0 in the message that the server received last. The
  // server's buffer initially holds other values.
  void mark_pages();
  std::optional<std::vector<size_t>> wrong_pages();
  // Copies the buffer to device memory, if Settings::device_memory is set. Call it before the first send.
  bool load_device_memory();

  uint64_t timestamp_mask() const { return timestamp_mask_; }

  // Destroys all objects. Returns false, after reporting the error, if one cannot be destroyed.
  bool close();

 private:
  bool fits_port() const;
  bool has_features();
  bool takes_device_memory(const ibv_device_attr_ex& attributes);
  bool register_memory();
  void prefetch();
  bool make_completion_queue();
  bool make_queue_pairs();
  QueuePair make_queue_pair();
  bool make_address_handle(const Address& remote);
  std::optional<size_t> poll_with_timestamps(std::span<Completion> completions);

  // Returns the bytes of the GRH that precedes a received datagram; 0 for RC and UC.
  size_t headroom() const;
  ibv_sge piece(bool sent) const;
  std::string name_of(size_t index) const;  // "QP", or "QP[index]"

  unsigned send_flags_ = IBV_SEND_SIGNALED;
  uint32_t remote_qpn_ = 0;  // destination of datagrams
  uint64_t timestamp_mask_ = 0;
  std::vector<ibv_wc> polled_;

  DeviceMemory device_memory_;
  Region region_;
  ibv_cq_ex* extended_ = nullptr;  // the same CQ as completions_, for timestamps; null without them
  SharedQueue shared_;
  std::vector<QueuePair> queue_pairs_;
  AddressHandle handle_;
};

}  // namespace verbena::rdma_core
