// SPDX-License-Identifier: Apache-2.0
// umad_open_port(3), umad_register(3), umad_send(3), umad_recv(3) and related functions. A port is a socket
// that carries datagrams to and from the agent, each behind the kernel's header.
#include <chrono>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/c_abi.h"
#include "base/plain_calls.h"
#include "base/sealed_file.h"
#include "base/time.h"
#include "control/model/message_socket.h"
#include "libraries/libibumad/umad.h"
#include "management/mad/rmpp.h"

namespace verbena::umad {
namespace {

static_assert(sizeof(ib_user_mad) == sizeof(protocol::UserMad));
static_assert(offsetof(ib_user_mad, addr.gid) == offsetof(protocol::UserMad, gid));

constexpr uint32_t kOpenIbOui = 0x001405;
constexpr int kSendWaitMs = 2000;

bool is_vendor_with_oui(int management_class) {
  return management_class >= 0x30 && management_class <= 0x4f;
}

// Registers a MAD agent, and returns its number or the error.
Result<uint32_t> add_agent(int port, protocol::MadRegisterRequest request) {
  Result<uint32_t> added = fail(EIO);
  const int failed = without_exceptions([&] {
    request.queue_pair = mad::is_subnet_management(request.management_class) ? 0 : 1;
    added = add_mad_agent(port, request);
    return 0;
  });
  if (failed != 0) return fail(failed);
  if (!added && debug_level() > 0) {
    say("umad_register", "fd %d registering class 0x%x version %d failed: %s", port, request.management_class,
        request.class_version, std::strerror(added.error().code));
  }
  return added;
}

// For umad_register() and umad_register_oui(): returns the number, or -EPERM with details in errno.
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

// Returns the length of the next message, and its start, without consuming it. An agent that ends without
// reading all messages leaves an error on the socket, which is reported once. Messages that the agent sent
// before stay readable.
ssize_t peek(int port, Bytes buffer) {
  for (;;) {
    const ssize_t there = ::recv(port, buffer.data(), buffer.size(), MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC);
    if (there >= 0 || errno != ECONNRESET) return there;
  }
}

// Whether the agent has ended or the device is gone, and the program has read all earlier messages. Keeps
// errno.
bool is_read_to_end(int port) {
  std::byte byte;
  const int error = errno;
  const bool is_it = peek(port, {&byte, 1}) == 0;
  errno = error;
  return is_it;
}

bool revive(int port) {
  return without_exceptions([&] { return revive_port(port) ? 0 : EIO; }) == 0;
}

int wait_for(int port, short events, int timeout_ms) {
  pollfd entry{port, events, 0};
  const int ready = plain_poll(&entry, 1, timeout_ms);
  if (ready == 1) return 0;
  return ready == 0 ? -ETIMEDOUT : -EIO;
}

// Waits for a message. Returns 0 also if the agent has ended and no other agent serves the port: no message
// can arrive then.
int wait_for_message(int port, int timeout_ms) {
  const auto end = MonotonicClock::now() + std::chrono::milliseconds(timeout_ms);
  for (int left = timeout_ms;;) {
    const int waited = wait_for(port, POLLIN, left);
    if (waited != 0 || !is_read_to_end(port) || !revive(port)) return waited;
    if (timeout_ms < 0) continue;
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(end - MonotonicClock::now());
    left = std::max(static_cast<int>(rest.count()), 0);
  }
}

// Like wait_for_message(), for umad_recv(): does not wait if the timeout is 0.
int wait_for_message_in_call(int port, int timeout_ms) {
  if (timeout_ms != 0) return wait_for_message(port, timeout_ms);
  if (is_read_to_end(port)) revive(port);
  return 0;
}

// ---- sending

// Sends a message in place of write(2) to the kernel's file, which never blocks. Waits up to 2 s if the agent
// is busy.
ssize_t write_to(int port, ConstBytes message, int file) {
  const auto send = [&] {
    const std::span<const int> files(&file, file >= 0 ? 1 : 0);
    const auto sent = control::send_message(port, message, files);
    if (sent) return static_cast<ssize_t>(message.size());
    errno = sent.error().code;
    return ssize_t{-1};
  };
  const ssize_t sent = send();
  if (sent >= 0 || errno != EAGAIN || wait_for(port, POLLOUT, kSendWaitMs) != 0) return sent;
  return send();
}

// Returns the kernel's error for a message of this length: 0 or an errno value.
int fault_of(int port, uint32_t agent, ConstBytes mad) {
  if (mad.size() <= protocol::kMadBytes) return 0;
  if (!mad::is_rmpp(mad) || !OpenPorts::current().cuts_for(port, agent)) return EINVAL;
  if (mad.size() > mad::kMaxRmppBytes) return ENOMEM;
  return OpenPorts::current().takes_long(port) ? 0 : EOPNOTSUPP;
}

Result<void> send_once(int port, const protocol::UserMad& header, ConstBytes mad) {
  const ConstBytes first = mad.first(std::min(mad.size(), protocol::kMadBytes));
  std::array<std::byte, sizeof header + protocol::kMadBytes> message;
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, first.data(), first.size());
  UniqueFd rest;
  if (mad.size() > first.size()) {
    auto file = write_memory_file("verbena-mad", mad.subspan(first.size()));
    if (!file) return fail(file.error().code);
    rest = std::move(*file);
  }
  if (write_to(port, ConstBytes(message).first(sizeof header + first.size()), rest.get()) < 0)
    return fail(errno);
  return {};
}

// Sends a request. If the agent has ended and unread messages remain, the request counts as sent: it returns
// to the program as timed out, after these messages. If all messages were read, the next agent gets it.
int send_mad(int port, protocol::UserMad header, ConstBytes mad) {
  if (const int fault = fault_of(port, header.agent, mad); fault != 0) return fault;
  header.status = 0;
  header.length = static_cast<uint32_t>(sizeof header + mad.size());
  OpenPorts& ports = OpenPorts::current();
  for (bool is_revived = false;; is_revived = true) {
    ports.sent(port, header, mad);
    const auto sent = send_once(port, header, mad);
    if (sent) return 0;
    const int failed = sent.error().code;
    const bool is_gone = failed == EPIPE || failed == ECONNRESET;
    if (is_gone && !is_read_to_end(port) && ports.find(port)) return 0;
    ports.not_sent(port, header, mad);
    if (!is_gone) return failed;
    if (is_revived || !revive(port)) return EIO;
  }
}

// Returns the header, which has a fixed length.
protocol::UserMad header_of(const ib_user_mad& mad) {
  protocol::UserMad header;
  std::memcpy(&header, &mad, sizeof header);
  return header;
}

// ---- receiving

void note_received(int port, ConstBytes message) {
  if (message.size() <= sizeof(protocol::UserMad)) return;
  OpenPorts::current().received(port, protocol::read_as<protocol::UserMad>(message),
                                message.subspan(sizeof(protocol::UserMad)));
}

int no_room(ssize_t bytes, size_t size) {
  const bool is_long = static_cast<size_t>(bytes) > sizeof(ib_user_mad) + protocol::kMadBytes;
  return is_long && size >= sizeof(ib_user_mad) + protocol::kMadBytes ? ENOSPC : EINVAL;
}

// Reads a long message: the beginning is in the socket's message, the rest in a memfd that comes with it.
ssize_t read_with_file(int port, Bytes buffer) {
  auto received = control::receive_message(port, buffer, 1);
  if (!received) {
    errno = received.error().code;
    return -1;
  }
  const auto header = protocol::read_as<protocol::UserMad>(ConstBytes(buffer).first(received->bytes));
  const size_t bytes = header.length;
  // Another message: a reader took the long one.
  if (received->fds.empty() && bytes == received->bytes) return static_cast<ssize_t>(bytes);
  errno = received->lost_fds ? EMFILE : EIO;
  if (received->fds.empty() || bytes < received->bytes || bytes > buffer.size()) return -1;
  const auto read =
      read_memory_file(received->fds[0].get(), buffer.subspan(received->bytes, bytes - received->bytes));
  return read ? static_cast<ssize_t>(bytes) : -1;
}

// Reads a message as read(2) from the kernel's file does. A message longer than one datagram that does not
// fit stays unread, and the buffer gets its header and first datagram (ENOSPC).
ssize_t read_from(int port, Bytes buffer) {
  const ssize_t there = peek(port, buffer);
  if (there == 0) errno = EIO;
  if (there <= 0) return -1;
  const auto in_message = static_cast<size_t>(there);
  if (in_message > buffer.size()) {
    errno = no_room(there, buffer.size());
    return -1;
  }
  const auto header = protocol::read_as<protocol::UserMad>(ConstBytes(buffer).first(in_message));
  const bool has_file = in_message == sizeof header + protocol::kMadBytes && header.length > in_message;
  if (!has_file) return ::recv(port, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (header.length <= buffer.size()) return read_with_file(port, buffer);
  errno = ENOSPC;
  return -1;
}

}  // namespace
}  // namespace verbena::umad

