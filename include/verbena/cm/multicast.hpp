// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <verbena/cm.hpp>
#include <verbena/cm/multicast_state.hpp>

// Multicast: datagrams that reach all members of a group, or are lost.
//
//   multicast_group chat = co_await join_multicast(io, "239.1.2.3");
//   co_await chat.send("hello");
//   while (const buffer datagram = co_await chat.receive()) print(datagram.text());
namespace verbena {

// A membership in a multicast group. Belongs to its loop's thread, and must not outlive the loop. Leaves the
// group when it is destroyed.
class multicast_group {
 public:
  explicit multicast_group(std::shared_ptr<detail::multicast_state> state) : state_(std::move(state)) {}

  // The length in bytes of the longest datagram: that of a packet.
  std::size_t max_message_size() const { return state_->max_message_size(); }
  // Copies the bytes, and sends them as one datagram. Fails with EMSGSIZE if they are longer than
  // max_message_size(). All other members of the group receive the datagram, unless it is lost. Whether this
  // end receives it, too, depends on the adapter.
  task<> send(std::span<const std::byte> bytes) {
    buffer copy = state_->take_buffer(bytes.size());
    if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
    return detail::send_datagram(state_, std::move(copy), [](detail::multicast_state& group, buffer payload) {
      group.send(std::move(payload));
    });
  }
  task<> send(std::string_view text) { return send(std::as_bytes(std::span(text))); }
  // Returns the next datagram. After close(), returns first the datagrams that had arrived, and then an empty
  // buffer, which is false. Throws exception in place of the empty buffer if the membership has failed.
  task<buffer> receive() { return receive(state_); }
  // Waits until what was sent has left. Then leaves the group.
  task<> close() { return detail::close_datagrams(state_); }

 private:
  static task<buffer> receive(std::shared_ptr<detail::datagram_state> state) {
    detail::arrived_datagram first = co_await detail::receive_datagram(std::move(state));
    co_return std::move(first.payload);
  }

  std::shared_ptr<detail::multicast_state> state_;
};

// Joins a group by its address, such as "239.1.2.3" or "ff12::1". `from`: an address of the interface to use;
// by default the kernel's route to the group decides. Throws exception, with ETIMEDOUT after
// datagram_options::deadline.
inline task<multicast_group> join_multicast(loop& io, std::string group, std::string from = {},
                                            datagram_options options = {}) {
  const std::shared_ptr<detail::multicast_state> state(
      new detail::multicast_state(io, options), [](detail::multicast_state* last) { last->release(); });
  state->join(group, from);
  while (state->is_joining()) co_await detail::wait_in(state->waiting, [&] { return !state->is_joining(); });
  if (state->failure()) throw exception(*state->failure());
  co_return multicast_group(state);
}

}  // namespace verbena
