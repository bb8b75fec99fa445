// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "commands/rdma_core/verbs/pingpong/address.h"
#include "commands/rdma_core/verbs/pingpong/handles.h"
#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {

// What a work request is: its wr_id, and a bit of what a queue pair still waits for.
enum Work : uint64_t { kReceive = 1, kSend = 2 };

// Of UD's queue pairs, as the originals have it.
inline constexpr uint32_t kQueueKey = 0x11111111;

struct Completion {
  uint64_t id;
  ibv_wc_status status;
  uint32_t qpn;
  uint64_t timestamp;  // 0 without Settings::timestamps
};

// One end of a pingpong over RC, UC or UD: a buffer and queue pairs that send it and receive into it. Each
// step that fails complains, and the program then ends. Used by one thread.
class Endpoint {
 public:
  Endpoint(const PingpongProgram& program, const Settings& settings);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // All up to queue pairs that can receive.
  bool open(ibv_device* device);

  // Where each queue pair is to be reached, with random PSNs.
  std::optional<std::vector<Address>> addresses() const;

  // From `local`, an answer of addresses(), to the other end's.
  bool connect(std::span<const Address> local, std::span<const Address> remote);

  // How many of so many could be posted.
  unsigned post_receives(unsigned count);
  bool post_send(size_t queue_pair);

  // With Settings::events: asks to be told of the next completion; sleeps until one is there, and asks again.
  bool ask_for_event();
  bool await_event();
  // What has completed, at most as much as there is room; nothing after a complaint.
  std::optional<size_t> poll(std::span<Completion> completions);

  // Which queue pair has that number.
  std::optional<size_t> find(uint32_t qpn) const;

  // With Settings::check: a mark in each page, and which pages do not have it in what came last. The mark is
  // 0, and the buffer of the side that is sent to has something else there.
  void mark_pages();
  std::optional<std::vector<size_t>> wrong_pages();
  // Copies the buffer to the device's memory, if that is what is sent.
  bool load_device_memory();

  uint64_t timestamp_mask() const { return timestamp_mask_; }

  bool close();

 private:
  // A queue cannot be destroyed before each of its events is acknowledged.
  void acknowledge_events();
  bool allocate();
  bool fits_port() const;
  bool has_features();
  bool takes_device_memory(const ibv_device_attr_ex& attributes);
  bool register_memory();
  void prefetch();
  bool make_completion_queue();
  bool make_queue_pairs();
  QueuePair make_queue_pair();
  bool initialize(size_t index);
  bool make_ready(size_t index, const Address& local, const Address& remote);
  bool make_address_handle(const Address& remote);
  bool modify(size_t index, ibv_qp_attr& attributes, int mask, const char* state);
  ibv_ah_attr path_to(const Address& remote) const;
  std::optional<size_t> poll_with_timestamps(std::span<Completion> completions);

  bool datagrams() const { return program_.type == IBV_QPT_UD; }
  // Of datagrams the first bytes of what is received are the network's header.
  size_t headroom() const;
  ibv_sge piece(bool sent) const;
  std::string name_of(size_t index) const;  // "QP", or with its number

  const PingpongProgram& program_;
  const Settings& settings_;
  size_t page_;
  int access_ = IBV_ACCESS_LOCAL_WRITE;
  unsigned send_flags_ = IBV_SEND_SIGNALED;
  unsigned events_ = 0;
  uint32_t remote_qpn_ = 0;  // of datagrams
  uint64_t timestamp_mask_ = 0;
  std::vector<ibv_wc> polled_;

  Memory buffer_;
  Context context_;
  Channel channel_;
  Domain domain_;
  DeviceMemory device_memory_;
  Region region_;
  CompletionQueue completions_;
  ibv_cq_ex* extended_ = nullptr;  // of completions_, with timestamps
  SharedQueue shared_;
  std::vector<QueuePair> queue_pairs_;
  AddressHandle handle_;
};

// The path to the other end: by its GID where it told one.
ibv_ah_attr path_to(const Settings& settings, uint16_t lid, const ibv_gid& gid, uint8_t hops);

// What to do when no queue pair can be connected along that path.
std::string path_remedy(ibv_context* context, const Settings& settings, const ibv_gid& remote);

}  // namespace verbena::rdma_core