using namespace verbena::umad;

VERBENA_ABI int umad_open_port(const char* name, int number) {
  int port = -EIO;
  const int failed = verbena::without_exceptions([&] {
    const auto chosen = choose(name, number);
    if (!chosen) return ENODEV;
    if (chosen->port != kPortNumber) return EINVAL;
    auto opened = open_port(chosen->link);
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
  OpenPorts::current().remove(port);
  ::close(port);
  return 0;
}

VERBENA_ABI int umad_get_fd(int port) {
  return port;
}

VERBENA_ABI int umad_register(int port, int management_class, int version, uint8_t rmpp_version,
                              long methods[16 / sizeof(long)]) {
  auto request = request_for(management_class, version, rmpp_version, methods);
  request.oui = kOpenIbOui;
  return register_plainly(port, request);
}

VERBENA_ABI int umad_register_oui(int port, int management_class, uint8_t rmpp_version, uint8_t oui[3],
                                  long methods[16 / sizeof(long)]) {
  if (!is_vendor_with_oui(management_class)) return -EINVAL;
  auto request = request_for(management_class, 1, rmpp_version, methods);
  request.oui = static_cast<uint32_t>(oui[0]) << 16 | static_cast<uint32_t>(oui[1]) << 8 | oui[2];
  return register_plainly(port, request);
}

// Returns 0 or an errno value. If flags are not supported, `attr` gets the supported flags.
VERBENA_ABI int umad_register2(int port, umad_reg_attr* attr, uint32_t* agent) {
  if (attr == nullptr || agent == nullptr) return EINVAL;
  const bool wants_oui = is_vendor_with_oui(attr->mgmt_class);
  if (wants_oui && (attr->oui == 0 || attr->oui > 0xffffff)) return EINVAL;
  if ((attr->flags & ~uint32_t{UMAD_USER_RMPP}) != 0) {
    attr->flags = UMAD_USER_RMPP;
    return EINVAL;
  }
  auto request = request_for(attr->mgmt_class, attr->mgmt_class_version, attr->rmpp_version, nullptr);
  std::memcpy(request.method_masks, attr->method_mask, sizeof request.method_masks);
  request.oui = attr->oui;
  request.flags = attr->flags;
  const auto added = add_agent(port, request);
  if (!added) return added.error().code;
  *agent = *added;
  return 0;
}

VERBENA_ABI int umad_unregister(int port, int agent) {
  return verbena::answer_minus_one([&] {
    const auto removed = remove_mad_agent(port, static_cast<uint32_t>(agent));
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
                      agent < static_cast<int>(verbena::protocol::kMaxMadAgents);
  if (!can_be) {
    errno = EINVAL;
    return -EIO;
  }
  errno = verbena::without_exceptions([&] {
    const auto* bytes = reinterpret_cast<const std::byte*>(mad.data);
    return send_mad(port, header_of(mad), {bytes, static_cast<size_t>(length)});
  });
  return errno == 0 ? 0 : -EIO;
}

// Returns the MAD agent's number, or a negative errno value with errno set. If the message is too long for
// the buffer (ENOSPC), `length` gets its length.
VERBENA_ABI int umad_recv(int port, void* umad, int* length, int timeout_ms) {
  errno = 0;
  if (umad == nullptr || length == nullptr || *length < 0) {
    errno = EINVAL;
    return -EINVAL;
  }
  const int failed = wait_for_message_in_call(port, timeout_ms);
  if (failed != 0) {
    if (errno == 0) errno = -failed;
    return failed;
  }
  const auto& mad = *static_cast<const ib_user_mad*>(umad);
  const verbena::Bytes buffer(static_cast<std::byte*>(umad), sizeof mad + static_cast<size_t>(*length));
  const ssize_t got = read_from(port, buffer);
  if (got >= 0) {
    note_received(port, buffer.first(static_cast<size_t>(got)));
    *length =
        got > static_cast<ssize_t>(sizeof mad) ? static_cast<int>(got - static_cast<ssize_t>(sizeof mad)) : 0;
    return static_cast<int>(mad.agent_id);
  }
  if (errno == ENOSPC) *length = static_cast<int>(mad.length - sizeof mad);
  return -errno;
}

VERBENA_ABI int umad_poll(int port, int timeout_ms) {
  return wait_for_message(port, timeout_ms);
}
