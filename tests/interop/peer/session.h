// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <infiniband/verbs.h>

#include "interop/peer/exchange.h"

namespace verbena::interop {

constexpr unsigned kAllRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr std::uint32_t kRegion = 64 << 10;
constexpr std::uint32_t kQkey = 0x11111111;

template <auto release>
struct Release {
  template <typename T>
  void operator()(T* object) const {
    release(object);
  }
};
using Domain = std::unique_ptr<ibv_pd, Release<ibv_dealloc_pd>>;
using Queue = std::unique_ptr<ibv_cq, Release<ibv_destroy_cq>>;
using SharedQueue = std::unique_ptr<ibv_srq, Release<ibv_destroy_srq>>;
using Window = std::unique_ptr<ibv_mw, Release<ibv_dealloc_mw>>;
using Route = std::unique_ptr<ibv_ah, Release<ibv_destroy_ah>>;
using Pair = std::unique_ptr<ibv_qp, Release<ibv_destroy_qp>>;

// Memory that is registered. Ends before its domain.
struct Region {
  Region(ibv_pd* domain, unsigned rights, std::uint32_t size = kRegion);

  ibv_sge piece(std::uint32_t length, std::uint32_t at = 0) const;
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(bytes.data()); }

  std::vector<std::uint8_t> bytes;
  std::unique_ptr<ibv_mr, Release<ibv_dereg_mr>> registration;
};

struct Remote {
  std::uint32_t qpn, psn, rkey;
  std::uint64_t address;
  ibv_gid gid;
};

struct PairRules {
  ibv_qp_type type = IBV_QPT_RC;
  unsigned rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  // rdma_rxe takes seven retries for retries without end, also where nobody answers.
  std::uint8_t rnr_retry = 7, retry_count = 4, timeout = 14, rnr_timer = 12, reads = 4;
  std::uint32_t qpn_flip = 0;  // the peer's number is another
  ibv_srq* shared = nullptr;
};

struct Setting {
  std::string device;
  int gid_index = 0;
  ibv_mtu mtu = IBV_MTU_1024;
};

// What one program has for all cases: a device, a domain, a completion queue; and for the case at hand what
// it came to, in words.
class Session {
 public:
  Session(const Setting& setting, Exchange exchange, bool is_client);

  bool is_client() const { return is_client_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  ibv_cq* queue() const { return queue_.get(); }
  const ibv_gid& gid() const { return gid_; }
  Exchange& peer() { return exchange_; }

  Pair make_pair(const PairRules& rules);
  // Tells the peer of the pair and the region, and connects to its own.
  Remote connect(ibv_qp* pair, const Region& region, const PairRules& rules);
  Route route_to(const ibv_gid& gid);

  // As many completions as are wanted; fewer after some seconds.
  std::vector<ibv_wc> completions(std::size_t count, int milliseconds = 8000);
  // Into the outcome.
  void note(const std::string& words);
  void note_check(const char* what, bool good) { note(std::string{what} + (good ? " right" : " WRONG")); }
  // Their statuses, or (of receives) their kind and length as well. What is missing is noted as MISSING.
  void note_completions(std::size_t count, int milliseconds = 8000);
  // The pair's state, then everything that is still posted there is flushed.
  void note_end(ibv_qp* pair, std::size_t outstanding, bool expects_error);
  std::string take_outcome();

 private:
  Setting setting_;
  Exchange exchange_;
  bool is_client_;
  ibv_gid gid_{};
  std::unique_ptr<ibv_context, Release<ibv_close_device>> context_;
  Domain domain_;
  Queue queue_;
  std::string outcome_;
};

// Work requests in their simplest form.
ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& piece);
int post(ibv_qp* pair, ibv_send_wr& request);
int post_receive(ibv_qp* pair, ibv_sge piece);
std::string name_of(ibv_wc_status status);

}  // namespace verbena::interop
