// SPDX-License-Identifier: Apache-2.0
// The peer of a stream rsocket, with arbitrary connection data and messages. It writes at any time into the
// memory that it was given, grants buffers that it does not have, and ends at any time. Promises: at worst
// the connection breaks. A reader never gets bytes that were not written; a sender never sends from memory
// that is not its own, nor posts more than fits. A message of the peer causes at most a few of ours. A broken
// connection stays broken.
//
// The QP is simulated: posted requests are checked, and completions are the input's choice. Headers of
// datagrams are arbitrary, too.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include "fuzz/choices.h"
#include "fuzz/require.h"
#include "libraries/rsockets/address.h"
#include "libraries/rsockets/stream_protocol.h"
#include "libraries/rsockets/stream_qp.h"

namespace verbena::rsockets {
namespace {

using fuzz::Choices;

// The device, and the requests posted to its only QP.
struct Device {
  struct Sent {
    uint64_t id;
  };
  ibv_context context{};
  ibv_pd domain{};
  ibv_comp_channel channel{};
  ibv_cq queue{};
  ibv_qp qp{};
  std::vector<ibv_mr> regions;
  uint32_t receives = 0;
  uint32_t max_receives = 0;
  uint32_t max_sends = 0;
  std::deque<uint64_t> sent;
  std::deque<ibv_wc> completed;
  uint64_t posted_since = 0;  // by the stream under test, since the peer's last action

  void reset() {
    regions.clear();
    sent.clear();
    completed.clear();
    receives = max_receives = max_sends = 0;
    posted_since = 0;
  }
  bool is_registered(const ibv_sge& piece) const {
    return std::ranges::any_of(regions, [&](const ibv_mr& region) {
      const auto begin = reinterpret_cast<uintptr_t>(region.addr);
      return region.lkey == piece.lkey && piece.addr >= begin && piece.length <= region.length &&
             piece.addr - begin <= region.length - piece.length;
    });
  }
};
Device device;

int post_send(ibv_qp*, ibv_send_wr* request, ibv_send_wr**) {
  VERBENA_REQUIRE(request->next == nullptr && device.sent.size() < device.max_sends);
  for (int i = 0; i < request->num_sge; ++i) {
    const ibv_sge& piece = request->sg_list[i];
    const bool is_inline = (request->send_flags & IBV_SEND_INLINE) != 0;
    VERBENA_REQUIRE(is_inline || device.is_registered(piece));
    // Reads the memory, so that the sanitizer checks the access.
    volatile std::byte sum{};
    for (uint32_t at = 0; at < piece.length; at += 64) {
      sum = sum ^ reinterpret_cast<const std::byte*>(piece.addr)[at];
    }
  }
  device.sent.push_back(request->wr_id);
  ++device.posted_since;
  return 0;
}

int post_recv(ibv_qp*, ibv_recv_wr* request, ibv_recv_wr**) {
  for (; request != nullptr; request = request->next) ++device.receives;
  VERBENA_REQUIRE(device.receives <= device.max_receives);
  return 0;
}

int poll_cq(ibv_cq*, int most, ibv_wc* completions) {
  int count = 0;
  for (; count < most && !device.completed.empty(); ++count) {
    completions[count] = device.completed.front();
    device.completed.pop_front();
  }
  return count;
}

}  // namespace
}  // namespace verbena::rsockets

// The verbs that a stream calls when it is made.
extern "C" {
using verbena::rsockets::device;

int rdma_create_qp(rdma_cm_id* id, ibv_pd*, ibv_qp_init_attr* attributes) {
  device.max_receives = attributes->cap.max_recv_wr;
  device.max_sends = attributes->cap.max_send_wr;
  device.qp.context = &device.context;
  device.qp.pd = &device.domain;
  id->qp = &device.qp;
  return 0;
}
void rdma_destroy_qp(rdma_cm_id* id) {
  id->qp = nullptr;
}
int ibv_query_device(ibv_context*, ibv_device_attr* limits) {
  std::memset(limits, 0, sizeof *limits);
  limits->max_qp_wr = 1024;
  limits->max_cqe = 4096;
  return 0;
}
ibv_comp_channel* ibv_create_comp_channel(ibv_context*) {
  device.channel.fd = -1;
  return &device.channel;
}
int ibv_destroy_comp_channel(ibv_comp_channel*) {
  return 0;
}
ibv_cq* ibv_create_cq(ibv_context*, int, void*, ibv_comp_channel*, int) {
  device.queue.context = &device.context;
  return &device.queue;
}
int ibv_destroy_cq(ibv_cq*) {
  return 0;
}
int ibv_get_cq_event(ibv_comp_channel*, ibv_cq**, void**) {
  return -1;
}
void ibv_ack_cq_events(ibv_cq*, unsigned) {}
ibv_mr* add_region(void* at, size_t bytes) {
  if (device.regions.capacity() == 0) device.regions.reserve(8);
  ibv_mr& region = device.regions.emplace_back();
  region.addr = at;
  region.length = bytes;
  region.lkey = region.rkey = 100 + static_cast<uint32_t>(device.regions.size());
  return &region;
}
ibv_mr*(ibv_reg_mr)(ibv_pd*, void* at, size_t bytes, int) {
  return add_region(at, bytes);
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd*, void* at, size_t bytes, uint64_t, unsigned) {
  return add_region(at, bytes);
}
int ibv_dereg_mr(ibv_mr*) {
  return 0;
}
}

