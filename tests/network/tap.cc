// SPDX-License-Identifier: Apache-2.0
#include "network/tap.h"

#include <cerrno>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

namespace verbena::network {
namespace {

// Defined in linux/if_tun.h since Linux 6.2.
constexpr unsigned kUdpSegmentationIpv4 = 0x20;
constexpr unsigned kUdpSegmentationIpv6 = 0x40;

constexpr unsigned kTcpOffloads = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

Tap::Tap(const std::string& name) : fd_(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC)) {
  if (!fd_) fail("/dev/net/tun");
  if (name.empty() || name.size() >= IFNAMSIZ) {
    throw std::system_error(ENAMETOOLONG, std::generic_category(), name);
  }
  ifreq request{};
  std::memcpy(request.ifr_name, name.data(), name.size());
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (::ioctl(fd_.get(), TUNSETIFF, &request) != 0) fail(name);
  // An older kernel segments UDP itself.
  if (::ioctl(fd_.get(), TUNSETOFFLOAD, kTcpOffloads | kUdpSegmentationIpv4 | kUdpSegmentationIpv6) != 0 &&
      ::ioctl(fd_.get(), TUNSETOFFLOAD, kTcpOffloads) != 0) {
    fail(name + ": offloads");
  }
}

Tap::Read Tap::read(Offload& offload, Bytes frame) const {
  iovec pieces[] = {{&offload, sizeof offload}, {frame.data(), frame.size()}};
  const ssize_t bytes = ::readv(fd_.get(), pieces, 2);
  if (bytes > static_cast<ssize_t>(sizeof offload)) {
    return {Read::Status::kFrame, static_cast<uint32_t>(bytes - static_cast<ssize_t>(sizeof offload))};
  }
  const bool goes_on = bytes >= 0 || errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == EIO;
  return {goes_on ? Read::Status::kNothing : Read::Status::kGone};
}

bool Tap::write(const Offload& offload, ConstBytes headers, ConstBytes payload) const {
  Offload copy = offload;  // an iovec needs a pointer to mutable data
  const iovec pieces[] = {{&copy, sizeof copy},
                          {const_cast<std::byte*>(headers.data()), headers.size()},
                          {const_cast<std::byte*>(payload.data()), payload.size()}};
  return ::writev(fd_.get(), pieces, 3) > 0;
}

}  // namespace verbena::network
