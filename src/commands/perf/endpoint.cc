// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/endpoint.h"

#include <algorithm>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>

#include "commands/perf/memory.h"
#include "commands/perf/verify.h"

namespace verbena::perf {
namespace {

constexpr std::uint32_t kQkey = 0x11111111;  // perftest's
constexpr std::uint32_t kGroupsQpNum = 0xffffff;

verbena::access rights(const Parameters& parameters) {
  using enum verbena::access;
  const verbena::access more = parameters.on_demand ? on_demand : local_read;
  switch (parameters.test.verb) {
    case Verb::kWrite:
      return remote_write | more;
    case Verb::kRead:
      return local_write | remote_read | more;
    case Verb::kAtomic:
      return remote_atomic | more;
    default:
      return local_write | more;
  }
}

}  // namespace

Endpoint::Endpoint(const Device& device, const Parameters& parameters, const Layout& layout)
    : device_(device),
      parameters_(parameters),
      layout_(layout),
      buffer_(layout.buffer(parameters.size) + (parameters.is_datagram() ? layout.cache_line : 0)),
      inline_size_(device.inline_size),
      domain_(device.context.make_pd().value()) {
  if (parameters.sleeps) channel_ = device.context.make_channel().value();
  const verbena::completion_channel* const channel = channel_ ? &*channel_ : nullptr;
  send_cq_ = device.context.make_cq(parameters.send_depth * parameters.queue_pairs, channel).value();
  if (parameters.is(Verb::kSend))
    receive_cq_ = device.context.make_cq(parameters.receive_depth * parameters.queue_pairs, channel).value();
  if (parameters.is_xrc()) {
    xrc_domain_ = device.context.make_xrc_domain().value();
    srq_ =
        domain_.make_srq({.max_wr = parameters.receive_depth, .domain = &*xrc_domain_, .xrc_cq = &receives()})
            .value();
  } else if (parameters.uses_srq && parameters.receives()) {
    srq_ = domain_.make_srq({.max_wr = parameters.receive_depth}).value();
  }
  const std::size_t regions = parameters.has_region_per_pair ? parameters.queue_pairs : 1;
  for (std::size_t i = 0; i < regions; ++i)
    regions_.push_back(allocate(2 * buffer_ * parameters.queue_pairs / regions));
  if (parameters.verifies) fill_buffers();
}

// A kernel refuses to destroy a queue pair that belongs to a group.
Endpoint::~Endpoint() {
  if (!parameters_.joins_group()) return;
  for (const verbena::qp& each : pairs_) static_cast<void>(each.leave(parameters_.group));
}

// The data that will move has the pattern, and the memory to which it moves is zero.
void Endpoint::fill_buffers() {
  for (std::size_t i = 0; i < parameters_.queue_pairs; ++i) {
    std::ranges::fill(send_buffer(i).bytes(), std::byte{0});
    std::ranges::fill(receive_buffer(i).bytes(), std::byte{0});
    if (parameters_.is(Verb::kRead)) {
      fill_with_pattern(receive_buffer(i), i);
    } else if (!parameters_.is(Verb::kAtomic)) {
      fill_with_pattern(send_buffer(i), i);
    }
  }
}

verbena::region Endpoint::allocate(std::uint64_t size) const {
  verbena::region made = register_buffer(domain_, size, rights(parameters_), parameters_);
  // WRITE latency polls on its memory, so that must be zero. Other tests send random bytes, as perftest does.
  if (parameters_.is(Verb::kWrite) && parameters_.is_latency()) {
    std::ranges::fill(made.bytes(), std::byte{0});
  } else {
    std::minstd_rand random;
    for (std::byte& byte : made.bytes()) byte = static_cast<std::byte>(random() >> 8);
  }
  return made;
}

const verbena::region& Endpoint::memory(std::size_t index) const {
  return regions_[parameters_.has_region_per_pair ? index % parameters_.queue_pairs : 0];
}

verbena::slice Endpoint::send_buffer(std::size_t index) const {
  return memory(index).part(parameters_.has_region_per_pair ? 0 : index * buffer_, buffer_);
}

verbena::slice Endpoint::receive_buffer(std::size_t index) const {
  const std::uint32_t pairs = parameters_.queue_pairs;
  const std::size_t place = parameters_.has_region_per_pair ? 1 : pairs + index % pairs;
  return memory(index).part(place * buffer_, buffer_);
}

verbena::qp_options Endpoint::queue_options() const {
  return {.send_cq = sends(),
          .recv_cq = receives(),
          .srq = srq_ && !xrc_domain_ ? &*srq_ : nullptr,
          .max_send_wr = parameters_.send_depth,
          .max_recv_wr = srq_ ? 0 : parameters_.receive_depth,
          .max_inline = static_cast<std::uint32_t>(inline_size_),
          .port = parameters_.device_port};
}

void Endpoint::make_pair() {
  peers_.emplace_back();
  // With XRC, those that receive come behind those that send.
  if (xrc_domain_ && (!parameters_.sends() || pairs_.size() >= parameters_.queue_pairs)) {
    pairs_.push_back(xrc_domain_->make_receiver(parameters_.device_port).value());
    return;
  }
  pairs_.push_back(domain_.make_qp(parameters_.transport, queue_options()).value());
  inline_size_ = std::min<std::uint64_t>(inline_size_, pairs_.back().max_inline());
}

std::size_t Endpoint::peer_of(std::size_t index) const {
  const std::uint32_t half = parameters_.pairs_made() - parameters_.queue_pairs;  // 0: one kind
  return (index + half) % parameters_.pairs_made();
}

void Endpoint::add_pair(verbena::qp made, std::optional<verbena::address_handle> peer,
                        std::uint32_t peer_qp_num, std::uint32_t peer_qkey) {
  pairs_.push_back(std::move(made));
  peers_.push_back({.keys = {}, .address = std::move(peer), .qp_num = peer_qp_num, .qkey = peer_qkey});
}

Keys Endpoint::keys(std::size_t index) const {
  Keys own;
  own.lid = device_.port.lid;
  own.reads = device_.reads;
  own.qp_num = pairs_[index].number();
  own.psn = parameters_.uses_cm ? 0 : pairs_[index].local_endpoint().value().psn();
  const verbena::slice target = receive_buffer(index);
  own.rkey = memory(index).rkey();
  own.address = reinterpret_cast<std::uintptr_t>(target.data());
  own.gid = device_.gid.gid;
  if (xrc_domain_) own.srq_num = srq_->number().value();
  if (parameters_.joins_group()) {
    own.gid = parameters_.group;
    own.qp_num = kGroupsQpNum;
  }
  return own;
}

void Endpoint::connect(std::size_t index, const Keys& peer, ibv_mtu mtu) {
  peers_[index].keys = peer;
  if (parameters_.uses_cm) return;
  const auto gid_index = static_cast<std::uint8_t>(device_.gid.gid_index);
  const auto lid =
      static_cast<std::uint16_t>(parameters_.destination_lid != 0 ? parameters_.destination_lid : peer.lid);
  const verbena::qp& own = pairs_[index];
  if (!parameters_.is_datagram()) {
    const verbena::endpoint there(peer.gid, peer.qp_num, peer.psn, lid, mtu);
    own.connect(there, {.max_reads = static_cast<std::uint8_t>(peer.reads),
                        .max_peer_reads = static_cast<std::uint8_t>(device_.reads),
                        .timeout = parameters_.timeout,
                        .traffic_class = parameters_.traffic_class,
                        .service_level = parameters_.service_level,
                        .gid_index = gid_index})
        .value();
    return;
  }
  own.activate(kQkey).value();
  if (parameters_.joins_group()) own.join(parameters_.group).value();
  ibv_ah_attr attributes{};
  attributes.grh.dgid = peer.gid;
  attributes.grh.sgid_index = gid_index;
  attributes.grh.hop_limit = 255;
  attributes.grh.traffic_class = parameters_.traffic_class;
  attributes.dlid = lid;
  attributes.sl = parameters_.service_level;
  attributes.is_global = 1;
  attributes.port_num = parameters_.device_port;
  peers_[index].address = domain_.make_address(attributes).value();
  peers_[index].qp_num = peer.qp_num;
  peers_[index].qkey = kQkey;
}

void Endpoint::post_receives(std::uint64_t size) {
  receive_size_ = size;
  receive_list_.clear();
  receives_posted_.assign(parameters_.queue_pairs, 0);
  receives_checked_.assign(parameters_.queue_pairs, 0);
  for (std::size_t i = 0; i < parameters_.queue_pairs; ++i) {
    for (std::uint32_t k = 0; k < parameters_.receives_of_pair(); k += parameters_.receive_list_length)
      post_receives_of(i);
  }
}

// Returns the memory of the next receive that is posted.
verbena::slice Endpoint::next_receive(std::size_t index) {
  const std::size_t header = parameters_.is_datagram() ? kRouteHeader : 0;
  // The route header of a datagram ends at a cache line, so that its data begins there.
  const std::size_t start = header != 0 ? layout_.cache_line - header : 0;
  return receive_buffer(index).part(start + place(receives_posted_[index]++), receive_size_ + header);
}

void Endpoint::post_receives_of(std::size_t index) {
  if (!has_one_receive_place() || receive_list_.empty()) {
    receive_list_.clear();
    for (std::uint32_t k = 0; k < parameters_.receive_list_length; ++k)
      receive_list_.push_back(verbena::recv(next_receive(index)).numbered(index));
  }
  const std::span list(receive_list_);
  (srq_ ? srq_->post_all(list) : pairs_[index].post_all(list)).value();
}

void Endpoint::verify_receive(std::size_t index) {
  const std::uint64_t at = place(receives_checked_[index]++);
  const verbena::slice message = receive_buffer(index).part(at, receive_size_);
  check_pattern(message, index, parameters_.is_latency() ? 0 : at, "message");
  // Where receives share a place, the next message may have come already, unless the peer waits for an
  // answer.
  if (has_one_receive_place() || parameters_.receive_depth <= layout_.length(receive_size_))
    std::ranges::fill(message.bytes(), std::byte{0});
}

}  // namespace verbena::perf
