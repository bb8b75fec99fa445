// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

#include "commands/rdma_core/common/handles.h"
#include "commands/rdma_core/verbs/pingpong/pingpong.h"

namespace verbena::rdma_core {

// Wrappers for static functions of verbs.h, which would give each source file a handle type of its own.
inline int free_device_memory(ibv_dm* memory) {
  return ibv_free_dm(memory);
}
inline int close_xrc_domain(ibv_xrcd* domain) {
  return ibv_close_xrcd(domain);
}

using Context = Handle<ibv_context, ibv_close_device>;
using DeviceMemory = Handle<ibv_dm, free_device_memory>;
using SharedQueue = Handle<ibv_srq, ibv_destroy_srq>;
using XrcDomain = Handle<ibv_xrcd, close_xrc_domain>;
using Memory = Handle<char, std::free>;

// Destroys an object now, if there is one. Fails with `sentence` if that is not possible.
template <class Handle, class Function>
void destroy(Handle& handle, Function function, const std::string& sentence) {
  if (handle) check(function(handle.release()), sentence);
}

// Q_Key of UD queue pairs, as in rdma-core's programs.
inline constexpr uint32_t kQueueKey = 0x11111111;

// The common part of the ends of all pingpongs: the device, the buffer, the completion queue of received
// messages, and the steps of a queue pair's setup. A function that fails throws a Failure after its message.
// Single-threaded.
class PingpongEnd {
 public:
  PingpongEnd(const PingpongEnd&) = delete;
  PingpongEnd& operator=(const PingpongEnd&) = delete;

  // With Settings::events: ask_for_event() requests an event for the next completion. await_event() waits for
  // that event and requests the next one.
  void ask_for_event();
  void await_event();

 protected:
  PingpongEnd(const PingpongProgram& program, const Settings& settings);
  ~PingpongEnd() { acknowledge_events(); }

  void allocate(size_t size);
  void open_device(ibv_device* device);
  void make_domain();  // and the completion channel, with Settings::events
  ibv_device_attr_ex query() const;
  // Adds on-demand paging to `access_`, the access flags of the memory region. Fails if `device` does not
  // support what the program needs. `has`: the device's ibv_odp_transport_cap_bits for the program's
  // transport.
  void use_on_demand(const ibv_device_attr_ex& device, uint32_t has);
  // Returns the attributes of the port. `complaint` begins the message about a failed query.
  ibv_port_attr query_port(const std::string& complaint) const;
  // Returns the LID of the port, 0 for Ethernet. Fails if an InfiniBand port has no LID yet. `complaint` is
  // as for query_port().
  uint32_t find_lid(const char* complaint) const;
  // Returns the GID of Settings::gid_index; zeros if that is negative.
  ibv_gid find_gid() const;

  // The peer's queue pair. `psn` is the PSN of the first packet that it sends.
  struct Remote {
    uint32_t lid;
    ibv_gid gid;
    uint32_t qpn;
    uint32_t psn;
  };
  // Move a queue pair, called `name` in messages, to INIT, and from there to RTS. `psn` is the PSN of the
  // first packet that we send. The masks name the attributes to set for RTR and for RTS.
  void initialize(ibv_qp* queue_pair, const std::string& name, unsigned access = 0);
  void make_ready(ibv_qp* queue_pair, const std::string& name, const Remote& remote, uint32_t psn,
                  int receive_mask, int send_mask);
  // Returns the path to the peer, with a GRH if the peer has a GID.
  ibv_ah_attr path_to(uint32_t lid, const ibv_gid& gid) const;
  // Returns a remedy to print after a queue pair could not be connected to the peer with GID `remote`. The
  // remedy is another MTU or another GID.
  std::string path_remedy(const ibv_gid& remote) const;

  // Acknowledges all events, as destroying a completion queue requires.
  void acknowledge_events();
  // Destroys domain_, channel_ and context_, in this order. REQUIRES: all objects that were made from them
  // are destroyed, including completions_
  void close_device();

  bool datagrams() const { return program_.type == IBV_QPT_UD; }
  bool extended_reliable() const { return program_.type == IBV_QPT_XRC_SEND; }
  uint8_t port() const { return static_cast<uint8_t>(settings_.ib_port); }

  const PingpongProgram& program_;
  const Settings& settings_;
  const size_t page_;
  int access_ = IBV_ACCESS_LOCAL_WRITE;
  unsigned events_ = 0;

  Memory buffer_;
  Context context_;
  CompletionChannel channel_;
  Domain domain_;
  CompletionQueue completions_;

 private:
  void modify(ibv_qp* queue_pair, ibv_qp_attr& attributes, int mask, const std::string& name,
              const char* state);
};

// Attributes that every connected queue pair needs for RTR.
inline constexpr int kConnected =
    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

// Returns a random PSN.
inline uint32_t new_psn() {
  return static_cast<uint32_t>(lrand48()) & 0xffffff;
}

}  // namespace verbena::rdma_core
