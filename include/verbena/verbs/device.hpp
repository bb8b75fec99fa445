// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <verbena/result.hpp>
#include <verbena/verbs/object.hpp>

// Devices, their ports and addresses. Start here: open() returns a context, and the context makes the rest.
namespace verbena {

class completion_channel;
class cq;
class extended_cq;
class pd;
class xrc_domain;

// ---- addresses

// Returns whether an address is an IPv4 address in the form of an IPv6 address (RFC 4291, 2.5.5.2), as RoCEv2
// writes it.
inline bool is_ipv4(const ibv_gid& gid) {
  constexpr std::array<std::uint8_t, 12> kPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kPrefix.begin(), kPrefix.end(), gid.raw);
}
inline bool is_link_local(const ibv_gid& gid) {
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

// Returns the address as text, such as "10.0.0.1" or "fe80::1".
inline std::string to_string(const ibv_gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool ipv4 = is_ipv4(gid);
  inet_ntop(ipv4 ? AF_INET : AF_INET6, gid.raw + (ipv4 ? 12 : 0), text.data(), text.size());
  return text.data();
}

// ---- contexts

// The state, limits and link of a port.
using port_attributes = ibv_port_attr;

// An event of a device, such as the end of a link or an error of a queue pair. Its destruction acknowledges
// the event. Until then, an object that the event is about cannot be destroyed: its destructor waits.
class async_event {
 public:
  explicit async_event(const ibv_async_event& event) : event_(event) {}
  async_event(async_event&& other) noexcept
      : event_(other.event_), is_held_(std::exchange(other.is_held_, false)) {}
  async_event& operator=(async_event&& other) noexcept {
    std::swap(event_, other.event_);
    std::swap(is_held_, other.is_held_);
    return *this;
  }
  ~async_event() {
    if (is_held_) ibv_ack_async_event(&event_);
  }

  ibv_event_type type() const { return event_.event_type; }
  std::string_view name() const { return ibv_event_type_str(event_.event_type); }
  const ibv_async_event& get() const { return event_; }

 private:
  ibv_async_event event_;
  bool is_held_ = true;
};

namespace detail {

inline error failure(const ibv_context* device, const char* tried, int code, const char* hint = nullptr) {
  return error(tried, code, ibv_get_device_name(device->device), hint);
}

inline result<std::vector<ibv_gid_entry>> gids(ibv_context* device, std::uint8_t port) {
  constexpr std::size_t kMaxGids = 256;
  std::vector<ibv_gid_entry> all(kMaxGids);
  const ssize_t count = ibv_query_gid_table(device, all.data(), all.size(), 0);
  if (count < 0) return failure(device, "query the addresses of", static_cast<int>(-count));
  all.resize(static_cast<std::size_t>(count));
  std::erase_if(all, [&](const ibv_gid_entry& each) { return each.port_num != port; });
  return all;
}

inline result<ibv_gid_entry> choose_gid(ibv_context* device, std::uint8_t port, const ibv_gid* peer) {
  const auto all = gids(device, port);
  if (!all) return all.error();
  const auto rank = [&](const ibv_gid_entry& each) {
    const bool is_of_kind = peer == nullptr || (is_ipv4(each.gid) == is_ipv4(*peer) &&
                                                is_link_local(each.gid) == is_link_local(*peer));
    return (is_of_kind ? 0 : 8) + (each.gid_type == IBV_GID_TYPE_ROCE_V2 ? 0 : 4) +
           (is_ipv4(each.gid)         ? 0
            : is_link_local(each.gid) ? 2
                                      : 1);
  };
  const auto best = std::min_element(all->begin(), all->end(),
                                     [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  if (best == all->end())
    return failure(device, "choose an address of", EADDRNOTAVAIL, "its interface has no address");
  return *best;
}

}  // namespace detail

// An open device.
class context : public object<ibv_context> {
 public:
  using object::object;
  std::string name() const { return ibv_get_device_name(get()->device); }

  result<ibv_device_attr> attributes() const {
    ibv_device_attr found{};
    if (const int code = ibv_query_device(get(), &found); code != 0) return failure("query", code);
    return found;
  }
  // Ports are numbered from 1.
  result<port_attributes> port(std::uint8_t number = 1) const {
    port_attributes found{};
    if (const int code = ibv_query_port(get(), number, &found); code != 0)
      return failure("query a port of", code);
    return found;
  }

  // Returns the addresses of a port.
  result<std::vector<ibv_gid_entry>> gids(std::uint8_t port = 1) const { return detail::gids(get(), port); }
  // Chooses the address that connections of the port should use. Prefers RoCEv2 to other types. Then prefers
  // an IPv4 address to a global IPv6 address, and that to a link-local one. With `peer`, addresses of the
  // same IP version as `peer` come before all others. Fails with EADDRNOTAVAIL if the port has no address.
  result<ibv_gid_entry> choose_gid(std::uint8_t port = 1, const ibv_gid* peer = nullptr) const {
    return detail::choose_gid(get(), port, peer);
  }

  result<pd> make_pd() const;
  // Makes a completion queue. `entries`: minimum number of completions that the queue holds. With `channel`,
  // the queue can wake a thread that sleeps (cq::arm()).
  result<cq> make_cq(std::uint32_t entries, const completion_channel* channel = nullptr) const;
  // Makes a completion queue whose completions have the given fields: flags of ibv_create_cq_wc_flags.
  result<extended_cq> make_extended_cq(std::uint32_t entries, std::uint64_t fields = IBV_WC_STANDARD_FLAGS,
                                       const completion_channel* channel = nullptr) const;
  result<completion_channel> make_channel() const;
  // Makes an XRC domain. With the descriptor `file`, opens the domain that processes share by this file.
  result<xrc_domain> make_xrc_domain(int file = -1) const;

  // async_fd() is readable when an event is pending. next_event() waits for an event, or fails with EAGAIN if
  // async_fd() is non-blocking and no event is pending.
  int async_fd() const { return get()->async_fd; }
  result<async_event> next_event() const {
    ibv_async_event event{};
    if (ibv_get_async_event(get(), &event) != 0) return failure("wait for an event of", errno);
    return async_event(event);
  }

 private:
  error failure(const char* tried, int code) const { return detail::failure(get(), tried, code); }
};

// ---- devices

// A device of this machine that can be opened.
class device {
 public:
  std::string name() const { return ibv_get_device_name(get()); }
  // A number of 64 bits that no other device in the world has.
  std::uint64_t guid() const { return be64toh(ibv_get_device_guid(get())); }
  ibv_device* get() const { return list_[index_]; }

  result<context> open() const {
    ibv_context* const opened = ibv_open_device(get());
    if (opened == nullptr) return error("open", errno, ibv_get_device_name(get()));
    return context(detail::own(opened, ibv_close_device, list_));
  }

 private:
  friend std::vector<device> devices();
  device(std::shared_ptr<ibv_device*[]> list, int index) : list_(std::move(list)), index_(index) {}

  std::shared_ptr<ibv_device*[]> list_;
  int index_;
};

// Returns the devices of this machine. The result is empty if there are no devices or the list cannot be
// read.
inline std::vector<device> devices() {
  int count = 0;
  ibv_device** const array = ibv_get_device_list(&count);
  if (array == nullptr) return {};
  const std::shared_ptr<ibv_device*[]> list(array, ibv_free_device_list);
  std::vector<device> all;
  for (int i = 0; i < count; ++i) all.push_back(device(list, i));
  return all;
}

// Opens the device with this name, or without a name the first one whose first port is active. Fails with
// ENODEV if there is none.
inline result<context> open(std::string_view name = {}) {
  for (const device& each : devices()) {
    if (!name.empty() && each.name() != name) continue;
    auto opened = each.open();
    if (!name.empty()) return opened;
    if (!opened) continue;
    const auto port = opened->port();
    if (port && port->state == IBV_PORT_ACTIVE) return opened;
  }
  const char* const hint = name.empty() ? "no device has an active port: see ibv_devinfo" : "see ibv_devices";
  return error("open", ENODEV, name.empty() ? "any RDMA device" : name, hint);
}

}  // namespace verbena
