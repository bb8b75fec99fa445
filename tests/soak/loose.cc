// SPDX-License-Identifier: Apache-2.0
#include "soak/loose.h"

#include <cerrno>
#include <cstring>
#include <span>

#include <arpa/inet.h>

namespace verbena::soak {
namespace {

constexpr uint64_t kReceiveMark = uint64_t{1} << 63;
constexpr uint64_t kPatternOf = 0x5851'f42d'4c95'7f2d;

bool modify(ibv_qp* qp, ibv_qp_attr attributes, int mask) {
  const int error = ibv_modify_qp(qp, &attributes, mask);
  if (error != 0) errno = error;
  return error == 0;
}

bool to_init(ibv_qp* qp, int more) {
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = 1;
  init.qkey = kQkey;
  init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  return modify(qp, init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | more);
}

bool to_rts(ibv_qp* qp) {
  ibv_qp_attr rts{};
  rts.qp_state = IBV_QPS_RTS;
  return modify(qp, rts, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

}  // namespace

std::string check_loose(const std::byte* message, uint32_t bytes, LooseHeader& header) {
  if (bytes < sizeof header) return "a message shorter than any that is sent";
  std::memcpy(&header, message, sizeof header);
  if (header.bytes != bytes) return "a message of another length than it says";
  const std::span<const std::byte> rest(message + sizeof header, bytes - sizeof header);
  return is_filled(rest, header.seed ^ (header.number * kPatternOf)) ? "" : "a message with other bytes";
}

// ---- UC

std::unique_ptr<Loose> Loose::create(ibv_pd* pd, ibv_cq* cq, ibv_qp* ud, uint64_t seed) {
  std::unique_ptr<Loose> made(new Loose(ud, seed));
  return made->make(pd, cq) ? std::move(made) : nullptr;
}

bool Loose::make(ibv_pd* pd, ibv_cq* cq) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.cap = {kLooseDepth, kLooseDepth, 1, 1, 0};
  wanted.qp_type = IBV_QPT_UC;
  wanted.sq_sig_all = 1;
  uc_ = ibv_create_qp(pd, &wanted);
  slots_.resize(size_t{kLooseDepth} * kMaxMessage);
  buffers_.resize(slots_.size());
  slots_region_ = ibv_reg_mr(pd, slots_.data(), slots_.size(), 0);
  buffers_region_ = ibv_reg_mr(pd, buffers_.data(), buffers_.size(), IBV_ACCESS_LOCAL_WRITE);
  if (uc_ == nullptr || slots_region_ == nullptr || buffers_region_ == nullptr) return false;
  if (!to_init(uc_, IBV_QP_ACCESS_FLAGS)) return false;
  for (uint32_t buffer = 0; buffer < kLooseDepth; ++buffer) {
    if (!post_receive(buffer)) return false;
  }
  return true;
}

Loose::~Loose() {
  if (ah_ != nullptr) ibv_destroy_ah(ah_);
  if (uc_ != nullptr) ibv_destroy_qp(uc_);
  for (ibv_mr* const region : {slots_region_, buffers_region_}) {
    if (region != nullptr) ibv_dereg_mr(region);
  }
}

bool Loose::connect(const ibv_qp_attr& path, const Greeting& theirs) {
  theirs_ = theirs;
  ibv_qp_attr rtr{};
  rtr.qp_state = IBV_QPS_RTR;
  rtr.ah_attr = path.ah_attr;
  rtr.path_mtu = path.path_mtu;
  rtr.dest_qp_num = theirs.uc_qpn;
  if (!modify(uc_, rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN))
    return false;
  if (!to_rts(uc_)) return false;
  ah_ = ibv_create_ah(ud_->pd, &rtr.ah_attr);
  return ah_ != nullptr;
}

bool Loose::post_receive(uint32_t buffer) {
  ibv_sge piece{reinterpret_cast<uintptr_t>(buffers_.data() + size_t{buffer} * kMaxMessage), kMaxMessage,
                buffers_region_->lkey};
  ibv_recv_wr wr{};
  wr.wr_id = kReceiveMark | buffer;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  return ibv_post_recv(uc_, &wr, &refused) == 0;
}

uint32_t Loose::write_message(std::byte* to, uint64_t number, uint32_t most) {
  LooseHeader header{seed_, number, 0, 0};
  const uint32_t least = sizeof header;
  header.bytes = least + (draw_.one_in(3) ? draw_.below(most - least + 1) : draw_.below(64));
  std::memcpy(to, &header, sizeof header);
  fill({to + sizeof header, header.bytes - sizeof header}, seed_ ^ (number * kPatternOf));
  return header.bytes;
}

void Loose::go_on() {
  if (stopped_) return;
  if (posted_ - finished_ < kLooseDepth) send_uc();
  if (draw_.one_in(2)) send_datagram();
}

void Loose::send_uc() {
  std::byte* const slot = slots_.data() + posted_ % kLooseDepth * kMaxMessage;
  ibv_sge piece{reinterpret_cast<uintptr_t>(slot), write_message(slot, posted_, kMaxMessage),
                slots_region_->lkey};
  ibv_send_wr wr{};
  wr.wr_id = posted_;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  if (draw_.one_in(3)) {
    wr.opcode = draw_.one_in(2) ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = htonl(piece.length);
    wr.wr.rdma.remote_addr =
        theirs_.window + uint64_t{kCells} * theirs_.cell_bytes + draw_.below(kLooseBytes - kMaxMessage);
    wr.wr.rdma.rkey = theirs_.uc_key;
  }
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(uc_, &wr, &refused) == 0) ++posted_;
}

// Sent inline, so that the memory may be reused at once. A datagram without room in the queue counts as lost.
void Loose::send_datagram() {
  std::byte message[kMaxDatagram];
  ibv_sge piece{reinterpret_cast<uintptr_t>(message), write_message(message, datagrams_, 200), 0};
  ibv_send_wr wr{};
  wr.wr_id = datagrams_++;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
  wr.wr.ud = {ah_, theirs_.ud_qpn, kQkey};
  ibv_send_wr* refused = nullptr;
  [[maybe_unused]] const int error = ibv_post_send(ud_, &wr, &refused);
}

std::string Loose::complete(const ibv_wc& completion, uint64_t& arrived) {
  if (completion.status != IBV_WC_SUCCESS) return ibv_wc_status_str(completion.status);
  if ((completion.wr_id & kReceiveMark) == 0) {
    if (completion.wr_id != finished_) return "a completion out of turn";
    ++finished_;
    return "";
  }
  std::string complaint = receive(completion);
  ++arrived;
  if (!post_receive(static_cast<uint32_t>(completion.wr_id))) complaint += "a receive is refused";
  return complaint;
}

std::string Loose::receive(const ibv_wc& completion) {
  if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM)
    return ntohl(completion.imm_data) == completion.byte_len ? "" : "a WRITE of another length";
  const auto buffer = static_cast<uint32_t>(completion.wr_id);
  LooseHeader header;
  std::string complaint =
      check_loose(buffers_.data() + size_t{buffer} * kMaxMessage, completion.byte_len, header);
  if (!complaint.empty()) return complaint;
  if (header.seed != theirs_.seed) return "a message of somebody else";
  if (header.number < next_expected_) return "a message out of turn, or once more";
  next_expected_ = header.number + 1;
  return "";
}

