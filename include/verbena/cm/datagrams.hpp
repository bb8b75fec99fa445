// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <rdma/rdma_cma.h>
#include <verbena/cm.hpp>
#include <verbena/cm/datagram_socket_state.hpp>

// Datagrams to any peer, of at most one packet (UD). Each arrives whole, or is lost.
//
//   task<> echo(datagram_socket s) {
//     while (const datagram d = co_await s.receive()) co_await s.send(d.from, d.payload.bytes());
//   }
//   task<> ask(datagram_socket s) {
//     const datagram_address server = co_await s.resolve("10.0.0.1:7471");
//     co_await s.send(server, "hello");
//   }
namespace verbena {

// Where datagrams go: a queue pair of any host. Copies share an address handle. Belongs to the
// socket's loop, and must not outlive it.
class datagram_address {
 public:
  datagram_address() = default;
  datagram_address(std::shared_ptr<detail::datagram_host> host, std::uint32_t qp_num, std::uint32_t qkey)
      : host_(std::move(host)), qp_num_(qp_num), qkey_(qkey) {}

  // False for a default-constructed address, to which nothing can be sent.
  explicit operator bool() const { return host_ != nullptr; }
  std::uint32_t qp_num() const { return qp_num_; }
  // Returns the destination for verbs: send(...).to(address.get()). Throws exception: EDESTADDRREQ for a
  // default address, EHOSTUNREACH while the hardware address of a sender's host is unknown, or the reason why
  // the host cannot be reached.
  datagram_peer get() const {
    if (host_ == nullptr) throw exception(error("send a datagram", EDESTADDRREQ));
    return {host_->handle(), qp_num_, qkey_};
  }

 private:
  friend class datagram_socket;
  std::shared_ptr<detail::datagram_host> host_;
  std::uint32_t qp_num_ = 0, qkey_ = 0;
};

// A datagram that has arrived.
struct datagram {
  buffer payload;
  datagram_address from;

  // False after the last datagram. Keep the datagram in a variable to ask, as with class buffer.
  explicit operator bool() const& { return static_cast<bool>(payload); }
  explicit operator bool() const&& = delete;
  std::string_view text() const { return payload.text(); }
};

// Sends and receives datagrams. Belongs to its loop's thread, and must not outlive the loop.
class datagram_socket {
 public:
  // `where`: an address of an adapter of this host, as "10.0.0.1:7471". Peers resolve it. With port 0 the
  // kernel chooses one. "[::]:7471" is for hosts with one adapter. Throws exception: EADDRINUSE, or
  // EADDRNOTAVAIL if no adapter has the address.
  datagram_socket(loop& io, std::string_view where, const datagram_options& options = {})
      : state_(new detail::datagram_socket_state(io, where, options),
               [](detail::datagram_socket_state* last) { last->release(); }) {}

  std::uint16_t port() const { return state_->port(); }
  // The length in bytes of the longest datagram: that of a packet.
  std::size_t max_message_size() const { return state_->max_message_size(); }

  // Asks the host of "host:port" for the address of its socket. Throws exception: ECONNREFUSED if nobody
  // receives datagrams there, ETIMEDOUT after datagram_options::deadline, EHOSTUNREACH if another adapter
  // than the socket's leads there, and errors of looking up the name or the route. A slow name server blocks
  // the loop's thread.
  task<datagram_address> resolve(std::string where) {
    const auto kept = state_;
    const auto lookup = kept->look_for(where);
    while (!lookup->is_over()) co_await detail::wait_in(lookup->waiting, [&] { return lookup->is_over(); });
    if (lookup->failure()) throw exception(lookup->failure()->about(where));
    if (lookup->device() != kept->device())
      throw exception(error("resolve", EHOSTUNREACH, where, "another adapter than the socket's leads there"));
    const rdma_ud_param& found = lookup->found();
    const datagram_address there(kept->host(found.ah_attr), found.qp_num, found.qkey);
    there.get();  // makes the address handle: here an error has the name
    co_return there;
  }

  // Copies the bytes, and sends them as one datagram. Fails with EMSGSIZE if they are longer than
  // max_message_size(). The task ends when the adapter has the datagram. If `to` is the sender of a datagram,
  // its hardware address may still be unknown. Then the task ends at once, and the datagram waits. It is lost
  // if the host cannot be reached, or if datagram_options::sends datagrams wait already.
  task<> send(const datagram_address& to, std::span<const std::byte> bytes) {
    buffer copy = state_->take_buffer(bytes.size());
    if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
    return detail::send_datagram(state_, std::move(copy),
                                 [to](detail::datagram_socket_state& socket, buffer payload) {
                                   if (!to) throw exception(error("send a datagram", EDESTADDRREQ));
                                   socket.send_to(to.host_, std::move(payload), to.qp_num_, to.qkey_);
                                 });
  }
  task<> send(const datagram_address& to, std::string_view text) {
    return send(to, std::as_bytes(std::span(text)));
  }

  // Returns the next datagram. After close(), returns first the datagrams that had arrived, and then an empty
  // one, which is false. Throws exception in place of the empty one if the socket has failed.
  task<datagram> receive() {
    const auto kept = state_;
    for (;;) {
      detail::arrived_datagram first = co_await detail::receive_datagram(kept);
      if (!first.payload) co_return datagram();
      auto host = kept->sender_of(first);
      if (host == nullptr) continue;
      co_return datagram{std::move(first.payload),
                         datagram_address(std::move(host), first.completion.src_qp, RDMA_UDP_QKEY)};
    }
  }
  // Waits until what was sent has left. Then ends receiving.
  task<> close() { return detail::close_datagrams(state_); }

 private:
  std::shared_ptr<detail::datagram_socket_state> state_;
};

}  // namespace verbena
