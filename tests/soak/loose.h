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
inline constexpr uint32_t kMaxDatagram = 900;  // fits every path MTU in use
inline constexpr uint32_t kLooseDepth = 8;

// The header of every message that may be lost. Sender and number determine all of its bytes.
struct LooseHeader {
  uint64_t seed;
  uint64_t number;
  uint32_t bytes;  // including this header
  uint32_t reserved;
};
static_assert(sizeof(LooseHeader) == 24);

// Checks a received message. Returns an empty text, or the error.
std::string check_loose(const std::byte* message, uint32_t bytes, LooseHeader& header);

// The unreliable traffic beside an RC connection: a UC queue pair to the same process, and datagrams from
// this process's UD queue pair to the peer's. Messages may be lost, but those that arrive must be intact,
// arrive only once, and on UC in order. Single-threaded.
class Loose {
 public:
  // Null, with errno, on failure.
  static std::unique_ptr<Loose> create(ibv_pd* pd, ibv_cq* cq, ibv_qp* ud, uint64_t seed);
  ~Loose();
  Loose(const Loose&) = delete;
  Loose& operator=(const Loose&) = delete;

  uint32_t uc_qpn() const { return uc_->qp_num; }
  // `path` is that of the RC connection.
  bool connect(const ibv_qp_attr& path, const Greeting& theirs);
  // Sends messages if there is room.
  void go_on();
  void stop() { stopped_ = true; }
  // Handles a completion of the UC queue pair. Returns an empty text, or the error.
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

// The process's UD queue pair and its receives. Senders are not known beforehand.
class Datagrams {
 public:
  // Null, with errno, on failure.
  static std::unique_ptr<Datagrams> create(ibv_pd* pd, ibv_cq* cq);
  ~Datagrams();
  Datagrams(const Datagrams&) = delete;
  Datagrams& operator=(const Datagrams&) = delete;

  ibv_qp* qp() const { return qp_; }
  std::string complete(const ibv_wc& completion, uint64_t& arrived);

 private:
  static constexpr uint32_t kReceives = 256;
  static constexpr uint32_t kBufferBytes = kGrhBytes + kMaxDatagram;
  // The received numbers of a sender: the newest, and a bit mask of the 64 before it.
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
  std::unordered_map<uint64_t, Seen> seen_;  // keyed by seed
};

}  // namespace verbena::soak