// ---- UD

std::unique_ptr<Datagrams> Datagrams::create(ibv_pd* pd, ibv_cq* cq) {
  std::unique_ptr<Datagrams> made(new Datagrams());
  return made->make(pd, cq) ? std::move(made) : nullptr;
}

bool Datagrams::make(ibv_pd* pd, ibv_cq* cq) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.cap = {256, kReceives, 1, 1, 256};
  wanted.qp_type = IBV_QPT_UD;
  qp_ = ibv_create_qp(pd, &wanted);
  buffers_.resize(size_t{kReceives} * kBufferBytes);
  region_ = ibv_reg_mr(pd, buffers_.data(), buffers_.size(), IBV_ACCESS_LOCAL_WRITE);
  if (qp_ == nullptr || region_ == nullptr || !to_init(qp_, IBV_QP_QKEY)) return false;
  for (uint32_t buffer = 0; buffer < kReceives; ++buffer) {
    if (!post_receive(buffer)) return false;
  }
  ibv_qp_attr rtr{};
  rtr.qp_state = IBV_QPS_RTR;
  return modify(qp_, rtr, IBV_QP_STATE) && to_rts(qp_);
}

Datagrams::~Datagrams() {
  if (qp_ != nullptr) ibv_destroy_qp(qp_);
  if (region_ != nullptr) ibv_dereg_mr(region_);
}

bool Datagrams::post_receive(uint32_t buffer) {
  ibv_sge piece{reinterpret_cast<uintptr_t>(buffers_.data() + size_t{buffer} * kBufferBytes), kBufferBytes,
                region_->lkey};
  ibv_recv_wr wr{};
  wr.wr_id = kReceiveMark | buffer;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  return ibv_post_recv(qp_, &wr, &refused) == 0;
}

bool Datagrams::comes_again(const LooseHeader& header) {
  auto [at, is_first] = seen_.try_emplace(header.seed, Seen{header.number, 0});
  if (is_first) return false;
  Seen& seen = at->second;
  if (header.number > seen.newest) {
    const uint64_t steps = header.number - seen.newest;
    seen.before = steps < 64 ? (seen.before << steps | uint64_t{1} << (steps - 1)) : 0;
    seen.newest = header.number;
    return false;
  }
  const uint64_t back = seen.newest - header.number;
  if (back == 0) return true;
  if (back > 64) return false;
  const uint64_t bit = uint64_t{1} << (back - 1);
  const bool again = (seen.before & bit) != 0;
  seen.before |= bit;
  return again;
}

std::string Datagrams::complete(const ibv_wc& completion, uint64_t& arrived) {
  if (completion.status != IBV_WC_SUCCESS) return ibv_wc_status_str(completion.status);
  if ((completion.wr_id & kReceiveMark) == 0) return "";
  const auto buffer = static_cast<uint32_t>(completion.wr_id);
  std::string complaint;
  if (completion.byte_len < kGrhBytes || (completion.wc_flags & IBV_WC_GRH) == 0) {
    complaint = "a datagram without its GRH";
  } else {
    LooseHeader header;
    const std::byte* const message = buffers_.data() + size_t{buffer} * kBufferBytes + kGrhBytes;
    complaint = check_loose(message, completion.byte_len - kGrhBytes, header);
    if (complaint.empty() && comes_again(header)) complaint = "a datagram once more";
  }
  ++arrived;
  if (!post_receive(buffer)) complaint += "a receive is refused";
  return complaint;
}

}  // namespace verbena::soak
