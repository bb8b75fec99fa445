// SPDX-License-Identifier: Apache-2.0
#include "interop/peer/session.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace verbena::interop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kStatuses[] = {
    "SUCCESS",          "LOC_LEN_ERR",       "LOC_QP_OP_ERR",  "LOC_EEC_OP_ERR",
    "LOC_PROT_ERR",     "WR_FLUSH_ERR",      "MW_BIND_ERR",    "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",   "REM_INV_REQ_ERR",   "REM_ACCESS_ERR", "REM_OP_ERR",
    "RETRY_EXC_ERR",    "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL",   "REM_INV_RD_REQ",
    "REM_ABORT",        "INV_EECN",          "INV_EEC_STATE",  "FATAL_ERR",
    "RESP_TIMEOUT_ERR", "GENERAL_ERR",       "TM_ERR",         "TM_RNDV"};
constexpr const char* kStates[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

void must(bool good, const char* what) {
  if (!good) throw std::runtime_error{std::string{what} + ": " + std::strerror(errno)};
}

ibv_context* open_named(const std::string& name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  must(list != nullptr, "ibv_get_device_list");
  ibv_context* context = nullptr;
  for (int i = 0; i < count && !context; ++i)
    if (name == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  must(context != nullptr, "no such device");
  return context;
}

void must_modify(ibv_qp* pair, ibv_qp_attr attributes, int mask) {
  const int error = ibv_modify_qp(pair, &attributes, mask);
  errno = error;
  must(error == 0, "ibv_modify_qp");
}

// Returns a completion in short: kind and length of a receive, and the immediate data.
std::string description(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) return name_of(completion.status);
  if (!(completion.opcode & IBV_WC_RECV)) return "SUCCESS";
  std::string words = completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM ? "WRITTEN" : "RECEIVED";
  words += "/" + std::to_string(completion.byte_len);
  if (completion.wc_flags & IBV_WC_WITH_IMM) words += "/imm" + std::to_string(be32toh(completion.imm_data));
  if (completion.wc_flags & IBV_WC_WITH_INV) words += "/inv";
  return words;
}

}  // namespace

Region::Region(ibv_pd* domain, unsigned rights, std::uint32_t size) : bytes(size) {
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  registration.reset(ibv_reg_mr(domain, bytes.data(), bytes.size(), static_cast<int>(rights)));
  must(registration != nullptr, "ibv_reg_mr");
}

ibv_sge Region::piece(std::uint32_t length, std::uint32_t at) const {
  return {.addr = address() + at, .length = length, .lkey = registration->lkey};
}

Session::Session(const Setting& setting, Exchange exchange, bool is_client)
    : setting_{setting}, exchange_{exchange}, is_client_{is_client}, context_{open_named(setting.device)} {
  must(ibv_query_gid(context_.get(), 1, setting.gid_index, &gid_) == 0, "ibv_query_gid");
  domain_.reset(ibv_alloc_pd(context_.get()));
  must(domain_ != nullptr, "ibv_alloc_pd");
  queue_.reset(ibv_create_cq(context_.get(), 256, nullptr, nullptr, 0));
  must(queue_ != nullptr, "ibv_create_cq");
}

