// SPDX-License-Identifier: Apache-2.0
// umad_open_port(3), umad_register(3), umad_send(3), umad_recv(3) and their like. A port is the socket by
// which datagrams go to the agent and come from it, each with the kernel's header in front.
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <infiniband/umad.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/c_abi.h"
#include "protocol/mad_messages.h"
#include "umad/adapters.h"
#include "umad/agent_link.h"
#include "umad/debug.h"

namespace verbena::umad {
namespace {

static_assert(sizeof(ib_user_mad) == sizeof(protocol::UserMad));
static_assert(offsetof(ib_user_mad, addr.gid) == offsetof(protocol::UserMad, gid));

constexpr uint32_t kOpenIbOui = 0x001405;
constexpr size_t kDatagramBytes = 256;
constexpr int kSendWaitMs = 2000;

bool is_subnet_management(int management_class) {
  return management_class == 0x01 || management_class == 0x81;
}
bool is_vendor_with_oui(int management_class) {
  return management_class >= 0x30 && management_class <= 0x4f;
}

// The agent's number, or why there is none.
Result<uint32_t> add_agent(int port, protocol::MadRegisterRequest request) {
  Result<uint32_t> added = fail(EIO);
  const int failed = without_exceptions([&] {
    request.queue_pair = is_subnet_management(request.management_class) ? 0 : 1;
    added = AgentLink::current().add_agent(port, request);
    return 0;
  });
  if (failed != 0) return fail(failed);
  if (!added && debug_level() > 0) {
    say("umad_register", "fd %d registering class 0x%x version %d failed: %s", port, request.management_class,
        request.class_version, std::strerror(added.error().code));
  }
  return added;
}

// For the first two forms: the number, or -EPERM, and errno says more.
int register_plainly(int port, const protocol::MadRegisterRequest& request) {
  const auto added = add_agent(port, request);
  if (added) return static_cast<int>(*added);
  errno = added.error().code;
  return -EPERM;
}

protocol::MadRegisterRequest request_for(int management_class, int version, uint8_t rmpp_version,
                                         const long* methods) {
  protocol::MadRegisterRequest request{};
  request.management_class = static_cast<uint8_t>(management_class);
  request.class_version = static_cast<uint8_t>(version);
  request.rmpp_version = rmpp_version;
  if (methods != nullptr) std::memcpy(request.method_masks, methods, sizeof request.method_masks);
  return request;
}

int wait_for(int port, short events, int timeout_ms) {
  pollfd entry{port, events, 0};
  const int ready = ::poll(&entry, 1, timeout_ms);
  if (ready == 1) return 0;
  return ready == 0 ? -ETIMEDOUT : -EIO;
}

// As write(2) to the kernel's file, which waits for nothing; the agent may be busy for a moment.
ssize_t write_to(int port, const void* message, size_t size) {
  const ssize_t sent = ::send(port, message, size, MSG_NOSIGNAL);
  if (sent >= 0 || errno != EAGAIN || wait_for(port, POLLOUT, kSendWaitMs) != 0) return sent;
  return ::send(port, message, size, MSG_NOSIGNAL);
}

// As read(2) from the kernel's file: a message that has more than one datagram and does not fit stays, and
// the buffer gets its header and the first datagram (ENOSPC).
ssize_t read_from(int port, void* buffer, size_t size) {
  const ssize_t there = ::recv(port, buffer, size, MSG_PEEK | MSG_TRUNC);
  if (there == 0) errno = EIO;  // the agent has ended, or the device is gone
  if (there <= 0) return -1;
  if (static_cast<size_t>(there) <= size) return ::recv(port, buffer, size, MSG_DONTWAIT);
  const bool is_long = static_cast<size_t>(there) > sizeof(ib_user_mad) + kDatagramBytes;
  errno = is_long && size >= sizeof(ib_user_mad) + kDatagramBytes ? ENOSPC : EINVAL;
  return -1;
}

}  // namespace
}  // namespace verbena::umad

using verbena::umad::debug_level;
using verbena::umad::say;

VERBENA_ABI int umad_open_port(const char* name, int number) {
  int port = -EIO;
  const int failed = verbena::without_exceptions([&] {
    const auto chosen = verbena::umad::choose(name, number);
    if (!chosen) return ENODEV;
    if (chosen->port != verbena::umad::kPortNumber) return EINVAL;
    auto opened = verbena::umad::AgentLink::current().open(chosen->link.device_index);
    if (!opened) {
      if (debug_level() > 0) say("umad_open_port", "open failed: %s", std::strerror(opened.error().code));
      errno = opened.error().code;
      return EIO;
    }
    port = opened->release();
    return 0;
  });
  return failed != 0 ? -failed : port;
}

VERBENA_ABI int umad_close_port(int port) {
  ::close(port);
  return 0;
}

VERBENA_ABI int umad_get_fd(int port) {
  return port;
}

