// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/rping/session.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <endian.h>
#include <poll.h>

#include "base/format.h"
#include "base/text.h"

namespace verbena::rdma_core {
namespace {

struct Wire {
  uint64_t address;
  uint32_t key;
  uint32_t bytes;
};
static_assert(sizeof(Wire) == kAdvertisementBytes);

constexpr char kFirst = 'A';
constexpr char kLast = 'z';
constexpr int kLetters = kLast - kFirst + 1;

constexpr int kSendDepth = 16;
constexpr int kWholeAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr int kMilliseconds = 10000;

void require_posted(const char* what, int error) {
  if (error == 0) return;
  complain(verbena::format("{} error {}", what, error), std::strerror(error));
  throw Failure{-1};
}

// Fails with `sentence` and `error` if a call of libibverbs has returned an errno.
void require(int error, const std::string& sentence) {
  errno = error;
  if (error != 0) fail_of_call(sentence);
}

// The peer chooses the text, which must not be able to control the terminal.
void say_ping(const char* what, std::string_view text) {
  std::printf("%s: %s\n", what, printable(text).c_str());
}

}  // namespace

AdvertisementBytes encode(const Advertisement& advertisement) {
  const Wire wire = {htobe64(advertisement.address), htobe32(advertisement.key),
                     htobe32(advertisement.bytes)};
  AdvertisementBytes message;
  std::memcpy(message.data(), &wire, sizeof wire);
  return message;
}

std::optional<Advertisement> decode(std::span<const uint8_t> message) {
  if (message.size() != kAdvertisementBytes) return std::nullopt;
  Wire wire;
  std::memcpy(&wire, message.data(), sizeof wire);
  return Advertisement{be64toh(wire.address), be32toh(wire.key), be32toh(wire.bytes)};
}

std::string_view text_of(std::span<const char> ping) {
  return {ping.begin(), std::find(ping.begin(), ping.end(), '\0')};
}

void write_ping(std::span<char> buffer, int number) {
  if (buffer.empty()) return;
  const int named = std::snprintf(buffer.data(), buffer.size(), "rdma-ping-%d: ", number);
  int letter = number % kLetters;
  for (size_t i = static_cast<size_t>(std::max(named, 0)); i < buffer.size(); ++i) {
    buffer[i] = static_cast<char>(kFirst + letter);
    letter = (letter + 1) % kLetters;
  }
  buffer.back() = '\0';
}

// Construction and destruction.

void Session::debug(const char* format, ...) const {
  if (!plan_.debug) return;
  std::va_list arguments;
  va_start(arguments, format);
  std::vfprintf(plan_.json ? stderr : stdout, format, arguments);
  va_end(arguments);
}

void Session::prepare() {
  domain_.reset(ibv_alloc_pd(id_->verbs));
  if (!domain_) fail_of_call("ibv_alloc_pd failed");
  debug("created pd %p\n", static_cast<void*>(domain_.get()));
  completions_.reset(ibv_create_comp_channel(id_->verbs));
  if (!completions_) fail_of_call("ibv_create_comp_channel failed");
  debug("created channel %p\n", static_cast<void*>(completions_.get()));
  queue_.reset(ibv_create_cq(id_->verbs, kSendDepth * 2, this, completions_.get(), 0));
  if (!queue_) fail_of_call("ibv_create_cq failed");
  debug("created cq %p\n", static_cast<void*>(queue_.get()));
  if (ibv_req_notify_cq(queue_.get(), 0) != 0) fail_of_call("ibv_req_notify_cq failed");
  make_queue_pair();
  make_buffers();
  post_receive();
}

void Session::make_queue_pair() {
  ibv_qp_init_attr wanted = {};
  wanted.cap.max_send_wr = kSendDepth;
  wanted.cap.max_recv_wr = 2;
  wanted.cap.max_recv_sge = 1;
  wanted.cap.max_send_sge = 1;
  wanted.qp_type = IBV_QPT_RC;
  wanted.send_cq = queue_.get();
  wanted.recv_cq = queue_.get();
  if (!plan_.own_queue_pair) {
    if (rdma_create_qp(id_, domain_.get(), &wanted) != 0) fail_of_call("rdma_create_qp");
    pair_of_id_.reset(id_);
    debug("created qp %p\n", static_cast<void*>(id_->qp));
    return;
  }
  own_pair_.reset(ibv_create_qp(domain_.get(), &wanted));
  if (!own_pair_) fail_of_call("ibv_create_qp");
  ibv_qp_attr initial = {};
  initial.qp_state = IBV_QPS_INIT;
  initial.port_num = id_->port_num;
  require(ibv_modify_qp(own_pair_.get(), &initial,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
          "ibv_modify_qp");
  debug("created qp %p\n", static_cast<void*>(own_pair_.get()));
}

void Session::make_buffer(Buffer& buffer, size_t bytes, int access, const char* name) {
  buffer.bytes.resize(bytes);
  buffer.region.reset(ibv_reg_mr(domain_.get(), buffer.bytes.data(), bytes, access));
  if (!buffer.region) fail_of_call(verbena::format("{} reg_mr failed", name));
}

void Session::make_buffers() {
  const auto bytes = static_cast<size_t>(plan_.bytes);
  make_buffer(received_, kAdvertisementBytes, IBV_ACCESS_LOCAL_WRITE, "recv_buf");
  make_buffer(sent_, kAdvertisementBytes, 0, "send_buf");
  make_buffer(sink_, bytes, kWholeAccess, "rdma_buf");
  if (!plan_.server) make_buffer(source_, bytes, kWholeAccess, "start_buf");
  debug("allocated & registered buffers...\n");
}

rdma_conn_param Session::connection() const {
  rdma_conn_param wanted = {};
  wanted.responder_resources = 1;
  wanted.initiator_depth = 1;
  wanted.retry_count = 7;
  wanted.rnr_retry_count = 7;
  if (own_pair_) wanted.qp_num = own_pair_->qp_num;
  return wanted;
}

void Session::bring_up() {
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attributes = {};
    int mask = 0;
    attributes.qp_state = state;
    if (rdma_init_qp_attr(id_, &attributes, &mask) != 0) fail_of_call("rdma_init_qp_attr");
    require(ibv_modify_qp(own_pair_.get(), &attributes, mask), "rping_modify_qp");
  }
}

void Session::connect() {
  rdma_conn_param wanted = connection();
  if (rdma_connect(id_, &wanted) != 0) fail_of_call("rdma_connect");
  await(Step::kConnected, "CONNECTED");
  if (own_pair_) {
    bring_up();
    if (rdma_establish(id_) != 0) fail_of_call("rdma_establish");
  }
  debug("rdma_connect successful\n");
}

void Session::accept() {
  debug("accepting client connection request\n");
  rdma_conn_param answer = connection();
  if (own_pair_) bring_up();
  if (rdma_accept(id_, own_pair_ ? &answer : nullptr) != 0) fail_of_call("rdma_accept");
  // The client's first message may come before the ESTABLISHED event, and counts as well.
  while (!established_ && step_ != Step::kReadAdvertised) {
    if (at_end() || !progress()) miss("CONNECTED");
  }
}

void Session::disconnect() {
  if (own_pair_) {
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_ERR;
    require(ibv_modify_qp(own_pair_.get(), &attributes, IBV_QP_STATE), "ibv_modify_qp");
  }
  const bool was_there = step_ != Step::kDisconnected;
  if (rdma_disconnect(id_) != 0) return;
  // Wait for the peer's reply; librdmacm generates the event if none comes.
  while (was_there && !at_end() && progress()) {
  }
}

nlohmann::ordered_json Session::description() const {
  return described(id_, queue_pair());
}

// Events of librdmacm, and completions.

void Session::miss(const char* name) const {
  if (!failed_by_event_) complain(verbena::format("wait for {} state {}", name, static_cast<int>(step_)));
  throw Failure{-1};
}

void Session::await(Step wanted, const char* name) {
  while (step_ != wanted) {
    if (at_end() || !progress()) miss(name);
  }
}

bool Session::progress() {
  std::array<pollfd, 2> listened = {{{channel_->fd, POLLIN, 0}, {-1, POLLIN, 0}}};
  if (completions_) listened[1].fd = completions_->fd;
  int ready = poll(listened.data(), listened.size(), kMilliseconds);
  if (ready == 0) {
    complain(
        verbena::format("still waiting for the {}, which says nothing", plan_.server ? "client" : "server"));
    ready = poll(listened.data(), listened.size(), -1);
  }
  if (ready < 0) return errno == EINTR || failed("poll") == 0;
  // Handle completions before the event: messages that arrived before the disconnect must not be lost.
  if (listened[1].revents != 0) take_completions();
  if (listened[0].revents == 0) return true;
  const Event event = next_event(channel_);
  if (!event) return failed("rdma_get_cm_event") == 0;
  if (completions_ && event->event == RDMA_CM_EVENT_DISCONNECTED) take_completions();
  take_event(*event);
  return true;
}

void Session::fail(const std::string& sentence, const std::string& remedy) {
  complain(sentence, remedy);
  step_ = Step::kError;
}

void Session::take_event(const rdma_cm_event& event) {
  debug("cma_event type %s cma_id %p (%s)\n", rdma_event_str(event.event), static_cast<void*>(event.id),
        plan_.server ? "child" : "parent");
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      step_ = Step::kAddressResolved;
      if (rdma_resolve_route(id_, kResolveMilliseconds) != 0) {
        failed("rdma_resolve_route");
        step_ = Step::kError;
      }
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      step_ = Step::kRouteResolved;
      return;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      debug("CONNECT_RESPONSE\n");
      step_ = Step::kConnected;
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      debug("ESTABLISHED\n");
      established_ = true;
      if (!plan_.server) step_ = Step::kConnected;
      return;
    case RDMA_CM_EVENT_DISCONNECTED:
      complain(verbena::format("{} DISCONNECT EVENT...", plan_.server ? "server" : "client"));
      step_ = Step::kDisconnected;
      return;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
      failed_by_event_ = true;
      fail(verbena::format("cma event {}, error {}", rdma_event_str(event.event), event.status),
           remedy_for(event.event));
      return;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      failed_by_event_ = true;
      fail("cma detected device removal!!!!");
      return;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return;
    default:
      complain(verbena::format("unhandled event: {}, ignoring", rdma_event_str(event.event)));
  }
}

