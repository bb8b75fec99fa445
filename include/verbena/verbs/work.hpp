// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <tuple>
#include <utility>

#include <endian.h>
#include <infiniband/verbs.h>
#include <verbena/result.hpp>
#include <verbena/verbs/memory.hpp>

// Work requests. send(), write(), read() and other functions make a request as a value. Methods of the
// request return changed copies, and qp::post() hands the request to the adapter.
//
//   qp.post(write(buffer, peer), send(buffer.first(8)).inlined().signaled(42));
namespace verbena {

// ---- addresses of datagrams

// How to reach a port of the network, for UD.
class address_handle : public object<ibv_ah> {
 public:
  using object::object;
};

inline result<address_handle> pd::make_address(ibv_ah_attr attributes) const {
  ibv_ah* const made = ibv_create_ah(get(), &attributes);
  if (made == nullptr) return error("make an address handle", errno);
  return address_handle(detail::own(made, ibv_destroy_ah, handle()));
}

inline result<address_handle> pd::make_address(const ibv_gid& gid, std::uint8_t port) const {
  const auto own = detail::choose_gid(get()->context, port, &gid);
  if (!own) return own.error();
  ibv_ah_attr attributes{};
  attributes.grh.dgid = gid;
  attributes.grh.sgid_index = static_cast<std::uint8_t>(own->gid_index);
  attributes.grh.hop_limit = 64;
  attributes.is_global = 1;
  attributes.port_num = port;
  return make_address(attributes);
}

// The destination of a datagram.
struct datagram_peer {
  const address_handle& address;
  std::uint32_t qp_num;
  std::uint32_t qkey;
};

// ---- requests for a send queue

// The operations of send queues: each knows its opcode and the fields of ibv_send_wr that only it has. The
// constants say which methods of send_request it allows.
namespace operation {

struct send {
  static constexpr bool kHasData = true, kHasImmediate = true, kIsSend = true;
  ibv_ah* address = nullptr;  // for UD, as are qp_num and qkey
  std::uint32_t qp_num = 0;
  std::uint32_t qkey = 0;
  void fill(ibv_send_wr& to) const { to.wr.ud = {address, qp_num, qkey}; }
};

struct write {
  static constexpr bool kHasData = true, kHasImmediate = true, kIsSend = false;
  remote_slice target;
  void fill(ibv_send_wr& to) const { to.wr.rdma = {target.address, target.rkey}; }
};

struct read {
  static constexpr bool kHasData = false, kHasImmediate = false, kIsSend = false;
  remote_slice source;
  void fill(ibv_send_wr& to) const { to.wr.rdma = {source.address, source.rkey}; }
};

struct atomic {
  static constexpr bool kHasData = false, kHasImmediate = false, kIsSend = false;
  remote_slice target;
  std::uint64_t compare_or_add;
  std::uint64_t swap;
  void fill(ibv_send_wr& to) const { to.wr.atomic = {target.address, compare_or_add, swap, target.rkey}; }
};

struct bind {
  static constexpr bool kHasData = false, kHasImmediate = false, kIsSend = false;
  ibv_mw* window;
  std::uint32_t rkey;
  ibv_mw_bind_info wanted;
  void fill(ibv_send_wr& to) const {
    to.bind_mw.mw = window;
    to.bind_mw.rkey = rkey;
    to.bind_mw.bind_info = wanted;
  }
};

struct invalidate {
  static constexpr bool kHasData = false, kHasImmediate = false, kIsSend = false;
  void fill(ibv_send_wr&) const {}
};

}  // namespace operation

namespace detail {

template <std::size_t N>
void copy(const std::array<ibv_sge, N>& from, ibv_sge* to) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (..., (to[I].addr = from[I].addr, to[I].length = from[I].length, to[I].lkey = from[I].lkey));
  }
  (std::make_index_sequence<N>());
}

}  // namespace detail

// A request for a send queue, with `Pieces` parts of local memory: a value of some words. Nothing happens
// before it is posted. Its methods return the changed request.
template <class Operation, std::size_t Pieces>
class send_request {
 public:
  send_request(ibv_wr_opcode opcode, const Operation& operation, std::array<ibv_sge, Pieces> pieces)
      : operation_(operation), opcode_(opcode), pieces_(pieces) {}

