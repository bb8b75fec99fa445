// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <infiniband/verbs.h>

#include "soak/plan.h"

namespace verbena::soak {

inline constexpr uint32_t kQkey = 0x4711;
inline constexpr uint32_t kGrhBytes = 40;
inline constexpr uint32_t kMaxDatagram = 900;  // fits any path MTU here
inline constexpr uint32_t kLooseDepth = 8;

// What every message that may be lost begins with: whose it is, and which, so that all of its bytes are
// known.
struct LooseHeader {
  uint64_t seed;
  uint64_t number;
  uint32_t bytes;  // with this
  uint32_t reserved;
};
static_assert(sizeof(LooseHeader) == 24);

// Checks what has arrived. Empty: it is as it was sent.
std::string check_loose(const std::byte* message, uint32_t bytes, LooseHeader& header);

// Beside an RC connection: a UC queue pair to the same process, and datagrams from the process's UD queue
// pair to the other's. They may be lost, so nobody waits for them; but what arrives is whole, comes once, and
// on UC in order. For one thread.
class Loose {
 public:
  // Null: errno says why.
  static std::unique_ptr<Loose> create(ibv_pd* pd, ibv_cq* cq, ibv_qp* ud, uint64_t seed);
  ~Loose();
  Loose(const Loose&) = delete;
  Loose& operator=(const Loose&) = delete;

  uint32_t uc_qpn() const { return uc_->qp_num; }
  // `path`: of the RC connection.
  bool connect(const ibv_qp_attr& path, const Greeting& theirs);
  // Sends something, if there is room.
  void go_on();
  void stop() { stopped_ = true; }
  // A completion of the UC queue pair. Empty: as it is to be; else what is wrong with it.
  std::string complete(const ibv_wc& completion, uint64_t& arrived);

 private:
  Loose(ibv_qp* ud, uint64_t seed) : ud_(ud), seed_(seed), draw_(seed * 3) {}
  bool make(ibv_pd* pd, ibv_cq* cq);
  bool post_receive(uint32_t buffer);
  uint32_t write_message(std::byte* to, uint64_t number, uint32_t most);
  void send_uc();
  void send_datagram();
  std::string receive(const ibv_wc& completion);

  ibv_qp* const ud_;
  const uint64_t seed_;
  Sequence draw_;
  Greeting theirs_{};
  ibv_qp* uc_ = nullptr;
  ibv_ah* ah_ = nullptr;
  bool stopped_ = false;
  std::vector<std::byte> slots_;
  std::vector<std::byte> buffers_;
  ibv_mr* slots_region_ = nullptr;
  ibv_mr* buffers_region_ = nullptr;
  uint64_t posted_ = 0;
  uint64_t finished_ = 0;
  uint64_t datagrams_ = 0;
  uint64_t next_expected_ = 0;
};

// The process's UD queue pair and its receives. Who sends there is not known beforehand.
class Datagrams {
 public:
  // Null: errno says why.
  static std::unique_ptr<Datagrams> create(ibv_pd* pd, ibv_cq* cq);
  ~Datagrams();
  Datagrams(const Datagrams&) = delete;
  Datagrams& operator=(const Datagrams&) = delete;

  ibv_qp* qp() const { return qp_; }
  std::string complete(const ibv_wc& completion, uint64_t& arrived);

 private:
  static constexpr uint32_t kReceives = 256;
  static constexpr uint32_t kBufferBytes = kGrhBytes + kMaxDatagram;
  // The numbers of a sender that have come: the newest, and which of the 64 before it.
  struct Seen {
    uint64_t newest = 0;
    uint64_t before = 0;
  };

  Datagrams() = default;
  bool make(ibv_pd* pd, ibv_cq* cq);
  bool post_receive(uint32_t buffer);
  bool comes_again(const LooseHeader& header);

  ibv_qp* qp_ = nullptr;
  std::vector<std::byte> buffers_;
  ibv_mr* region_ = nullptr;
  std::unordered_map<uint64_t, Seen> seen_;  // by seed
};

}  // namespace verbena::soak
