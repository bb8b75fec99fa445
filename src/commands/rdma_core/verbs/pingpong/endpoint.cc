// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/pingpong/endpoint.h"

#include <cerrno>
#include <cstdlib>

#include <unistd.h>

#include "base/format.h"

namespace verbena::rdma_core {
namespace {

constexpr size_t kNetworkHeader = 40;

}  // namespace

Endpoint::Endpoint(const PingpongProgram& program, const Settings& settings)
    : program_(program), settings_(settings), page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {}

Endpoint::~Endpoint() {
  acknowledge_events();
}

void Endpoint::acknowledge_events() {
  if (events_ != 0 && completions_) ibv_ack_cq_events(completions_.get(), events_);
  events_ = 0;
}

size_t Endpoint::headroom() const {
  return datagrams() ? kNetworkHeader : 0;
}

std::string Endpoint::name_of(size_t index) const {
  return program_.numbered ? verbena::format("QP[{}]", index) : "QP";
}

ibv_sge Endpoint::piece(bool sent) const {
  const size_t before = sent ? headroom() : 0;
  const uint64_t start = device_memory_ ? 0 : reinterpret_cast<uintptr_t>(buffer_.get());
  return {start + before, static_cast<uint32_t>(settings_.size + headroom() - before), region_->lkey};
}

std::optional<std::vector<Address>> Endpoint::addresses() const {
  ibv_port_attr port = {};
  const auto number = static_cast<uint8_t>(settings_.ib_port);
  if (const int error = ibv_query_port(context_.get(), number, &port); error != 0) {
    complain_of(error, "Couldn't get port info");
    return std::nullopt;
  }
  if (port.link_layer != IBV_LINK_LAYER_ETHERNET && port.lid == 0) {
    complain("Couldn't get local LID", "no subnet manager has given the port one yet");
    return std::nullopt;
  }
  Address address;
  address.lid = port.lid;
  if (settings_.gid_index >= 0 &&
      ibv_query_gid(context_.get(), number, settings_.gid_index, &address.gid) != 0) {
    complain_of(errno, verbena::format("{}{}", program_.gid_complaint, settings_.gid_index),
                "'ibv_devinfo -v' lists the GIDs");
    return std::nullopt;
  }
  std::vector<Address> all;
  for (const QueuePair& each : queue_pairs_) {
    address.qpn = each->qp_num;
    address.psn = static_cast<uint32_t>(lrand48()) & 0xffffff;
    all.push_back(address);
  }
  return all;
}

unsigned Endpoint::post_receives(unsigned count) {
  ibv_sge all = piece(false);
  ibv_recv_wr request = {};
  request.wr_id = kReceive;
  request.sg_list = &all;
  request.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  for (unsigned i = 0; i < count; ++i) {
    const int error = shared_ ? ibv_post_srq_recv(shared_.get(), &request, &refused)
                              : ibv_post_recv(queue_pairs_.front().get(), &request, &refused);
    if (error != 0) return i;
  }
  return count;
}

bool Endpoint::post_send(size_t index) {
  ibv_sge all = piece(true);
  int error = 0;
  if (settings_.new_send) {
    ibv_qp_ex* queue_pair = ibv_qp_to_qp_ex(queue_pairs_[index].get());
    ibv_wr_start(queue_pair);
    queue_pair->wr_id = kSend;
    queue_pair->wr_flags = send_flags_;
    ibv_wr_send(queue_pair);
    ibv_wr_set_sge(queue_pair, all.lkey, all.addr, all.length);
    error = ibv_wr_complete(queue_pair);
  } else {
    ibv_send_wr request = {};
    request.wr_id = kSend;
    request.sg_list = &all;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = send_flags_;
    if (datagrams()) request.wr.ud = {handle_.get(), remote_qpn_, kQueueKey};
    ibv_send_wr* refused = nullptr;
    error = ibv_post_send(queue_pairs_[index].get(), &request, &refused);
  }
  if (error != 0) complain_of(error, "Couldn't post send");
  return error == 0;
}

bool Endpoint::ask_for_event() {
  const int error = ibv_req_notify_cq(completions_.get(), 0);
  if (error != 0) complain_of(error, "Couldn't request CQ notification");
  return error == 0;
}

bool Endpoint::await_event() {
  ibv_cq* queue = nullptr;
  void* user = nullptr;
  if (ibv_get_cq_event(channel_.get(), &queue, &user) != 0) {
    complain_of(errno, "Failed to get cq_event");
    return false;
  }
  ++events_;
  if (queue != completions_.get()) {
    complain(verbena::format("CQ event for unknown CQ {}", verbena::ptr(queue)));
    return false;
  }
  return ask_for_event();
}

std::optional<size_t> Endpoint::poll(std::span<Completion> completions) {
  if (extended_ != nullptr) return poll_with_timestamps(completions);
  polled_.resize(completions.size());
  const int count = ibv_poll_cq(completions_.get(), static_cast<int>(polled_.size()), polled_.data());
  if (count < 0) {
    complain(verbena::format("poll CQ failed {}", count));
    return std::nullopt;
  }
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    completions[i] = {polled_[i].wr_id, polled_[i].status, polled_[i].qp_num, 0};
  }
  return static_cast<size_t>(count);
}

