// SPDX-License-Identifier: Apache-2.0
// The rounds of both ends: their requests and the order of these.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/rping/session.h"

namespace verbena::rdma_core {
namespace {

bool refused(const char* what, int error) {
  complain(verbena::format("{} error {}", what, error), std::strerror(error));
  return false;
}

int length_of(std::string_view text) {
  return static_cast<int>(text.size());
}

}  // namespace

bool Session::post_receive() {
  ibv_sge place = {reinterpret_cast<uintptr_t>(received_.bytes.data()), kAdvertisementBytes,
                   received_.region->lkey};
  ibv_recv_wr request = {};
  request.sg_list = &place;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  ibv_qp* pair = own_pair_ ? own_pair_.get() : id_->qp;
  const int error = ibv_post_recv(pair, &request, &bad);
  return error == 0 || refused("post recv", error);
}

bool Session::post_message() {
  ibv_sge message = {reinterpret_cast<uintptr_t>(sent_.bytes.data()), kAdvertisementBytes,
                     sent_.region->lkey};
  ibv_send_wr request = {};
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = &message;
  request.num_sge = 1;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(own_pair_ ? own_pair_.get() : id_->qp, &request, &bad);
  return error == 0 || refused("post send", error);
}

bool Session::post_rdma(ibv_wr_opcode opcode, size_t bytes) {
  ibv_sge place = {reinterpret_cast<uintptr_t>(sink_.bytes.data()), static_cast<uint32_t>(bytes),
                   sink_.region->lkey};
  ibv_send_wr request = {};
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = &place;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = other_.address;
  request.wr.rdma.rkey = other_.key;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(own_pair_ ? own_pair_.get() : id_->qp, &request, &bad);
  return error == 0 || refused("post send", error);
}

void Session::advertise(const Buffer& buffer) {
  const Advertisement said = {reinterpret_cast<uintptr_t>(buffer.bytes.data()), buffer.region->rkey,
                              static_cast<uint32_t>(plan_.bytes)};
  const AdvertisementBytes message = encode(said);
  std::copy(message.begin(), message.end(), sent_.bytes.begin());
  debug("RDMA addr %" PRIx64 " rkey %x len %d\n", said.address, said.key, said.bytes);
}

bool Session::fits() const {
  if (other_.bytes <= sink_.bytes.size()) return true;
  complain(verbena::format("a ping of {} bytes does not fit into {}", other_.bytes, sink_.bytes.size()),
           "give the server the client's -S");
  return false;
}

bool Session::serve() {
  while (step_ != Step::kDisconnected) {
    if (!mirror() && step_ != Step::kDisconnected) return false;
  }
  return true;
}

bool Session::mirror() {
  if (!await(Step::kReadAdvertised, "RDMA_READ_ADV")) return false;
  debug("server received sink adv\n");
  if (!fits() || !post_rdma(IBV_WR_RDMA_READ, other_.bytes)) return false;
  debug("server posted rdma read req \n");
  if (!await(Step::kReadComplete, "RDMA_READ_COMPLETE")) return false;
  debug("server received read complete\n");
  const std::string_view text = text_of(sink_.bytes);
  if (plan_.verbose && !plan_.json) std::printf("server ping data: %.*s\n", length_of(text), text.data());
  if (!post_message()) return false;
  debug("server posted go ahead\n");

  if (!await(Step::kWriteAdvertised, "RDMA_WRITE_ADV")) return false;
  debug("server received sink adv\n");
  const size_t bytes = std::min(text.size() + 1, sink_.bytes.size());
  debug("rdma write from lkey %x laddr %" PRIxPTR " len %zu\n", sink_.region->lkey,
        reinterpret_cast<uintptr_t>(sink_.bytes.data()), bytes);
  if (!post_rdma(IBV_WR_RDMA_WRITE, bytes)) return false;
  if (!await(Step::kWriteComplete, "RDMA_WRITE_COMPLETE")) return false;
  debug("server rdma write complete \n");
  if (!post_message()) return false;
  debug("server posted go ahead\n");
  ++pings_;
  return true;
}

bool Session::ping() {
  for (int number = 0; plan_.count == 0 || number < plan_.count; ++number) {
    if (!round(number)) return step_ == Step::kDisconnected;
  }
  return true;
}

bool Session::round(int number) {
  step_ = Step::kReadAdvertised;
  write_ping(source_.bytes, number);
  advertise(source_);
  if (!post_message() || !await(Step::kWriteAdvertised, "RDMA_WRITE_ADV")) return false;
  advertise(sink_);
  if (!post_message() || !await(Step::kWriteComplete, "RDMA_WRITE_COMPLETE")) return false;
  if (plan_.validate && source_.bytes != sink_.bytes) {
    complain("data mismatch!");
    return false;
  }
  const std::string_view text = text_of(sink_.bytes);
  if (plan_.verbose && !plan_.json) std::printf("ping data: %.*s\n", length_of(text), text.data());
  ++pings_;
  return true;
}

}  // namespace verbena::rdma_core