void Session::take_completions() {
  pollfd listened = {completions_->fd, POLLIN, 0};
  if (poll(&listened, 1, 0) == 1) {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(completions_.get(), &queue, &context) != 0) return fail("Failed to get cq event!");
    ibv_ack_cq_events(queue, 1);
    if (ibv_req_notify_cq(queue_.get(), 0) != 0) return fail("Failed to set notify!");
  }
  ibv_wc completion;
  int found = 0;
  while ((found = ibv_poll_cq(queue_.get(), 1, &completion)) == 1) take(completion);
  if (found < 0) fail(verbena::format("poll error {}", found));
}

void Session::take(const ibv_wc& completion) {
  if (completion.status == IBV_WC_WR_FLUSH_ERR) return;  // the connection ends; an event follows
  if (completion.status != IBV_WC_SUCCESS) {
    return fail(verbena::format("cq completion failed status {}", static_cast<int>(completion.status)),
                ibv_wc_status_str(completion.status));
  }
  switch (completion.opcode) {
    case IBV_WC_SEND:
      debug("send completion\n");
      return;
    case IBV_WC_RDMA_WRITE:
      debug("rdma write completion\n");
      step_ = Step::kWriteComplete;
      return;
    case IBV_WC_RDMA_READ:
      debug("rdma read completion\n");
      step_ = Step::kReadComplete;
      return;
    case IBV_WC_RECV:
      debug("recv completion\n");
      take_message(completion);
      if (step_ != Step::kError && status_of([this] { post_receive(); }) != 0) step_ = Step::kError;
      return;
    default:
      fail(verbena::format("unknown completion {}", static_cast<int>(completion.opcode)));
  }
}