namespace verbena::rsockets {
namespace {

constexpr size_t kMaxData = 4096;

Sizes sizes_from(Choices& choices) {
  Sizes sizes;
  sizes.send_queue = choices.byte();
  sizes.receive_queue = choices.byte();
  sizes.inline_bytes = choices.below(3) * 32;
  sizes.send_bytes = choices.number<uint16_t>() % 8192;
  sizes.receive_bytes = choices.number<uint16_t>() % 8192;
  sizes.iomap_entries = choices.below(4);
  return sizes;
}

class Connection {
 public:
  explicit Connection(Choices& choices) : choices_(choices) {}

  void run() {
    device.reset();
    device.context.ops.post_send = post_send;
    device.context.ops.post_recv = post_recv;
    device.context.ops.poll_cq = poll_cq;
    device.context.ops.req_notify_cq = [](ibv_cq*, int) { return 0; };
    rdma_cm_id id{};
    id.verbs = &device.context;
    auto made = StreamQp::create(&id, sizes_from(choices_));
    VERBENA_REQUIRE(made);
    stream_ = std::move(*made);
    if (meet()) {
      while (!choices_.empty()) turn();
    }
    stream_.reset();
  }

 private:
  bool meet() {
    std::array<std::byte, ConnectData::kBytes> said{};
    ConnectData data;
    data.credits = 60;
    data.table = {0x1000, 7, kTableEntries};
    data.buffer = {0x2000, 8, choices_.number<uint16_t>()};
    said = data.encode();
    for (uint32_t changes = choices_.below(4); changes > 0; --changes) {
      said[choices_.below(said.size())] = static_cast<std::byte>(choices_.byte());
    }
    const auto understood = ConnectData::decode(ConstBytes(said).first(said.size() - choices_.below(2)));
    if (understood) stream_->meet(*understood);
    return understood.has_value();
  }

  void turn() {
    device.posted_since = 0;
    was_broken_ = stream_->is_broken();
    const Interest all = POLLIN | POLLOUT | kControlRoom | kFlushed;
    VERBENA_REQUIRE((stream_->look(all) & ~(all | POLLERR | POLLHUP)) == 0);
    switch (choices_.below(12)) {
      case 0:
      case 1:
      case 2:
        peer_says();
        break;
      case 3:
        peer_writes();
        break;
      case 4:
        completes();
        break;
      case 5:
        send();
        break;
      case 6:
        read();
        break;
      case 7:
        (void)stream_->control(choices_.yes() ? Control::kShutdown : Control::kDisconnect);
        if (choices_.yes()) stream_->stop_writing();
        break;
      case 8:
        stream_->keep_alive();
        break;
      case 9:
        write_mapped();
        break;
      case 10:
        announce();
        break;
      default:
        for (uint32_t i = choices_.below(32); i > 0; --i) complete_one(IBV_WC_SUCCESS);
        stream_->progress();
    }
    // An action of the peer causes control messages only, of which a few may be outstanding.
    VERBENA_REQUIRE(device.posted_since <= 8);
    VERBENA_REQUIRE(!was_broken_ || stream_->is_broken());
    VERBENA_REQUIRE(!stream_->is_broken() || !stream_->is_up());
  }

  // Delivers a WRITE with immediate data, or an invalid completion.
  void peer_says() {
    if (device.receives == 0) return;
    --device.receives;
    ibv_wc completion{};
    completion.wr_id = uint64_t{1} << 63;
    completion.status =
        choices_.below(32) == 0 ? static_cast<ibv_wc_status>(choices_.below(24)) : IBV_WC_SUCCESS;
    completion.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    completion.wc_flags = choices_.below(16) == 0 ? 0 : IBV_WC_WITH_IMM;
    const auto operation = static_cast<Operation>(choices_.below(8));
    uint32_t value = choices_.number<uint16_t>();
    if (choices_.below(4) == 0) value = choices_.number<uint32_t>() & kMaxMessageValue;
    if (operation == Operation::kControl) value %= 4;
    completion.byte_len = operation == Operation::kCredits && choices_.yes() ? BufferAddress::kBytes : value;
    store_be(&completion.imm_data, static_cast<uint32_t>(operation) << 29 | value);
    device.completed.push_back(completion);
    if (choices_.below(4) != 0) stream_->progress();
  }

