// SPDX-License-Identifier: Apache-2.0
// The C ABI of rsockets (rsocket(7)).
#include "libraries/librdmacm/calls.h"

#include <cstdarg>

#include <rdma/rsocket.h>
#include <unistd.h>

#include "libraries/rsockets/datagram.h"
#include "libraries/rsockets/event_set.h"
#include "libraries/rsockets/stream.h"

namespace verbena::rsockets {
namespace {

// Calls body(socket), which returns a Result of a number or of void, with the rsocket of this descriptor.
// Returns the number or 0, or -1 with errno set.
template <class Number = int, class Body>
Number call(int number, Body&& body, const char* name = __builtin_FUNCTION()) {
  return rdmacm::answer_number<Number>(
      [&]() -> decltype(body(std::declval<Socket&>())) {
        const auto socket = SocketTable::instance().find(number);
        if (!socket) return fail(because(EBADF, "descriptor {} is no rsocket", number));
        return body(*socket);
      },
      name);
}

// Whether the buffer list is valid for sendmsg(2): at most IOV_MAX buffers.
bool is_sensible(std::span<const iovec> pieces) {
  return pieces.size() <= static_cast<size_t>(IOV_MAX) && (pieces.data() != nullptr || pieces.empty());
}

// A list of one buffer.
std::array<iovec, 1> one(const void* buffer, size_t length) {
  return {{{const_cast<void*>(buffer), length}}};
}

ssize_t receive_by(int number, std::span<const iovec> pieces, int flags, Address* source = nullptr,
                   const char* name = __builtin_FUNCTION()) {
  const auto receive = [&](Socket& socket) -> Result<size_t> {
    if (!is_sensible(pieces)) return fail(EINVAL);
    return socket.receive(Buffers(pieces.data(), pieces.size()), flags, source);
  };
  return call<ssize_t>(number, receive, name);
}

ssize_t send_by(int number, std::span<const iovec> pieces, int flags, const sockaddr* to = nullptr,
                socklen_t to_length = 0, const char* name = __builtin_FUNCTION()) {
  const auto send = [&](Socket& socket) -> Result<size_t> {
    if (!is_sensible(pieces)) return fail(EINVAL);
    const Buffers from(pieces.data(), pieces.size());
    if (to == nullptr) return socket.send(from, flags, nullptr);
    const auto address = Address::from(to, to_length);
    return address ? socket.send(from, flags, &*address) : fail(address.error().code);
  };
  return call<ssize_t>(number, send, name);
}

Result<std::shared_ptr<Socket>> make(int domain, int type, int protocol) {
  if (domain != AF_INET && domain != AF_INET6) return fail(EOPNOTSUPP);
  if (type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP)) return Stream::create(domain);
  if (type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP)) return Datagram::create(domain);
  // Also for SOCK_NONBLOCK and SOCK_CLOEXEC, as in rdma-core: librspreload relies on it.
  return fail(EOPNOTSUPP);
}

Result<int> enter(std::shared_ptr<Socket> socket) {
  const int number = socket->number();
  return SocketTable::instance().insert(std::move(socket)).map([&] { return number; });
}

// Calls the method with an address that the program gives.
int call_with_address(int number, Result<void> (Socket::*method)(const Address&), const sockaddr* address,
                      socklen_t length, const char* name = __builtin_FUNCTION()) {
  const auto body = [&](Socket& socket) {
    return Address::from(address, length).and_then([&](const Address& where) {
      return (socket.*method)(where);
    });
  };
  return call(number, body, name);
}

// Copies the address that the method returns to the program.
int call_for_address(int number, Result<Address> (Socket::*method)(), sockaddr* address, socklen_t* length,
                     const char* name = __builtin_FUNCTION()) {
  const auto body = [&](Socket& socket) {
    return (socket.*method)().map([&](const Address& found) { found.copy_to(address, length); });
  };
  return call(number, body, name);
}

}  // namespace
}  // namespace verbena::rsockets

using namespace verbena;
using namespace verbena::rsockets;

VERBENA_ABI int rsocket(int domain, int type, int protocol) {
  return rdmacm::answer_number([&] { return make(domain, type, protocol).and_then(enter); });
}

VERBENA_ABI int rbind(int number, const sockaddr* address, socklen_t length) {
  return call_with_address(number, &Socket::bind, address, length);
}

VERBENA_ABI int rlisten(int number, int backlog) {
  return call(number, [&](Socket& socket) { return socket.listen(backlog); });
}

VERBENA_ABI int raccept(int number, sockaddr* address, socklen_t* length) {
  return call(number, [&](Socket& socket) -> Result<int> {
    auto accepted = socket.accept();
    if (!accepted) return fail(accepted.error().code);
    if (address != nullptr && length != nullptr) {
      if (const auto peer = (*accepted)->peer_address()) peer->copy_to(address, length);
    }
    return enter(std::move(*accepted));
  });
}

VERBENA_ABI int rconnect(int number, const sockaddr* address, socklen_t length) {
  return call_with_address(number, &Socket::connect, address, length);
}