void Session::take_message(const ibv_wc& completion) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(received_.bytes.data());
  const auto message =
      completion.byte_len <= kAdvertisementBytes ? decode({bytes, completion.byte_len}) : std::nullopt;
  if (!message) {
    fail(verbena::format("Received bogus data, size {}", completion.byte_len), "the other end is no rping");
    return;
  }
  if (!plan_.server) {
    step_ = step_ == Step::kReadAdvertised ? Step::kWriteAdvertised : Step::kWriteComplete;
    return;
  }
  other_ = *message;
  debug("Received rkey %x addr %" PRIx64 " len %d from peer\n", other_.key, other_.address, other_.bytes);
  const bool first = step_ <= Step::kConnected || step_ == Step::kWriteComplete;
  step_ = first ? Step::kReadAdvertised : Step::kWriteAdvertised;
}

// The rounds of both ends: their requests and the order of these.

void Session::post_receive() {
  const ibv_sge place = {reinterpret_cast<uintptr_t>(received_.bytes.data()), kAdvertisementBytes,
                         received_.region->lkey};
  require_posted("post recv", rdma_core::post_receive(queue_pair(), place));
}

void Session::post(ibv_wr_opcode opcode, const Buffer& buffer, size_t bytes) {
  ibv_send_wr request = {};
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {other_.address, other_.key};
  const ibv_sge piece = {reinterpret_cast<uintptr_t>(buffer.bytes.data()), static_cast<uint32_t>(bytes),
                         buffer.region->lkey};
  require_posted("post send", post_send(queue_pair(), piece, request));
}

