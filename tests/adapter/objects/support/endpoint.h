// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include "base/cancellation_off.h"
#include "base/epoll_sets.h"

namespace verbena::adapter::testing {

// Owners of the ABI's objects. Every test checks that its objects can be destroyed.
template <auto destroy>
struct Destroy {
  template <class Object>
  void operator()(Object* object) const {
    EXPECT_EQ(destroy(object), 0);
  }
};
// Also checks that the device's threads keep no epoll set in another.
struct CloseDevice {
  void operator()(ibv_context* context) const {
    {
      const CancellationOff reads_files;
      EXPECT_EQ(test::nested_epoll_sets(), std::vector<std::string>());
    }
    EXPECT_EQ(ibv_close_device(context), 0);
  }
};
using Context = std::unique_ptr<ibv_context, CloseDevice>;
using Pd = std::unique_ptr<ibv_pd, Destroy<ibv_dealloc_pd>>;
using Mr = std::unique_ptr<ibv_mr, Destroy<ibv_dereg_mr>>;
using Channel = std::unique_ptr<ibv_comp_channel, Destroy<ibv_destroy_comp_channel>>;
using Cq = std::unique_ptr<ibv_cq, Destroy<ibv_destroy_cq>>;
using Qp = std::unique_ptr<ibv_qp, Destroy<ibv_destroy_qp>>;
using Ah = std::unique_ptr<ibv_ah, Destroy<ibv_destroy_ah>>;

inline constexpr unsigned kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr uint32_t kQkey = 0x11111111;

// Opens a device. Throws, which fails the test, if there is none.
Context open_device(const std::string& name = "rxe_lo");
// Returns the index of an IPv4 (or IPv6) GID that is not link-local; -1 if there is none.
int find_gid(ibv_context* context, bool ipv4 = true);

// The data that the two ends exchange, as plain bytes over any connection.
struct Address {
  ibv_gid gid{};
  uint32_t qpn = 0;
  uint32_t psn = 0;
  uint32_t rkey = 0;
  uint32_t bytes = 0;
  uint64_t buffer = 0;
};

struct Options {
  ibv_qp_type type = IBV_QPT_RC;
  ibv_qp_cap cap = {
      .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 8, .max_recv_sge = 8, .max_inline_data = 256};
  int cqe = 256;
  bool signal_all = false;
  bool with_channel = false;
  uint64_t fields = 0;    // of enum ibv_create_cq_wc_flags; nonzero creates an extended CQ
  uint32_t cq_flags = 0;  // of enum ibv_create_cq_attr_flags, for an extended CQ
  bool ipv4 = true;
  size_t bytes = 1 << 16;
  unsigned access = kAllAccess;
  ibv_mtu mtu = IBV_MTU_1024;
  uint8_t timeout = 14;
  uint8_t retries = 7;
  uint8_t rnr_retries = 7;
  uint8_t max_rd_atomic = 16;
  uint64_t send_operations = 0;  // for ibv_wr_*: enum ibv_qp_create_send_ops_flags
  uint32_t create_flags = 0;     // IBV_QP_CREATE_...
  std::string device = "rxe_lo";
};

// One of each object: a context, a QP, a CQ for both of its queues, and a registered buffer.
class Endpoint {
 public:
  explicit Endpoint(const Options& options = {});

  Address address() const;
  // Takes the QP to RTS. UD needs no peer; with one, it gets an address handle for the peer.
  void connect(const Address& peer);

  std::byte* buffer() { return buffer_.data(); }
  std::span<std::byte> bytes() { return buffer_; }
  // Returns an SGE for a part of the buffer.
  ibv_sge piece(size_t offset, size_t length) const;

  // Each posts one request and returns the errno value.
  int post_send(ibv_send_wr request, std::span<const ibv_sge> list);
  int post_receive(uint64_t wr_id, std::span<const ibv_sge> list);
  int post_receive(uint64_t wr_id, ibv_sge piece) { return post_receive(wr_id, {&piece, 1}); }

  // Polls for a completion. After ten seconds fails the test and returns status IBV_WC_GENERAL_ERR.
  ibv_wc completion();
  // Whether the CQ is empty now.
  bool quiet();

  ibv_qp_state state() const;
  void modify_to(ibv_qp_state state);

  Options options;
  Context context;
  Pd pd;
  Channel channel;
  Cq cq;
  ibv_cq_ex* extended_cq() { return reinterpret_cast<ibv_cq_ex*>(cq.get()); }

 private:
  std::vector<std::byte> buffer_;

 public:
  Mr mr;
  Ah ah;  // for UD: the peer's address handle
  Qp qp;
  Address peer{};
};

// Two endpoints that are connected to each other.
struct Pair {
  explicit Pair(const Options& options = {}) : Pair(options, options) {}
  Pair(const Options& of_a, const Options& of_b) : a(of_a), b(of_b) {
    a.connect(b.address());
    b.connect(a.address());
  }

  Endpoint a;
  Endpoint b;
};

// Return requests with defaults for tests: signaled, and to the start of the peer's buffer.
ibv_send_wr send_request(uint64_t wr_id, unsigned flags = IBV_SEND_SIGNALED);
ibv_send_wr remote_request(ibv_wr_opcode opcode, uint64_t wr_id, const Address& peer, uint64_t offset = 0,
                           unsigned flags = IBV_SEND_SIGNALED);

// The attributes and masks for ibv_modify_qp() to INIT, RTR and RTS.
ibv_qp_attr init_attributes(const Options& options);
int init_mask(ibv_qp_type type);
ibv_qp_attr rtr_attributes(const Endpoint& endpoint, const Address& peer);
int rtr_mask(ibv_qp_type type);
ibv_qp_attr rts_attributes(const Endpoint& endpoint);
int rts_mask(ibv_qp_type type);

// Fills with pseudo-random bytes that depend only on the seed.
void fill_random(std::span<std::byte> bytes, uint64_t seed);

}  // namespace verbena::adapter::testing
