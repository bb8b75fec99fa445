// SPDX-License-Identifier: Apache-2.0
// rmpp_peer DEVICE serve: answers each message with its own data.
// rmpp_peer DEVICE ask GID GID-INDEX BYTES...: sends messages of these sizes there, and compares the answers.
//
// Uses management datagrams of a vendor class; long messages take several (RMPP). It does not depend on the
// implementation of libibumad: Verbena's, or Debian's with the kernel.
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <infiniband/umad.h>

namespace {

using Bytes = std::vector<uint8_t>;

constexpr int kClass = 0x32;
constexpr uint8_t kOui[3] = {0x00, 0x42, 0x56};
constexpr uint8_t kGet = 0x01, kResponse = 0x80;
constexpr size_t kMethodAt = 3, kTransactionAt = 8, kRmppAt = 24, kOuiAt = 37, kDataAt = 40;
constexpr int kMaxBytes = 4 << 20;
constexpr int kTimeoutMs = 20'000, kRetries = 3;
constexpr uint32_t kGsiQpn = 1, kGsiQkey = 0x80010000;

[[noreturn]] void stop(const std::string& why) {
  std::printf("%s: %s\n", why.c_str(), std::strerror(errno));
  std::exit(EXIT_FAILURE);
}

// A port with a registered agent, and room for one message.
class Port {
 public:
  Port(const char* device, bool serves) : fd_(umad_open_port(device, 1)) {
    if (fd_ < 0) stop("umad_open_port");
    long methods[16 / sizeof(long)] = {};
    if (serves) methods[0] = 1L << kGet;
    uint8_t oui[3];
    std::memcpy(oui, kOui, sizeof oui);
    agent_ = umad_register_oui(fd_, kClass, 1, oui, methods);
    if (agent_ < 0) stop("umad_register_oui");
  }

  ib_user_mad& header() { return *reinterpret_cast<ib_user_mad*>(buffer_.data()); }
  uint8_t* mad() { return static_cast<uint8_t*>(umad_get_mad(buffer_.data())); }

  void send(int bytes, int timeout_ms) {
    if (umad_send(fd_, agent_, buffer_.data(), bytes, timeout_ms, kRetries) != 0) stop("umad_send");
  }

  // Receives a message. Returns its size in bytes.
  int receive(int timeout_ms) {
    int bytes = kMaxBytes;
    if (umad_recv(fd_, buffer_.data(), &bytes, timeout_ms) < 0) stop("umad_recv");
    return bytes;
  }

 private:
  const int fd_;
  int agent_;
  Bytes buffer_ = Bytes(umad_size() + kMaxBytes);
};

void serve(Port& port) {
  std::puts("serving");
  std::fflush(stdout);
  for (;;) {
    const int bytes = port.receive(-1);
    if (port.header().status != 0) {
      std::printf("an answer of %d bytes: status %u\n", bytes, port.header().status);
      std::fflush(stdout);
      continue;
    }
    port.mad()[kMethodAt] = kGet | kResponse;
    port.send(bytes, 0);
  }
}

Bytes data_of(size_t bytes) {
  Bytes data(bytes);
  uint32_t state = static_cast<uint32_t>(bytes);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  return data;
}

void fill(Port& port, const Bytes& data, uint32_t transaction) {
  uint8_t* const mad = port.mad();
  std::memset(mad, 0, kDataAt);
  const uint8_t begin[] = {1, kClass, 1, kGet};
  std::memcpy(mad, begin, sizeof begin);
  const uint32_t low = htonl(transaction);
  std::memcpy(mad + kTransactionAt + 4, &low, sizeof low);
  const uint8_t rmpp[] = {1, 1, 1};  // version, data, active
  std::memcpy(mad + kRmppAt, rmpp, sizeof rmpp);
  std::memcpy(mad + kOuiAt, kOui, sizeof kOui);
  std::memcpy(mad + kDataAt, data.data(), data.size());
}

void address(ib_mad_addr_t& to, const char* gid, int gid_index) {
  to = {};
  to.qpn = htonl(kGsiQpn);
  to.qkey = htonl(kGsiQkey);
  to.grh_present = 1;
  to.gid_index = static_cast<uint8_t>(gid_index);
  to.hop_limit = 64;
  if (inet_pton(AF_INET6, gid, to.gid) != 1) stop(std::string("no GID: ") + gid);
}

// Sends a message of `bytes` bytes. Returns whether the answer has the same data.
bool ask(Port& port, const char* gid, int gid_index, size_t bytes) {
  static uint32_t transaction =
      static_cast<uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  const Bytes data = data_of(bytes - kDataAt);
  port.header() = {};
  fill(port, data, ++transaction);
  address(*umad_get_mad_addr(&port.header()), gid, gid_index);
  const auto begun = std::chrono::steady_clock::now();
  port.send(static_cast<int>(bytes), kTimeoutMs);
  const int got = port.receive(2 * (kRetries + 1) * kTimeoutMs);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  const bool same = port.header().status == 0 && port.mad()[kMethodAt] == (kGet | kResponse) &&
                    static_cast<size_t>(got) >= bytes &&
                    std::memcmp(port.mad() + kDataAt, data.data(), data.size()) == 0;
  std::printf("%zu: %s: status %u, %d bytes, %.3f s\n", bytes, same ? "good" : "wrong", port.header().status,
              got, took.count());
  std::fflush(stdout);
  return same;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 2 ? words[2] : "";
  if (what != "serve" && !(what == "ask" && count > 5)) {
    std::fputs("rmpp_peer DEVICE serve | rmpp_peer DEVICE ask GID GID-INDEX BYTES...\n", stderr);
    return 2;
  }
  Port port(words[1], what == "serve");
  if (what == "serve") serve(port);
  bool all = true;
  for (int at = 5; at < count; ++at) {
    const auto bytes = std::strtoul(words[at], nullptr, 10);
    if (bytes < kDataAt || bytes > kMaxBytes) stop("no length of a message");
    all = ask(port, words[3], std::atoi(words[4]), bytes) && all;
  }
  return all ? EXIT_SUCCESS : EXIT_FAILURE;
}