std::optional<size_t> Endpoint::poll_with_timestamps(std::span<Completion> completions) {
  ibv_poll_cq_attr attributes = {};
  int error = ibv_start_poll(extended_, &attributes);
  if (error == ENOENT) return 0;
  if (error != 0) {
    complain_of(error, verbena::format("poll CQ failed {}", error));
    return std::nullopt;
  }
  size_t count = 0;
  do {
    completions[count++] = {extended_->wr_id, extended_->status, ibv_wc_read_qp_num(extended_),
                            ibv_wc_read_completion_ts(extended_)};
    error = count < completions.size() ? ibv_next_poll(extended_) : ENOENT;
  } while (error == 0);
  ibv_end_poll(extended_);
  if (error == ENOENT) return count;
  complain_of(error, verbena::format("poll CQ failed {}", error));
  return std::nullopt;
}

std::optional<size_t> Endpoint::find(uint32_t qpn) const {
  for (size_t i = 0; i < queue_pairs_.size(); ++i) {
    if (queue_pairs_[i]->qp_num == qpn) return i;
  }
  return std::nullopt;
}

void Endpoint::mark_pages() {
  for (size_t at = 0; at < settings_.size; at += page_) buffer_.get()[at + headroom()] = 0;
}

bool Endpoint::load_device_memory() {
  if (!device_memory_) return true;
  const int error = ibv_memcpy_to_dm(device_memory_.get(), 0, buffer_.get(), settings_.size);
  if (error != 0) complain_of(error, "Copy to dm buffer failed");
  return error == 0;
}

std::optional<std::vector<size_t>> Endpoint::wrong_pages() {
  if (device_memory_) {
    if (const int error = ibv_memcpy_from_dm(buffer_.get(), device_memory_.get(), 0, settings_.size);
        error != 0) {
      complain_of(error, "Copy from DM buffer failed");
      return std::nullopt;
    }
  }
  std::vector<size_t> wrong;
  for (size_t at = 0; at < settings_.size; at += page_) {
    if (buffer_.get()[at + headroom()] != 0) wrong.push_back(at / page_);
  }
  return wrong;
}

bool Endpoint::close() {
  acknowledge_events();
  bool done = destroy(handle_, ibv_destroy_ah, "Couldn't destroy AH");
  for (size_t i = 0; i < queue_pairs_.size() && done; ++i) {
    done = destroy(queue_pairs_[i], ibv_destroy_qp, verbena::format("Couldn't destroy {}", name_of(i)));
  }
  return done && destroy(shared_, ibv_destroy_srq, "Couldn't destroy SRQ") &&
         destroy(completions_, ibv_destroy_cq, "Couldn't destroy CQ") &&
         destroy(region_, ibv_dereg_mr, "Couldn't deregister MR") &&
         destroy(device_memory_, free_device_memory, "Couldn't free DM") &&
         destroy(domain_, ibv_dealloc_pd, "Couldn't deallocate PD") &&
         destroy(channel_, ibv_destroy_comp_channel, "Couldn't destroy completion channel") &&
         destroy(context_, ibv_close_device, "Couldn't release context");
}

}  // namespace verbena::rdma_core