VERBENA_ABI int rshutdown(int number, int how) {
  return call(number, [&](Socket& socket) { return socket.shutdown(how); });
}

VERBENA_ABI int rclose(int number) {
  return rdmacm::answer([&] {
    if (const auto socket = SocketTable::instance().remove(number)) {
      socket->close();
      return 0;
    }
    if (EventSet::close(number)) return 0;
    if (!SocketTable::instance().remove_inherited(number)) return EBADF;
    ::close(number);
    return 0;
  });
}

VERBENA_ABI ssize_t rrecv(int number, void* buffer, size_t length, int flags) {
  return receive_by(number, one(buffer, length), flags);
}

VERBENA_ABI ssize_t rrecvfrom(int number, void* buffer, size_t length, int flags, sockaddr* source,
                              socklen_t* source_length) {
  Address from;
  const bool wanted = source != nullptr && source_length != nullptr;
  const ssize_t received = receive_by(number, one(buffer, length), flags, wanted ? &from : nullptr);
  if (received >= 0 && wanted && from.family() != 0) from.copy_to(source, source_length);
  return received;
}

VERBENA_ABI ssize_t rrecvmsg(int number, msghdr* message, int flags) {
  Address from;
  const bool wanted = message->msg_name != nullptr;
  const ssize_t received =
      receive_by(number, {message->msg_iov, message->msg_iovlen}, flags, wanted ? &from : nullptr);
  if (received < 0) return received;
  if (wanted) from.copy_to(static_cast<sockaddr*>(message->msg_name), &message->msg_namelen);
  message->msg_controllen = 0;
  message->msg_flags = 0;
  return received;
}

VERBENA_ABI ssize_t rread(int number, void* buffer, size_t length) {
  return receive_by(number, one(buffer, length), 0);
}

VERBENA_ABI ssize_t rreadv(int number, const iovec* pieces, int count) {
  return receive_by(number, {pieces, static_cast<size_t>(count)}, 0);
}

VERBENA_ABI ssize_t rsend(int number, const void* buffer, size_t length, int flags) {
  return send_by(number, one(buffer, length), flags);
}

VERBENA_ABI ssize_t rsendto(int number, const void* buffer, size_t length, int flags, const sockaddr* to,
                            socklen_t to_length) {
  return send_by(number, one(buffer, length), flags, to, to_length);
}

VERBENA_ABI ssize_t rsendmsg(int number, const msghdr* message, int flags) {
  if (message->msg_control != nullptr && message->msg_controllen > 0) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return send_by(number, {message->msg_iov, message->msg_iovlen}, flags,
                 static_cast<const sockaddr*>(message->msg_name), message->msg_namelen);
}

VERBENA_ABI ssize_t rwrite(int number, const void* buffer, size_t length) {
  return send_by(number, one(buffer, length), 0);
}

VERBENA_ABI ssize_t rwritev(int number, const iovec* pieces, int count) {
  return send_by(number, {pieces, static_cast<size_t>(count)}, 0);
}

VERBENA_ABI int rgetpeername(int number, sockaddr* address, socklen_t* length) {
  return call_for_address(number, &Socket::peer_address, address, length);
}

VERBENA_ABI int rgetsockname(int number, sockaddr* address, socklen_t* length) {
  return call_for_address(number, &Socket::local_address, address, length);
}

VERBENA_ABI int rsetsockopt(int number, int level, int name, const void* value, socklen_t length) {
  return call(number, [&](Socket& socket) { return socket.set_option(level, name, value, length); });
}

VERBENA_ABI int rgetsockopt(int number, int level, int name, void* value, socklen_t* length) {
  return call(number, [&](Socket& socket) -> Result<void> {
    if (length == nullptr) return fail(EFAULT);
    return socket.get_option(level, name, OptionValue(value, length));
  });
}

VERBENA_ABI int rfcntl(int number, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const int argument = command == F_SETFL ? va_arg(arguments, int) : 0;
  va_end(arguments);
  return call(number, [&](Socket& socket) -> Result<int> {
    switch (command) {
      case F_GETFL:
        return socket.flags();
      case F_SETFL:
        socket.set_flags((socket.flags() & O_ACCMODE) | (argument & ~O_ACCMODE));
        return 0;
      default:
        return fail(EOPNOTSUPP);
    }
  });
}

VERBENA_ABI off_t riomap(int number, void* memory, size_t length, int protection, int, off_t offset) {
  return call<off_t>(number, [&](Socket& socket) { return socket.map(memory, length, protection, offset); });
}

VERBENA_ABI int riounmap(int number, void* memory, size_t length) {
  return call(number, [&](Socket& socket) { return socket.unmap(memory, length); });
}

VERBENA_ABI size_t riowrite(int number, const void* from, size_t bytes, off_t offset, int flags) {
  return call<size_t>(number,
                      [&](Socket& socket) { return socket.write_mapped(from, bytes, offset, flags); });
}
