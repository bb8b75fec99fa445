// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/peer_filter.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include <linux/if_ether.h>

#include "base/bytes.h"

namespace verbena::net {
namespace {

constexpr uint32_t kLoopbackInterface = 1;  // in each network namespace
constexpr uint32_t kAll = 0xffffffff;       // bytes of the packet, or bits of a word

// The offsets of the addresses in an IP header.
struct IpLayout {
  bool ipv4;
  uint32_t source;
  uint32_t destination;
  uint32_t words;  // of an address
};
constexpr IpLayout kIpv4 = {true, 12, 16, 1};
constexpr IpLayout kIpv6 = {false, 8, 24, 4};

// The words of an address, as the program loads them from a packet of this kind: one for IPv4, four for IPv6.
std::array<uint32_t, 4> words_of(const roce::Address& address, const IpLayout& ip) {
  std::array<uint32_t, 4> words{};
  for (uint32_t i = 0; i < ip.words; ++i) {
    uint32_t word;
    std::memcpy(&word, &address.bytes[16 - 4 * ip.words + 4 * i], sizeof word);
    words[i] = std::endian::native == std::endian::little ? __builtin_bswap32(word) : word;
  }
  return words;
}

// Writes a program. Conditional jumps reach 255 instructions, others any number. So each condition has a jump
// of its own behind it, whose target is filled in when it is known.
class Program {
 public:
  using Jumps = std::vector<size_t>;

  void load_ancillary(uint32_t which) {
    add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(SKF_AD_OFF) + which);
  }
  void load_word(uint32_t offset) {
    add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(SKF_NET_OFF) + offset);
  }
  void keep_bits(uint32_t mask) {
    if (mask != kAll) add(BPF_ALU | BPF_AND | BPF_K, mask);
  }
  void jump(Jumps& jumps) {
    jumps.push_back(code_.size());
    add(BPF_JMP | BPF_JA, 0);
  }
  void jump_if(uint32_t value, Jumps& jumps) {
    code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
    jump(jumps);
  }
  void jump_unless(uint32_t value, Jumps& jumps) {
    code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0));
    jump(jumps);
  }
  void land(const Jumps& jumps) {
    for (const size_t at : jumps) code_[at].k = static_cast<uint32_t>(code_.size() - at - 1);
  }
  void end(uint32_t bytes) { add(BPF_RET | BPF_K, bytes); }
  std::vector<sock_filter> take() { return std::move(code_); }

 private:
  void add(uint16_t code, uint32_t k) { code_.push_back(BPF_STMT(code, k)); }

  std::vector<sock_filter> code_;
};

// Jumps to `jumps` if the address at `offset` is in the network.
void jump_if_in(Program& program, uint32_t offset, const roce::Prefix& network, const IpLayout& ip,
                Program::Jumps& jumps) {
  roce::Address ones;
  ones.bytes.fill(0xff);
  const auto masks = words_of(roce::first_bits(ones, network.bits), ip);
  const auto values = words_of(network.network, ip);
  Program::Jumps no;
  for (uint32_t i = 0; i < ip.words && masks[i] != 0; ++i) {
    program.load_word(offset + 4 * i);
    program.keep_bits(masks[i]);
    program.jump_unless(values[i], no);
  }
  program.jump(jumps);
  program.land(no);
}

void guard(Program& program, const GuardedLink& link, const IpLayout& ip) {
  Program::Jumps is_its;
  Program::Jumps passes;
  program.load_ancillary(SKF_AD_IFINDEX);
  program.jump_if(link.interface_index, is_its);
  for (const roce::Address& address : link.addresses) {
    if (address.is_ipv4() == ip.ipv4) jump_if_in(program, ip.destination, {address, 128}, ip, is_its);
  }
  program.jump(passes);
  program.land(is_its);
  for (const roce::Prefix& peer : link.peers) {
    if (peer.network.is_ipv4() == ip.ipv4) jump_if_in(program, ip.source, peer, ip, passes);
  }
  program.end(0);
  program.land(passes);
}

std::vector<sock_filter> drop_all_from_outside() {
  Program program;
  Program::Jumps is_own;
  program.load_ancillary(SKF_AD_IFINDEX);
  program.jump_if(kLoopbackInterface, is_own);
  program.end(0);
  program.land(is_own);
  program.end(kAll);
  return program.take();
}

}  // namespace

std::vector<sock_filter> peer_filter(std::span<const GuardedLink> links) {
  if (links.empty()) return {};
  Program program;
  Program::Jumps is_own;
  Program::Jumps is_ipv4;
  program.load_ancillary(SKF_AD_IFINDEX);
  program.jump_if(kLoopbackInterface, is_own);
  program.load_ancillary(SKF_AD_PROTOCOL);
  program.jump_if(ETH_P_IP, is_ipv4);
  for (const GuardedLink& link : links) guard(program, link, kIpv6);
  program.end(kAll);
  program.land(is_ipv4);
  for (const GuardedLink& link : links) guard(program, link, kIpv4);
  program.land(is_own);
  program.end(kAll);
  std::vector<sock_filter> code = program.take();
  return code.size() <= BPF_MAXINSNS ? code : drop_all_from_outside();
}

}  // namespace verbena::net