  // Lets the request have a completion, with this number. Other requests have a completion only if they fail,
  // or if the queue pair was made with signal_all. The place of a request in the send queue is free again
  // only after its own completion or a later one.
  send_request signaled(std::uint64_t id = 0) const { return with(IBV_SEND_SIGNALED).numbered(id); }
  // Sets the number of the completion, which a request that fails always has.
  send_request numbered(std::uint64_t id) const {
    send_request changed = *this;
    changed.id_ = id;
    return changed;
  }
  // Lets the request begin only after all earlier READs and atomics of the queue pair have completed (IBTA
  // 10.8.3.3).
  send_request fenced() const { return with(IBV_SEND_FENCE); }
  // Makes the receiver's completion an event for cq::arm(true).
  send_request solicited() const { return with(IBV_SEND_SOLICITED); }
  // Lets post() copy the data, so that the program may change it at once. REQUIRES: at most qp::max_inline()
  // bytes
  send_request inlined() const requires(Operation::kHasData) { return with(IBV_SEND_INLINE); }
  // Sends immediate data: 32 bits, in host byte order, beside the data. A WRITE with immediate data completes
  // a receive of the peer, too.
  send_request immediate(std::uint32_t data) const requires(Operation::kHasImmediate) {
    return as(Operation::kIsSend ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM, htobe32(data));
  }
  // Makes the receiver's adapter invalidate this key of the receiver, such as that of a memory window.
  send_request invalidating(std::uint32_t rkey) const requires(Operation::kIsSend) {
    return as(IBV_WR_SEND_WITH_INV, rkey);
  }
  // For UD: sets the destination.
  send_request to(const datagram_peer& peer) const requires(Operation::kIsSend) {
    send_request changed = *this;
    changed.operation_ = {peer.address.get(), peer.qp_num, peer.qkey};
    return changed;
  }
  // For XRC: sets the peer's shared receive queue by its number (srq::number()).
  send_request to_srq(std::uint32_t srq_num) const {
    send_request changed = *this;
    changed.srq_num_ = srq_num;
    return changed;
  }

  static constexpr std::size_t kPieces = Pieces;
  // Writes the request as the C structure. `next`: the request after it, or nullptr; `pieces`: memory for
  // kPieces entries. Copies member by member, so that compilers build a request where the adapter reads it. A
  // copy of a whole object waits until members that have just been written are in the cache (about 5 ns).
  void fill(ibv_send_wr& to, ibv_send_wr* next, ibv_sge* pieces) const {
    detail::copy(pieces_, pieces);
    to.wr_id = id_;
    to.next = next;
    to.sg_list = pieces;
    to.num_sge = static_cast<int>(Pieces);
    to.opcode = opcode_;
    to.send_flags = flags_;
    to.invalidate_rkey = word_;
    to.qp_type.xrc.remote_srqn = srq_num_;
    operation_.fill(to);
  }

  send_request as(ibv_wr_opcode opcode, std::uint32_t word) const {
    send_request changed = *this;
    changed.opcode_ = opcode;
    changed.word_ = word;
    return changed;
  }

 private:
  send_request with(unsigned flag) const {
    send_request changed = *this;
    changed.flags_ |= flag;
    return changed;
  }

  std::uint64_t id_ = 0;
  Operation operation_;
  ibv_wr_opcode opcode_;
  unsigned flags_ = 0;
  std::uint32_t word_ = 0;  // immediate data in network byte order, or the key to invalidate
  std::uint32_t srq_num_ = 0;
  [[no_unique_address]] std::array<ibv_sge, Pieces> pieces_;
};

namespace detail {

template <class T>
concept local_memory = std::convertible_to<const T&, slice>;

template <local_memory... Memory>
std::array<ibv_sge, sizeof...(Memory)> pieces(const Memory&... memory) {
  return {static_cast<slice>(memory).get()...};
}

}  // namespace detail

// Sends the parts, one after the other, as one message.
template <detail::local_memory... Memory>
auto send(const Memory&... memory) {
  return send_request(IBV_WR_SEND, operation::send{}, detail::pieces(memory...));
}

// Writes local memory to the peer's memory, from its beginning on. write_all() writes several parts of local
// memory, one after the other.
template <detail::local_memory Memory>
auto write(const Memory& from, const remote_slice& to) {
  return send_request(IBV_WR_RDMA_WRITE, operation::write{to}, detail::pieces(from));
}
template <detail::local_memory... Memory>
auto write_all(const remote_slice& to, const Memory&... from) {
  return send_request(IBV_WR_RDMA_WRITE, operation::write{to}, detail::pieces(from...));
}

// Reads from the beginning of the peer's memory, as many bytes as the local memory has.
template <detail::local_memory Memory>
auto read(const Memory& into, const remote_slice& from) {
  return send_request(IBV_WR_RDMA_READ, operation::read{from}, detail::pieces(into));
}

// Adds `addend` to eight bytes of the peer's memory by one atomic operation. Their address must be a multiple
// of eight. Puts the old value into `before`, in host byte order.
template <detail::local_memory Memory>
auto fetch_add(const Memory& before, const remote_slice& target, std::uint64_t addend) {
  return send_request(IBV_WR_ATOMIC_FETCH_AND_ADD, operation::atomic{target, addend, 0},
                      detail::pieces(before));
}
// Stores `desired` in eight bytes of the peer's memory if their value is `expected`, by one atomic operation.
// Their address must be a multiple of eight. Puts the old value into `before`, in host byte order.
template <detail::local_memory Memory>
auto compare_swap(const Memory& before, const remote_slice& target, std::uint64_t expected,
                  std::uint64_t desired) {
  return send_request(IBV_WR_ATOMIC_CMP_AND_SWP, operation::atomic{target, expected, desired},
                      detail::pieces(before));
}

