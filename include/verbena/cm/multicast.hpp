// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
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
  // Copies the bytes, and sends them as one datagram. Fails with EMSGSIZE if it is too long. The group's
  // other members receive it, if it is not lost; whether this end does depends on the adapter.
  task<> send(std::span<const std::byte> bytes) {
    buffer copy = state_->take_buffer(bytes.size());
    if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
    return send(state_, std::move(copy));
  }
  task<> send(std::string_view text) { return send(std::as_bytes(std::span(text))); }
  // Returns the next datagram. Returns an empty buffer, which is false, after the end of the membership.
  task<buffer> receive() {
    const auto kept = state_;
    while (!kept->has_datagram() && !kept->has_ended())
      co_await detail::wait_in(kept->waiting, [&] { return kept->has_datagram() || kept->has_ended(); });
    buffer first = kept->take_datagram();
    if (!first && kept->failure()) throw exception(*kept->failure());
    co_return first;
  }
  // Waits until what was sent has left. Then leaves the group.
  task<> close() {
    const auto kept = state_;
    while (!kept->is_idle() && !kept->has_ended())
      co_await detail::wait_in(kept->waiting, [&] { return kept->is_idle() || kept->has_ended(); });
    kept->leave();
  }

 private:
  static task<> send(std::shared_ptr<detail::multicast_state> to, buffer payload) {
    if (payload.size() > to->max_message_size())
      throw exception(error("send a datagram", EMSGSIZE, {}, "it is longer than a packet"));
    while (!to->has_room() && !to->has_ended())
      co_await detail::wait_in(to->waiting, [&] { return to->has_room() || to->has_ended(); });
    if (!to->has_ended()) to->send(std::move(payload));
    if (to->has_ended())
      throw exception(to->failure().value_or(error("send a datagram", ENOTCONN, {}, "the group was left")));
  }

  std::shared_ptr<detail::multicast_state> state_;
};

// Joins a group by its address, such as "239.1.2.3" or "ff12::1". `from`: an address of the interface to use;
// by default the kernel's route to the group decides. Throws exception.
inline task<multicast_group> join_multicast(loop& io, std::string group, std::string from = {},
                                            multicast_options options = {}) {
  const std::shared_ptr<detail::multicast_state> state(
      new detail::multicast_state(io, options), [](detail::multicast_state* last) { last->release(); });
  state->join(group, from);
  while (state->is_joining()) co_await detail::wait_in(state->waiting, [&] { return !state->is_joining(); });
  if (state->failure()) throw exception(*state->failure());
  co_return multicast_group(state);
}

}  // namespace verbena