VERBENA_ABI int umad_register(int port, int management_class, int version, uint8_t rmpp_version,
                              long methods[16 / sizeof(long)]) {
  auto request = verbena::umad::request_for(management_class, version, rmpp_version, methods);
  request.oui = verbena::umad::kOpenIbOui;
  return verbena::umad::register_plainly(port, request);
}

VERBENA_ABI int umad_register_oui(int port, int management_class, uint8_t rmpp_version, uint8_t oui[3],
                                  long methods[16 / sizeof(long)]) {
  if (!verbena::umad::is_vendor_with_oui(management_class)) return -EINVAL;
  auto request = verbena::umad::request_for(management_class, 1, rmpp_version, methods);
  request.oui = static_cast<uint32_t>(oui[0]) << 16 | static_cast<uint32_t>(oui[1]) << 8 | oui[2];
  return verbena::umad::register_plainly(port, request);
}

// 0 or an errno value. Where the flags are the reason, `attr` says which there are.
VERBENA_ABI int umad_register2(int port, umad_reg_attr* attr, uint32_t* agent) {
  if (attr == nullptr || agent == nullptr) return EINVAL;
  const bool wants_oui = verbena::umad::is_vendor_with_oui(attr->mgmt_class);
  if (wants_oui && (attr->oui == 0 || attr->oui > 0xffffff)) return EINVAL;
  if ((attr->flags & ~uint32_t{UMAD_USER_RMPP}) != 0) {
    attr->flags = UMAD_USER_RMPP;
    return EINVAL;
  }
  auto request =
      verbena::umad::request_for(attr->mgmt_class, attr->mgmt_class_version, attr->rmpp_version, nullptr);
  std::memcpy(request.method_masks, attr->method_mask, sizeof request.method_masks);
  request.oui = attr->oui;
  request.flags = attr->flags;
  const auto added = verbena::umad::add_agent(port, request);
  if (!added) return added.error().code;
  *agent = *added;
  return 0;
}

VERBENA_ABI int umad_unregister(int port, int agent) {
  return verbena::answer_minus_one([&] {
    const auto removed = verbena::umad::AgentLink::current().remove_agent(port, static_cast<uint32_t>(agent));
    return removed ? 0 : removed.error().code;
  });
}

VERBENA_ABI int umad_send(int port, int agent, void* umad, int length, int timeout_ms, int retries) {
  using verbena::protocol::kLeastSentMadBytes;
  auto& mad = *static_cast<ib_user_mad*>(umad);
  mad.timeout_ms = static_cast<uint32_t>(timeout_ms);
  mad.retries = static_cast<uint32_t>(retries);
  mad.agent_id = static_cast<uint32_t>(agent);
  if (debug_level() > 1) umad_dump(umad);
  errno = 0;
  const bool can_be = length >= static_cast<int>(kLeastSentMadBytes) && agent >= 0 &&
                      agent < static_cast<int>(verbena::protocol::kMostMadAgents);
  if (!can_be) {
    errno = EINVAL;
    return -EIO;
  }
  // Messages of several datagrams are received, not sent.
  if (length > static_cast<int>(verbena::protocol::kMostSentMadBytes)) {
    errno = EOPNOTSUPP;
    return -EIO;
  }
  const size_t size = sizeof mad + static_cast<size_t>(length);
  const ssize_t sent = verbena::umad::write_to(port, umad, size);
  if (sent == static_cast<ssize_t>(size)) return 0;
  if (errno == 0 || errno == EPIPE || errno == ECONNRESET) errno = EIO;
  return -EIO;
}

// The agent's number. On failure a negative errno value, and errno; what `length` says then is how long the
// message is, if it was too long.
VERBENA_ABI int umad_recv(int port, void* umad, int* length, int timeout_ms) {
  errno = 0;
  if (umad == nullptr || length == nullptr || *length < 0) {
    errno = EINVAL;
    return -EINVAL;
  }
  if (timeout_ms != 0) {
    if (const int failed = verbena::umad::wait_for(port, POLLIN, timeout_ms); failed != 0) {
      if (errno == 0) errno = -failed;
      return failed;
    }
  }
  const auto& mad = *static_cast<const ib_user_mad*>(umad);
  const ssize_t got = verbena::umad::read_from(port, umad, sizeof mad + static_cast<size_t>(*length));
  if (got >= 0) {
    *length =
        got > static_cast<ssize_t>(sizeof mad) ? static_cast<int>(got - static_cast<ssize_t>(sizeof mad)) : 0;
    return static_cast<int>(mad.agent_id);
  }
  if (errno == ENOSPC) *length = static_cast<int>(mad.length - sizeof mad);
  return -errno;
}

VERBENA_ABI int umad_poll(int port, int timeout_ms) {
  return verbena::umad::wait_for(port, POLLIN, timeout_ms);
}