Pair Session::make_pair(const PairRules& rules) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = queue_.get();
  wanted.srq = rules.shared;
  wanted.cap = {
      .max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64};
  wanted.qp_type = rules.type;
  wanted.sq_sig_all = 1;
  Pair pair{ibv_create_qp(domain_.get(), &wanted)};
  must(pair != nullptr, "ibv_create_qp");
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = rules.rights;
  attributes.qkey = kQkey;
  must_modify(pair.get(), attributes,
              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                  (rules.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
  return pair;
}

Remote Session::connect(ibv_qp* pair, const Region& region, const PairRules& rules) {
  const std::uint32_t psn = (pair->qp_num * 2654435761U) & 0xffffff;
  std::uint64_t gid[2];
  std::memcpy(gid, &gid_, sizeof gid);
  const Words heard =
      exchange_.swap({pair->qp_num, psn, region.registration->rkey, region.address(), gid[0], gid[1]});
  Remote remote{static_cast<std::uint32_t>(heard[0]),
                static_cast<std::uint32_t>(heard[1]),
                static_cast<std::uint32_t>(heard[2]),
                heard[3],
                {}};
  std::memcpy(&remote.gid, &heard[4], sizeof remote.gid);

  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = setting_.mtu;
  attributes.dest_qp_num = remote.qpn ^ rules.qpn_flip;
  attributes.rq_psn = remote.psn;
  attributes.max_dest_rd_atomic = rules.reads;
  attributes.min_rnr_timer = rules.rnr_timer;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = remote.gid;
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(setting_.gid_index);
  attributes.ah_attr.grh.hop_limit = 64;
  const int reliable = rules.type == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
  const int connected =
      rules.type == IBV_QPT_UD ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  must_modify(pair, attributes, IBV_QP_STATE | connected | reliable);

  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = psn;
  attributes.timeout = rules.timeout;
  attributes.retry_cnt = rules.retry_count;
  attributes.rnr_retry = rules.rnr_retry;
  attributes.max_rd_atomic = 4;
  const int retries = rules.type == IBV_QPT_RC
                          ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                          : 0;
  must_modify(pair, attributes, IBV_QP_STATE | IBV_QP_SQ_PSN | retries);
  return remote;
}

Route Session::route_to(const ibv_gid& gid) {
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.dgid = gid;
  attributes.grh.sgid_index = static_cast<std::uint8_t>(setting_.gid_index);
  attributes.grh.hop_limit = 64;
  Route route{ibv_create_ah(domain_.get(), &attributes)};
  must(route != nullptr, "ibv_create_ah");
  return route;
}

std::vector<ibv_wc> Session::completions(std::size_t count, int milliseconds) {
  const auto deadline = Clock::now() + std::chrono::milliseconds{milliseconds};
  std::vector<ibv_wc> got;
  while (got.size() < count && Clock::now() < deadline) {
    ibv_wc completion{};
    const int polled = ibv_poll_cq(queue_.get(), 1, &completion);
    must(polled >= 0, "ibv_poll_cq");
    if (polled) got.push_back(completion);
  }
  return got;
}

void Session::note(const std::string& words) {
  outcome_ += (outcome_.empty() ? "" : " ") + words;
}

void Session::note_completions(std::size_t count, int milliseconds) {
  const std::vector<ibv_wc> got = completions(count, milliseconds);
  for (const ibv_wc& completion : got) note(description(completion));
  if (got.size() < count) note(std::to_string(count - got.size()) + " MISSING");
}

void Session::note_end(ibv_qp* pair, std::size_t outstanding, bool expects_error) {
  // The responder answers first, and changes its state afterwards.
  const auto deadline = Clock::now() + std::chrono::milliseconds{expects_error ? 100 : 0};
  ibv_qp_attr attributes{};
  ibv_qp_init_attr made{};
  do {
    must(ibv_query_qp(pair, &attributes, IBV_QP_STATE, &made) == 0, "ibv_query_qp");
  } while (attributes.qp_state != IBV_QPS_ERR && Clock::now() < deadline);
  const std::string state = kStates[attributes.qp_state];
  attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  must_modify(pair, attributes, IBV_QP_STATE);
  note_completions(outstanding);
  note("(" + state + ")");
}

std::string Session::take_outcome() {
  for (ibv_wc left; ibv_poll_cq(queue_.get(), 1, &left) > 0;) note("and " + description(left));
  return std::exchange(outcome_, {});
}

ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& piece) {
  ibv_send_wr request{};
  request.opcode = opcode;
  request.sg_list = &piece;
  request.num_sge = piece.length ? 1 : 0;
  request.send_flags = IBV_SEND_SIGNALED;
  return request;
}

int post(ibv_qp* pair, ibv_send_wr& request) {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(pair, &request, &bad);
}

int post_receive(ibv_qp* pair, ibv_sge piece) {
  ibv_recv_wr receive{};
  receive.sg_list = &piece;
  receive.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return pair->srq ? ibv_post_srq_recv(pair->srq, &receive, &bad) : ibv_post_recv(pair, &receive, &bad);
}

std::string name_of(ibv_wc_status status) {
  return static_cast<std::size_t>(status) < std::size(kStatuses) ? kStatuses[status] : std::to_string(status);
}

}  // namespace verbena::interop