void Session::advertise(const Buffer& buffer) {
  const Advertisement said = {reinterpret_cast<uintptr_t>(buffer.bytes.data()), buffer.region->rkey,
                              static_cast<uint32_t>(plan_.bytes)};
  const AdvertisementBytes message = encode(said);
  std::copy(message.begin(), message.end(), sent_.bytes.begin());
  debug("RDMA addr %" PRIx64 " rkey %x len %d\n", said.address, said.key, said.bytes);
}

void Session::serve() {
  while (step_ != Step::kDisconnected) {
    const int status = status_of([this] { mirror(); });
    if (status != 0 && step_ != Step::kDisconnected) throw Failure{status};
  }
}

void Session::mirror() {
  await(Step::kReadAdvertised, "RDMA_READ_ADV");
  debug("server received sink adv\n");
  if (other_.bytes > sink_.bytes.size()) {
    complain(verbena::format("a ping of {} bytes does not fit into {}", other_.bytes, sink_.bytes.size()),
             "give the server the client's -S");
    throw Failure{-1};
  }
  post(IBV_WR_RDMA_READ, sink_, other_.bytes);
  debug("server posted rdma read req \n");
  await(Step::kReadComplete, "RDMA_READ_COMPLETE");
  debug("server received read complete\n");
  const std::string_view text = text_of(sink_.bytes);
  if (plan_.verbose && !plan_.json) say_ping("server ping data", text);
  post_message();
  debug("server posted go ahead\n");

  await(Step::kWriteAdvertised, "RDMA_WRITE_ADV");
  debug("server received sink adv\n");
  const size_t bytes = std::min(text.size() + 1, sink_.bytes.size());
  debug("rdma write from lkey %x laddr %" PRIxPTR " len %zu\n", sink_.region->lkey,
        reinterpret_cast<uintptr_t>(sink_.bytes.data()), bytes);
  post(IBV_WR_RDMA_WRITE, sink_, bytes);
  await(Step::kWriteComplete, "RDMA_WRITE_COMPLETE");
  debug("server rdma write complete \n");
  post_message();
  debug("server posted go ahead\n");
  ++pings_;
}

void Session::ping() {
  const int status = status_of([this] {
    for (int number = 0; plan_.count == 0 || number < plan_.count; ++number) round(number);
  });
  if (status != 0 && step_ != Step::kDisconnected) throw Failure{status};
}

void Session::round(int number) {
  step_ = Step::kReadAdvertised;
  write_ping(source_.bytes, number);
  advertise(source_);
  post_message();
  await(Step::kWriteAdvertised, "RDMA_WRITE_ADV");
  advertise(sink_);
  post_message();
  await(Step::kWriteComplete, "RDMA_WRITE_COMPLETE");
  if (plan_.validate && source_.bytes != sink_.bytes) {
    complain("data mismatch!");
    throw Failure{-1};
  }
  const std::string_view text = text_of(sink_.bytes);
  if (plan_.verbose && !plan_.json) say_ping("ping data", text);
  ++pings_;
}

}  // namespace verbena::rdma_core
