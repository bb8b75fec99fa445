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

// A registered buffer. Destroy it before its protection domain.
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
  // rdma_rxe treats a retry_count of 7 as infinite, even for an unreachable peer, so retry_count is 4.
  std::uint8_t rnr_retry = 7, retry_count = 4, timeout = 14, rnr_timer = 12, reads = 4;
  std::uint32_t qpn_flip = 0;  // changes the peer's QP number to a wrong one
  ibv_srq* shared = nullptr;
};

struct Setting {
  std::string device;
  int gid_index = 0;
  ibv_mtu mtu = IBV_MTU_1024;
};

// The objects that one program uses in all cases (device, protection domain, completion queue), and the
// outcome of the current case as text.
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
  // Sends the address of `pair` and `region` to the peer, and connects to the peer's pair.
  Remote connect(ibv_qp* pair, const Region& region, const PairRules& rules);
  Route route_to(const ibv_gid& gid);

  // Returns `count` completions, or fewer if the time is over.
  std::vector<ibv_wc> completions(std::size_t count, int milliseconds = 8000);
  // Adds text to the outcome.
  void note(const std::string& words);
  void note_check(const char* what, bool good) { note(std::string{what} + (good ? " right" : " WRONG")); }
  // Adds the completions' statuses to the outcome; for receives also the opcode and length, and MISSING for
  // missing ones.
  void note_completions(std::size_t count, int milliseconds = 8000);
  // Adds the pair's state to the outcome, then flushes its `outstanding` requests.
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

// Builds a work request with one SGE; post() posts it.
ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& piece);
int post(ibv_qp* pair, ibv_send_wr& request);
int post_receive(ibv_qp* pair, ibv_sge piece);
std::string name_of(ibv_wc_status status);

}  // namespace verbena::interop
