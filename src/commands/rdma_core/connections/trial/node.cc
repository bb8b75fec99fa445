// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/trial/node.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include <endian.h>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/addresses.h"

namespace verbena::rdma_core {
namespace {

constexpr size_t kGrh = sizeof(ibv_grh);

// After this number of unsuccessful polls, yield the processor and check the time.
constexpr int kVainPolls = 1000;

}  // namespace

std::optional<uint32_t> number_to_answer(const ibv_wc& completion) {
  const bool named = completion.opcode == IBV_WC_RECV && (completion.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (!named) return std::nullopt;
  return be32toh(completion.imm_data);
}

int Node::prepare() {
  domain_.reset(ibv_alloc_pd(id->verbs));
  if (!domain_) {
    tell_failure(output_, verbena::format("{}: unable to allocate PD", shape_.program),
                 remedy_for_errno(errno));
    return -ENOMEM;
  }
  if (const int status = make_queues(); status != 0) return status;
  if (make_queue_pair() != 0) return failed(verbena::format("{}: unable to create QP", shape_.program));
  queue_pair_.reset(id.get());
  return make_message();
}

int Node::make_queues() {
  const int entries = std::max(shape_.messages, 1);
  const auto make = [&](int size) {
    return CompletionQueue(ibv_create_cq(id->verbs, size, this, nullptr, 0));
  };
  receives_ = make(datagrams() ? 2 * entries : entries);
  if (!datagrams()) sends_ = make(entries);
  if (receives_ && (datagrams() || sends_)) return 0;
  tell_failure(output_, verbena::format("{}: unable to create CQ", shape_.program),
               "fewer messages (-C) need smaller queues");
  return -ENOMEM;
}

int Node::make_queue_pair() {
  ibv_qp_init_attr_ex wanted = {};
  const auto entries = static_cast<uint32_t>(std::max(shape_.messages, 1));
  wanted.cap = {entries, entries, 1, 1, 0};
  wanted.qp_context = this;
  wanted.sq_sig_all = datagrams() ? 0 : 1;
  wanted.qp_type = shape_.type;
  wanted.send_cq = sends();
  wanted.recv_cq = receives_.get();
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
  wanted.pd = domain_.get();
  if (!shape_.hears_itself) {
    wanted.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    wanted.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  }
  return rdma_create_qp_ex(id.get(), &wanted);
}

int Node::make_message() {
  if (shape_.messages == 0) return 0;
  memory_.resize(static_cast<size_t>(shape_.bytes) + (datagrams() ? kGrh : 0));
  region_.reset(ibv_reg_mr(domain_.get(), memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE));
  if (region_) return 0;
  tell_failure(output_, "failed to reg MR", remedy_for_errno(errno));
  tell_failure(output_, verbena::format("{}: failed to create messages: {}", shape_.program, -1));
  return -1;
}

int Node::post_receives() {
  if (shape_.messages == 0) return 0;
  const ibv_sge place = {reinterpret_cast<uintptr_t>(memory_.data()), static_cast<uint32_t>(memory_.size()),
                         region_->lkey};
  for (int i = 0; i < shape_.messages; ++i) {
    const int error = post_receive(id->qp, place);
    if (error != 0) {
      tell_failure(output_, verbena::format("failed to post receives: {}", error));
      return error;
    }
  }
  return 0;
}

int Node::post_sends(unsigned flags) {
  if (!connected || shape_.messages == 0) return 0;
  const ibv_sge message = {reinterpret_cast<uintptr_t>(memory_.data()), static_cast<uint32_t>(shape_.bytes),
                           region_->lkey};
  ibv_send_wr request = {};
  request.opcode = datagrams() ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
  request.send_flags = flags;
  if (datagrams()) {
    request.imm_data = htobe32(id->qp->qp_num);
    request.wr.ud = {remote_.get(), remote_number, remote_key};
  }
  for (int i = 0; i < shape_.messages; ++i) {
    const int error = post_send(id->qp, message, request);
    if (error != 0) {
      tell_failure(output_, verbena::format("failed to post sends: {}", error));
      return error;
    }
  }
  return 0;
}

int Node::await(ibv_cq* queue, Patience& patience, const char* done,
                const std::function<int(ibv_wc&)>& first) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::milliseconds(patience.milliseconds());
  int vain = 0;
  for (int count = 0; count < shape_.messages;) {
    std::array<ibv_wc, 8> completions;
    const int found = ibv_poll_cq(queue, static_cast<int>(completions.size()), completions.data());
    if (found < 0) {
      tell_failure(output_, verbena::format("{}: failed polling CQ: {}", shape_.program, found));
      return found;
    }
    for (int i = 0; i < found; ++i) {
      if (completions[i].status == IBV_WC_SUCCESS) continue;
      tell_failure(output_, verbena::format("{}: a message was not {}: {}", shape_.program, done,
                                            ibv_wc_status_str(completions[i].status)));
      return -1;
    }
    if (found > 0 && count == 0 && first) {
      if (const int status = first(completions[0]); status != 0) return status;
    }
    count += found;
    if (found > 0 || ++vain % kVainPolls != 0) continue;
    std::this_thread::yield();
    if (patience.milliseconds() >= 0 && Clock::now() > until) patience.say();
  }
  return 0;
}

int Node::reach(ibv_ah_attr attributes) {
  remote_.reset(ibv_create_ah(domain_.get(), &attributes));
  if (remote_) return 0;
  tell_failure(output_, verbena::format("{}: failure creating address handle", shape_.program),
               remedy_for_errno(errno));
  return -1;
}

int Node::reach_sender(ibv_wc& completion) {
  const auto number = number_to_answer(completion);
  ibv_qp_attr attributes = {};
  ibv_qp_init_attr ignored = {};
  if (number) {
    remote_.reset(ibv_create_ah_from_wc(domain_.get(), &completion,
                                        reinterpret_cast<ibv_grh*>(memory_.data()), id->port_num));
  }
  if (!remote_ || ibv_query_qp(id->qp, &attributes, IBV_QP_QKEY, &ignored) != 0) {
    tell_failure(output_, verbena::format("{}: failed to create reply AH", shape_.program),
                 number ? "" : "the message does not say which queue pair to answer");
    return -1;
  }
  remote_number = *number;
  remote_key = attributes.qkey;
  return 0;
}

nlohmann::ordered_json Node::description() const {
  if (!id) return nullptr;
  nlohmann::ordered_json object = described(id.get(), id->qp);
  object["connected"] = connected;
  return object;
}

}  // namespace verbena::rdma_core
