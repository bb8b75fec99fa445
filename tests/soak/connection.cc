// SPDX-License-Identifier: Apache-2.0
#include "soak/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <arpa/inet.h>

namespace verbena::soak {
namespace {

constexpr uint32_t kMaxInline = 64;
constexpr int kWindowAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr int kOthersAccess = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

ibv_mr* register_memory(ibv_pd* pd, std::vector<std::byte>& memory, int access) {
  return ibv_reg_mr(pd, memory.data(), memory.size(), access);
}

void deregister(ibv_mr* region) {
  if (region != nullptr && ibv_dereg_mr(region) != 0) fault("a region cannot be deregistered");
}

// Whether a connection may end with this status when the other process has ended.
bool may_end_by(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR;
}

}  // namespace

void fault(const std::string& what) {
  std::printf("fault %s\n", what.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}

Connection::Connection(Common& common, rdma_cm_id* id, bool large, bool shares_receives, uint64_t seed)
    : common_(common),
      id_(id),
      cell_bytes_(large ? kLargeCell : kSmallCell),
      shares_receives_(shares_receives),
      seed_(seed),
      draw_(~seed) {
  id_->context = this;
}

Connection::~Connection() {
  loose_.reset();
  if (id_->qp != nullptr) rdma_destroy_qp(id_);
  for (ibv_mw* const window : windows_) {
    if (window != nullptr && ibv_dealloc_mw(window) != 0) fault("a memory window cannot be given back");
  }
  deregister(window_region_);
  deregister(slots_region_);
  deregister(buffers_region_);
  if (rdma_destroy_id(id_) != 0) fault("an identifier cannot be destroyed");
}

bool Connection::prepare() {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = common_.cq;
  wanted.srq = shares_receives_ ? common_.srq : nullptr;
  wanted.cap.max_send_wr = kDepth;
  wanted.cap.max_recv_wr = kDepth;
  wanted.cap.max_send_sge = 3;
  wanted.cap.max_recv_sge = 1;
  wanted.cap.max_inline_data = kMaxInline;
  wanted.qp_type = IBV_QPT_RC;
  if (rdma_create_qp(id_, common_.pd, &wanted) != 0) return false;
  shadow_.resize(size_t{kCells} * cell_bytes_);
  window_.resize(shadow_.size() + kLooseBytes);
  slots_.resize(size_t{kDepth} * cell_bytes_);
  snapshots_.resize(slots_.size());
  buffers_.resize(shares_receives_ ? 0 : size_t{kDepth} * kMaxMessage);
  window_region_ = register_memory(common_.pd, window_, kWindowAccess | IBV_ACCESS_MW_BIND);
  slots_region_ = register_memory(common_.pd, slots_, IBV_ACCESS_LOCAL_WRITE);
  for (ibv_mw*& window : windows_) window = ibv_alloc_mw(common_.pd, IBV_MW_TYPE_2);
  if (window_region_ == nullptr || slots_region_ == nullptr || windows_[0] == nullptr ||
      windows_[1] == nullptr)
    return false;
  loose_ = Loose::create(common_.pd, common_.loose_cq, common_.ud, seed_);
  if (loose_ == nullptr) return false;
  if (shares_receives_) return true;
  buffers_region_ = register_memory(common_.pd, buffers_, IBV_ACCESS_LOCAL_WRITE);
  if (buffers_region_ == nullptr) return false;
  for (uint32_t buffer = 0; buffer < kDepth; ++buffer) post_receive(buffer);
  return true;
}

Greeting Connection::greeting() const {
  return {.process = common_.process,
          .cell_bytes = cell_bytes_,
          .seed = seed_,
          .window = reinterpret_cast<uintptr_t>(window_.data()),
          .tally = reinterpret_cast<uintptr_t>(&common_.tally),
          .window_key = window_region_->rkey,
          .tally_key = common_.tally_region->rkey,
          .uc_qpn = loose_->uc_qpn(),
          .ud_qpn = common_.ud->qp_num,
          .uc_key = window_region_->rkey,
          .reserved = 0};
}

void Connection::greeted(const Greeting& theirs) {
  if (theirs.cell_bytes != cell_bytes_) fault("the private data is not what the other end gave");
  theirs_ = theirs;
}

void Connection::establish() {
  established_ = true;
  ibv_qp_attr path{};
  ibv_qp_init_attr unused{};
  if (ibv_query_qp(id_->qp, &path, IBV_QP_AV | IBV_QP_PATH_MTU, &unused) != 0)
    fault(describe() + "it has no path");
  if (!loose_->connect(path, theirs_)) fault(describe() + "UC and UD cannot go where RC goes");
}

std::string Connection::describe() const {
  return "process " + std::to_string(common_.process) + ", towards " + std::to_string(theirs_.process) +
         ", request " + std::to_string(finished_) + " of " + std::to_string(posted_) + ", message " +
         std::to_string(expected_message_) + ": ";
}

void Connection::go_on(Counts& counts) {
  const uint32_t burst = 1 + draw_.below(kDepth);
  for (uint32_t i = 0; i < burst && posted_ - finished_ < kDepth; ++i) post_request(counts, draw_.one_in(3));
  loose_->go_on();
}

void Connection::wind_up(Counts& counts) {
  const bool is_last_signaled = is_quiet() || works_[(posted_ - 1) % kDepth].signaled;
  if (!is_last_signaled && posted_ - finished_ < kDepth) post_request(counts, true);
}

// ---- requests

void Connection::post_request(Counts& counts, bool signaled) {
  const bool is_window_next =
      awaited_key_ == 0 && is_key_told_ && posted_ - finished_ + 2 <= kDepth && draw_.one_in(40);
  if (is_window_next) bind_window();
  Work& work = works_[posted_ % kDepth];
  work = {.kind = Kind::kMessage, .signaled = true, .bytes = 0, .expected = 0};
  Request request;
  request.wr.wr_id = posted_;
  request.wr.sg_list = request.pieces.data();
  switch (draw_.below(8)) {
    case 0:
    case 1:
      plan_write(request, work);
      ++counts.writes;
      break;
    case 2:
    case 3:
      plan_read(request, work);
      ++counts.reads;
      break;
    case 4:
      plan_own_counter(request, work);
      ++counts.atomics;
      break;
    case 5:
      plan_tally(request, work);
      ++counts.atomics;
      break;
    default:
      plan_message(request, work);
      ++counts.sends;
  }
  // Some requests have no completion of their own. Every (kDepth / 2)-th is signaled, so that the queue gets
  // room.
  const bool has_answer = work.kind != Kind::kMessage && work.kind != Kind::kWrite;
  work.signaled = has_answer || signaled || posted_ % (kDepth / 2) == 0;
  if (work.signaled) request.wr.send_flags |= IBV_SEND_SIGNALED;
  ++posted_;
  ibv_send_wr* refused = nullptr;
  if (const int error = ibv_post_send(id_->qp, &request.wr, &refused); error != 0)
    fault(describe() + "a request is refused: " + std::to_string(error));
  if ((request.wr.send_flags & IBV_SEND_INLINE) != 0) std::memset(slot(posted_ - 1), 0x5a, work.bytes);
}

// Splits the request's slot into one to three pieces.
void Connection::set_local(Request& request, uint32_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(slot(posted_));
  const uint32_t pieces = bytes == 0 ? 0 : 1 + draw_.below(std::min<uint32_t>(3, bytes));
  uint32_t at = 0;
  for (uint32_t i = 0; i < pieces; ++i) {
    const uint32_t left = bytes - at;
    const uint32_t part = i + 1 == pieces ? left : draw_.below(left + 1);
    request.pieces[i] = {begin + at, part, slots_region_->lkey};
    at += part;
  }
  request.wr.num_sge = static_cast<int>(pieces);
}

void Connection::aim_at(Request& request, uint32_t cell, uint32_t offset) {
  request.wr.wr.rdma.remote_addr = theirs_.window + uint64_t{cell} * cell_bytes_ + offset;
  request.wr.wr.rdma.rkey = theirs_.window_key;
}

// The peer does not hold the window that is bound next: it has invalidated the one before the last.
void Connection::bind_window() {
  ibv_mw* const window = windows_[bound_++ % windows_.size()];
  works_[posted_ % kDepth] = {.kind = Kind::kBind, .signaled = true, .bytes = 0, .expected = 0};
  awaited_key_ = given_key_;
  given_key_ = ibv_inc_rkey(window->rkey);
  window->rkey = given_key_;
  is_key_told_ = false;
  ibv_send_wr wr{};
  wr.wr_id = posted_++;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw.mw = window;
  wr.bind_mw.rkey = given_key_;
  wr.bind_mw.bind_info = {window_region_, reinterpret_cast<uintptr_t>(window_.data()), shadow_.size(),
                          kOthersAccess};
  ibv_send_wr* refused = nullptr;
  if (const int error = ibv_post_send(id_->qp, &wr, &refused); error != 0)
    fault(describe() + "a window is not bound: " + std::to_string(error));
}

void Connection::give_key(Request& request) {
  is_key_told_ = true;
  request.wr.imm_data = htonl(given_key_ != 0 ? given_key_ : window_region_->rkey);
}

// A READ with the old key may be repeated if its answer is lost, so all READs must have been answered.
void Connection::return_key(Request& request) {
  request.wr.opcode = IBV_WR_SEND_WITH_INV;
  request.wr.invalidate_rkey = std::exchange(returned_key_, 0);
  request.wr.send_flags |= IBV_SEND_FENCE;
}

void Connection::take_key(uint32_t key) {
  if (key == theirs_.window_key) return;
  if (returned_key_ != 0) fault(describe() + "a key comes before the last but one was given back");
  if (has_window_key_) returned_key_ = theirs_.window_key;
  has_window_key_ = true;
  theirs_.window_key = key;
}

void Connection::plan_message(Request& request, Work& work) {
  const Message next = message(seed_, next_message_++, cell_bytes_);
  fill({slot(posted_), next.bytes}, next.pattern);
  work.bytes = next.bytes;
  set_local(request, next.bytes);
  request.wr.imm_data = htonl(next.immediate);
  request.wr.opcode = next.has_immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
  if (next.is_write) {
    request.wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    aim_at(request, next.cell, 0);
    std::memcpy(shadow(next.cell), slot(posted_), next.bytes);
    request.wr.send_flags |= IBV_SEND_FENCE;  // see plan_write()
  }
  if (next.has_key) {
    give_key(request);
  } else if (returned_key_ != 0 && !next.is_write) {
    return_key(request);
  }
  if (next.bytes <= kMaxInline && draw_.one_in(2)) request.wr.send_flags |= IBV_SEND_INLINE;
  if (draw_.one_in(4)) request.wr.send_flags |= IBV_SEND_SOLICITED;
}

// Without a fence, an earlier READ may be executed later, and see what this WRITE stores (IBTA volume 1,
// 10.8.3.3).
void Connection::plan_write(Request& request, Work& work) {
  work.kind = Kind::kWrite;
  const uint32_t cell = 1 + draw_.below(kCells - 1);
  const uint32_t offset = draw_.below(cell_bytes_);
  const uint32_t most = cell_bytes_ - offset;
  work.bytes = draw_.one_in(2) ? draw_.below(most + 1) : std::min(most, draw_.below(64));
  fill({slot(posted_), work.bytes}, draw_.next());
  std::memcpy(shadow(cell) + offset, slot(posted_), work.bytes);
  set_local(request, work.bytes);
  aim_at(request, cell, offset);
  request.wr.opcode = IBV_WR_RDMA_WRITE;
  request.wr.send_flags |= IBV_SEND_FENCE;
  if (work.bytes <= kMaxInline && draw_.one_in(2)) request.wr.send_flags |= IBV_SEND_INLINE;
}

void Connection::plan_read(Request& request, Work& work) {
  work.kind = Kind::kRead;
  const uint32_t cell = 1 + draw_.below(kCells - 1);
  const uint32_t offset = draw_.below(cell_bytes_);
  work.bytes = draw_.below(cell_bytes_ - offset + 1);
  std::memcpy(snapshot(posted_), shadow(cell) + offset, work.bytes);
  std::memset(slot(posted_), 0xa5, work.bytes);
  set_local(request, work.bytes);
  aim_at(request, cell, offset);
  request.wr.opcode = IBV_WR_RDMA_READ;
}

// The first word of the first cell, which only this connection changes.
void Connection::plan_own_counter(Request& request, Work& work) {
  work.kind = Kind::kOwnCounter;
  work.bytes = sizeof(uint64_t);
  work.expected = own_counter_;
  request.pieces[0] = {reinterpret_cast<uintptr_t>(slot(posted_)), sizeof(uint64_t), slots_region_->lkey};
  request.wr.num_sge = 1;
  request.wr.wr.atomic.remote_addr = theirs_.window;
  request.wr.wr.atomic.rkey = theirs_.window_key;
  const uint64_t value = draw_.next();
  if (draw_.one_in(2)) {
    request.wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.wr.wr.atomic.compare_add = value;
    own_counter_ += value;
    return;
  }
  const bool fits = draw_.one_in(2);
  request.wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  request.wr.wr.atomic.compare_add = fits ? own_counter_ : own_counter_ + 1;
  request.wr.wr.atomic.swap = value;
  if (fits) own_counter_ = value;
}

void Connection::plan_tally(Request& request, Work& work) {
  work.kind = Kind::kTally;
  work.bytes = sizeof(uint64_t);
  request.pieces[0] = {reinterpret_cast<uintptr_t>(slot(posted_)), sizeof(uint64_t), slots_region_->lkey};
  request.wr.num_sge = 1;
  request.wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.wr.wr.atomic.remote_addr = theirs_.tally;
  request.wr.wr.atomic.rkey = theirs_.tally_key;
  request.wr.wr.atomic.compare_add = 1;
}

// ---- completions

bool Connection::complete(const ibv_wc& completion, Counts& counts) {
  if (completion.status != IBV_WC_SUCCESS && !may_end_by(completion.status))
    fault(describe() + "a completion says " + ibv_wc_status_str(completion.status));
  // The opcode of a completion with an error is undefined, so the wr_id tells which it is.
  const bool is_receive = (completion.wr_id >> 63) != 0;
  if (is_receive) {
    receive(completion, counts);
  } else {
    finish(completion, counts);
  }
  return completion.status == IBV_WC_SUCCESS;
}

void Connection::finish(const ibv_wc& completion, Counts& counts) {
  const bool good = completion.status == IBV_WC_SUCCESS;
  if (completion.wr_id < finished_ || completion.wr_id >= posted_)
    fault(describe() + "a completion of request " + std::to_string(completion.wr_id));
  // Earlier requests without a completion of their own. After an error each request has one.
  for (; finished_ < completion.wr_id; ++finished_) {
    if (works_[finished_ % kDepth].signaled) fault(describe() + "a completion is missing");
    if (good) verify(works_[finished_ % kDepth], finished_, counts);
  }
  const Work& work = works_[finished_ % kDepth];
  if (good && !work.signaled) fault(describe() + "a completion that was not asked for");
  if (good) verify(work, finished_, counts);
  ++finished_;
}

uint64_t Connection::answer(uint64_t number) const {
  uint64_t value;
  std::memcpy(&value, slots_.data() + number % kDepth * cell_bytes_, sizeof value);
  return value;
}

void Connection::verify(const Work& work, uint64_t number, Counts& counts) {
  switch (work.kind) {
    case Kind::kRead:
      if (std::memcmp(slot(number), snapshot(number), work.bytes) != 0)
        fault(describe() + "a READ of " + std::to_string(work.bytes) +
              " bytes finds others than were written");
      counts.bytes_verified += work.bytes;
      break;
    case Kind::kOwnCounter:
      if (answer(number) != work.expected) fault(describe() + "an atomic finds another value");
      break;
    case Kind::kTally:
      if (answer(number) < least_tally_) fault(describe() + "a counter that others add to has become less");
      least_tally_ = answer(number) + 1;
      break;
    case Kind::kMessage:
    case Kind::kWrite:
    case Kind::kBind:
      break;
  }
}

void Connection::receive(const ibv_wc& completion, Counts& counts) {
  const auto buffer = static_cast<uint32_t>(completion.wr_id);
  if (!shares_receives_) --receives_;
  if (completion.status == IBV_WC_SUCCESS) verify_message(completion, buffer, counts);
  // Receives of the SRQ are posted again even after an error: other connections use them, too.
  if (shares_receives_ || (!lost_ && completion.status == IBV_WC_SUCCESS)) post_receive(buffer);
}

bool Connection::key_has_come_back(const ibv_wc& completion, Counts& counts) {
  if ((completion.wc_flags & IBV_WC_WITH_INV) == 0) return false;
  if (awaited_key_ == 0 || completion.invalidated_rkey != awaited_key_)
    fault(describe() + "a key is invalidated that was not given back");
  awaited_key_ = 0;
  ++counts.windows;
  return true;
}

void Connection::verify_message(const ibv_wc& completion, uint32_t buffer, Counts& counts) {
  const Message expected = message(theirs_.seed, expected_message_++, cell_bytes_);
  const bool has_immediate = (completion.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (completion.byte_len != expected.bytes) fault(describe() + "a message of another length");
  if (!key_has_come_back(completion, counts)) {
    if (has_immediate != expected.has_immediate)
      fault(describe() + "a message with or without immediate data");
    if (expected.has_key) {
      take_key(ntohl(completion.imm_data));
    } else if (has_immediate && ntohl(completion.imm_data) != expected.immediate) {
      fault(describe() + "other immediate data");
    }
  }
  if ((completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) != expected.is_write)
    fault(describe() + "a message of another kind");
  std::vector<std::byte>& memory = shares_receives_ ? common_.srq_memory : buffers_;
  const std::span<const std::byte> got(memory.data() + size_t{buffer} * kMaxMessage, expected.bytes);
  if (!expected.is_write) {
    if (!is_filled(got, expected.pattern)) fault(describe() + "a message with other bytes");
    counts.bytes_verified += expected.bytes;
  }
  ++counts.receives;
}

void Connection::post_receive(uint32_t buffer) {
  std::vector<std::byte>& memory = shares_receives_ ? common_.srq_memory : buffers_;
  const ibv_mr* const region = shares_receives_ ? common_.srq_region : buffers_region_;
  ibv_sge piece{reinterpret_cast<uintptr_t>(memory.data() + size_t{buffer} * kMaxMessage), kMaxMessage,
                region->lkey};
  ibv_recv_wr wr{};
  wr.wr_id = uint64_t{1} << 63 | buffer;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  const int error = shares_receives_ ? ibv_post_srq_recv(common_.srq, &wr, &refused)
                                     : ibv_post_recv(id_->qp, &wr, &refused);
  if (error != 0) fault(describe() + "a receive is refused: " + std::to_string(error));
  if (!shares_receives_) ++receives_;
}

void Connection::lose() {
  lost_ = true;
  if (loose_ != nullptr) loose_->stop();
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_ERR;
  if (ibv_modify_qp(id_->qp, &wanted, IBV_QP_STATE) != 0) fault(describe() + "it cannot go to error");
}

}  // namespace verbena::soak