  // Writes where the peer has keys: into the receive buffer and the table.
  void peer_writes() {
    const ibv_mr& region = device.regions[1 + choices_.below(2)];
    const size_t at = choices_.number<uint16_t>() % region.length;
    const ConstBytes bytes = choices_.bytes(choices_.below(32));
    std::memcpy(static_cast<std::byte*>(region.addr) + at, bytes.data(),
                std::min(bytes.size(), region.length - at));
  }

  void complete_one(ibv_wc_status status) {
    if (device.sent.empty()) return;
    ibv_wc completion{};
    completion.wr_id = device.sent.front();
    completion.status = status;
    device.sent.pop_front();
    device.completed.push_back(completion);
  }
  void completes() {
    complete_one(choices_.below(16) == 0 ? static_cast<ibv_wc_status>(choices_.below(24)) : IBV_WC_SUCCESS);
    stream_->progress();
  }

  void send() {
    static std::byte data[kMaxData];
    const auto bytes = static_cast<size_t>(1 + choices_.number<uint16_t>() % kMaxData);
    const iovec pieces[] = {{data, bytes / 2}, {data + bytes / 2, bytes - bytes / 2}};
    Buffers from(pieces, 2);
    if (!stream_->is_writable() || !stream_->window().may_send()) return;
    const uint32_t most = 1 + choices_.number<uint16_t>();
    const auto sent = stream_->send(from, most);
    VERBENA_REQUIRE(sent && *sent > 0 && *sent <= std::min<size_t>(bytes, most));
    VERBENA_REQUIRE(from.size() == bytes - *sent);
  }

  void read() {
    static std::byte data[kMaxData];
    const iovec piece{data, choices_.number<uint16_t>() % kMaxData};
    const size_t peeked = stream_->peek(Buffers(&piece, 1));
    Buffers into(&piece, 1);
    const size_t read = stream_->read(into);
    VERBENA_REQUIRE(read == peeked && read <= piece.iov_len && read <= stream_->sizes().receive_bytes);
  }

  // Does riowrite(), whose destination is read from the table that the peer writes.
  void write_mapped() {
    static std::byte data[kMaxData];
    const uint64_t offset = choices_.yes() ? choices_.byte() : choices_.number<uint64_t>();
    const auto to = stream_->mapped_by_peer().find(offset);
    if (!to || !stream_->is_up() || !stream_->window().has_room()) return;
    VERBENA_REQUIRE(to->length > 0);
    const iovec piece{data, 1u + choices_.byte()};
    Buffers from(&piece, 1);
    const auto written = stream_->write(from, kMaxData, *to);
    VERBENA_REQUIRE(written && *written <= to->length);
  }

  void announce() {
    if (!stream_->is_up() || !stream_->window().has_room() || !stream_->window().has_credit()) return;
    if (stream_->peers_iomap_entries() == 0) return;
    const uint32_t index = choices_.byte() % stream_->peers_iomap_entries();
    (void)stream_->announce(index, {choices_.byte(), {1, 2, 3}});
  }

  Choices& choices_;
  std::unique_ptr<StreamQp> stream_;
  bool was_broken_ = false;
};

// Headers of datagrams are parsed or refused, and a parsed header encodes to the same bytes.
void check_headers(Choices& choices) {
  const int family = choices.yes() ? AF_INET : AF_INET6;
  const ConstBytes taken = choices.rest();
  std::vector<std::byte> bytes(taken.begin(), taken.end());
  if (const auto header = DatagramHeader::decode(bytes)) {
    std::array<std::byte, DatagramHeader::kMaxBytes> again;
    VERBENA_REQUIRE(header->encode(again.data()) == header->size() && header->size() <= bytes.size());
    VERBENA_REQUIRE(
        std::equal(again.begin(), again.begin() + static_cast<ptrdiff_t>(header->size()), bytes.begin()));
  }
  if (const auto header = UdpHeader::decode(bytes, family)) {
    VERBENA_REQUIRE(header->size() <= bytes.size() && header->qpn <= 0xffffff);
    std::array<std::byte, UdpHeader::kMaxBytes> again;
    VERBENA_REQUIRE(header->encode(again.data()) == header->size());
    const auto twice = UdpHeader::decode(again, family);
    VERBENA_REQUIRE(twice && twice->qpn == header->qpn && twice->kind == header->kind &&
                    twice->source == header->source);
  }
  if (const auto data = ConnectData::decode(bytes)) {
    VERBENA_REQUIRE(data->table.length >= kTableEntries);
    const auto again = ConnectData::decode(data->encode());
    VERBENA_REQUIRE(again && again->credits == data->credits && again->table == data->table &&
                    again->buffer == data->buffer && again->order == data->order);
  }
}

}  // namespace
}  // namespace verbena::rsockets

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace verbena::rsockets;
  Choices choices(data, size);
  if (choices.below(8) == 0) {
    check_headers(choices);
  } else {
    Connection(choices).run();
  }
  return 0;
}