// Binds a window of type 2 to a part of a region, with a new key: ibv_inc_rkey(window.rkey()), for example.
inline auto bind(const memory_window& window, std::uint32_t rkey, const region& memory, const slice& part,
                 access rights) {
  const ibv_mw_bind_info wanted{memory.get(), reinterpret_cast<std::uintptr_t>(part.data()), part.size(),
                                bits(rights)};
  return send_request(IBV_WR_BIND_MW, operation::bind{window.get(), rkey, wanted}, detail::pieces());
}
// Invalidates a key of this end: that of a window of type 2.
inline auto invalidate(std::uint32_t rkey) {
  return send_request(IBV_WR_LOCAL_INV, operation::invalidate{}, detail::pieces()).as(IBV_WR_LOCAL_INV, rkey);
}

// ---- requests for a receive queue

// Memory for one message of the peer.
template <std::size_t Pieces>
class recv_request {
 public:
  explicit recv_request(std::array<ibv_sge, Pieces> pieces) : pieces_(pieces) {}
  // Sets the number of the completion.
  recv_request numbered(std::uint64_t id) const {
    recv_request changed = *this;
    changed.id_ = id;
    return changed;
  }
  static constexpr std::size_t kPieces = Pieces;
  // Writes the request as the C structure, as send_request::fill() does.
  void fill(ibv_recv_wr& to, ibv_recv_wr* next, ibv_sge* pieces) const {
    detail::copy(pieces_, pieces);
    to = {id_, next, pieces, static_cast<int>(Pieces)};
  }

 private:
  std::uint64_t id_ = 0;
  [[no_unique_address]] std::array<ibv_sge, Pieces> pieces_;
};

// Receives one message into the parts, one after the other. Without parts: a message without data.
template <detail::local_memory... Memory>
auto recv(const Memory&... memory) {
  return recv_request<sizeof...(Memory)>(detail::pieces(memory...));
}

// ---- posting

namespace detail {

template <class Request>
inline constexpr bool is_send = false;
template <class Operation, std::size_t Pieces>
inline constexpr bool is_send<send_request<Operation, Pieces>> = true;
template <class Request>
inline constexpr bool is_recv = false;
template <std::size_t Pieces>
inline constexpr bool is_recv<recv_request<Pieces>> = true;

// Makes the error of a chain whose request at `position` was refused. Is not inlined, so that the code of
// calls that succeed stays small.
[[gnu::cold, gnu::noinline]] inline result<void> refused(int code, std::size_t position) {
  const char* const hint = code == ENOMEM ? "the queue is full: take completions first" : nullptr;
  return error("post a work request", code, {}, hint).at(position);
}

// Posts a chain, whose C structures lie one after the other.
template <auto Post, class Queue, class Wr>
result<void> post_chain(Queue* queue, Wr* first) {
  Wr* bad = nullptr;
  const int code = Post(queue, first, &bad);
  if (code == 0) [[likely]]
    return {};
  return refused(code, bad != nullptr ? static_cast<std::size_t>(bad - first) : 0);
}

// Posts the requests as a chain to a queue: a queue pair or a shared receive queue. Is always inlined, so
// that the compiler removes the objects of the requests.
template <class Wr, auto Post, class Queue, class... Requests>
[[gnu::always_inline]] inline result<void> post(Queue* queue, const Requests&... requests) {
  std::array<Wr, sizeof...(Requests)> chain;
  std::array<ibv_sge, (std::size_t{0} + ... + Requests::kPieces)> pieces;
  std::size_t filled = 0;
  std::size_t piece = 0;
  const auto add = [&]<class Request>(const Request& request) {
    Wr* const next = filled + 1 < chain.size() ? &chain[filled + 1] : nullptr;
    request.fill(chain[filled++], next, pieces.data() + piece);
    piece += Request::kPieces;
  };
  (..., add(requests));
  return post_chain<Post>(queue, chain.data());
}

// Posts requests as chains of at most kChain, since their C structures are on the stack.
template <class Wr, auto Post, class Queue, class Request>
result<void> post_all(Queue* queue, std::span<Request> requests) {
  constexpr std::size_t kChain = 16;
  std::array<Wr, kChain> chain;
  std::array<ibv_sge, kChain * Request::kPieces> pieces;
  for (std::size_t done = 0; done < requests.size();) {
    const std::size_t count = std::min(kChain, requests.size() - done);
    for (std::size_t i = 0; i < count; ++i) {
      requests[done + i].fill(chain[i], i + 1 < count ? &chain[i + 1] : nullptr,
                              pieces.data() + i * Request::kPieces);
    }
    if (auto posted = post_chain<Post>(queue, chain.data()); !posted) {
      const error& reason = posted.error();
      return reason.at(done + reason.position());
    }
    done += count;
  }
  return {};
}

inline int post_send(ibv_qp* queue, ibv_send_wr* first, ibv_send_wr** bad) {
  return ibv_post_send(queue, first, bad);
}
inline int post_recv(ibv_qp* queue, ibv_recv_wr* first, ibv_recv_wr** bad) {
  return ibv_post_recv(queue, first, bad);
}
inline int post_srq_recv(ibv_srq* queue, ibv_recv_wr* first, ibv_recv_wr** bad) {
  return ibv_post_srq_recv(queue, first, bad);
}

}  // namespace detail
}  // namespace verbena
