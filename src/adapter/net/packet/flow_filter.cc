// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/packet/flow_filter.h"

#include <array>
#include <bit>
#include <cstddef>
#include <utility>

#include <linux/if_packet.h>

namespace verbena::net {
namespace {

using ethernet::FlowKey;
using ethernet::RuleKind;
using ethernet::SteeringRule;

constexpr uint32_t kWholeFrame = 0x40000;
// Leaves room for the instruction that ends a program.
constexpr size_t kMaxInstructions = BPF_MAXINSNS - 1;

// The program's memory cells.
enum Cell : uint32_t {
  kTagBytes,   // of VLAN tags in the data: how much later the network header begins
  kVlanTag,    // the outermost
  kEtherType,  // behind the last tag
  kLayers,     // ethernet::Layer
  kTransport,  // where the TCP or UDP header begins
  kProtocol,
};

constexpr uint32_t ancillary(uint32_t what) {
  return static_cast<uint32_t>(SKF_AD_OFF) + what;
}

// Writes a program. Jumps go forward to labels, which are fewer than 256 instructions away.
class Assembler {
 public:
  struct Label {
    std::vector<size_t> if_true;
    std::vector<size_t> if_false;
  };

  void operation(uint32_t code, uint32_t k = 0) { program_.push_back(make(code, k)); }
  void load_word(uint32_t at) { operation(BPF_LD | BPF_W | BPF_ABS, at); }
  void load_half(uint32_t at) { operation(BPF_LD | BPF_H | BPF_ABS, at); }
  void load_byte(uint32_t at) { operation(BPF_LD | BPF_B | BPF_ABS, at); }
  void load_length() { operation(BPF_LD | BPF_W | BPF_LEN); }
  void load_ancillary(uint32_t what) { load_word(ancillary(what)); }
  void load_cell(Cell cell) { operation(BPF_LD | BPF_MEM, cell); }
  void load_index(Cell cell) { operation(BPF_LDX | BPF_MEM, cell); }
  void load_immediate(uint32_t value) { operation(BPF_LD | BPF_IMM, value); }
  void store(Cell cell) { operation(BPF_ST, cell); }
  void bit_and(uint32_t mask) { operation(BPF_ALU | BPF_AND | BPF_K, mask); }
  void add(uint32_t value) { operation(BPF_ALU | BPF_ADD | BPF_K, value); }
  void subtract_index() { operation(BPF_ALU | BPF_SUB | BPF_X); }
  void add_layer(uint32_t layer) {
    load_cell(kLayers);
    operation(BPF_ALU | BPF_OR | BPF_K, layer);
    store(kLayers);
  }
  void finish(uint32_t bytes) { operation(BPF_RET | BPF_K, bytes); }

  void jump_if(uint32_t comparison, uint32_t k, Label& label) {
    label.if_true.push_back(program_.size());
    operation(BPF_JMP | comparison | BPF_K, k);
  }
  void jump_unless(uint32_t comparison, uint32_t k, Label& label) {
    label.if_false.push_back(program_.size());
    operation(BPF_JMP | comparison | BPF_K, k);
  }
  // Compares with the index register.
  void jump_unless_index(uint32_t comparison, Label& label) {
    label.if_false.push_back(program_.size());
    operation(BPF_JMP | comparison | BPF_X);
  }
  // Makes the label's jumps lead here.
  void place(Label& label) {
    for (const size_t from : label.if_true) program_[from].jt = distance(from);
    for (const size_t from : label.if_false) program_[from].jf = distance(from);
  }

  size_t size() const { return program_.size(); }
  FilterProgram take() { return std::move(program_); }
  void append(const FilterProgram& other) { program_.insert(program_.end(), other.begin(), other.end()); }

 private:
  static sock_filter make(uint32_t code, uint32_t k) { return {static_cast<uint16_t>(code), 0, 0, k}; }
  uint8_t distance(size_t from) const { return static_cast<uint8_t>(program_.size() - from - 1); }

  FilterProgram program_;
};

using Label = Assembler::Label;

// Drops outgoing frames, except those that raw QPs of other processes send; continues with the rest.
void write_direction(Assembler& a) {
  Label incoming, wanted;
  a.load_length();
  a.jump_if(BPF_JGE, ethernet::kHeaderBytes, wanted);
  a.finish(0);
  a.place(wanted);
  Label outgoing_wanted;
  a.load_ancillary(SKF_AD_PKTTYPE);
  a.jump_unless(BPF_JEQ, PACKET_OUTGOING, incoming);
  a.load_ancillary(SKF_AD_MARK);
  a.jump_if(BPF_JEQ, kRawFrameMark, outgoing_wanted);
  a.finish(0);
  a.place(incoming);
  a.place(outgoing_wanted);
}

// Parses a tag in the data at `at`, if there is one: the type behind it becomes the ether type.
void write_tag(Assembler& a, uint32_t at, Label& no_more) {
  Label is_tag;
  a.load_half(at);
  a.store(kEtherType);
  a.jump_if(BPF_JEQ, ethernet::kTypeVlan, is_tag);
  a.jump_unless(BPF_JEQ, ethernet::kTypeServiceVlan, no_more);
  a.place(is_tag);
  a.load_length();
  a.jump_unless(BPF_JGE, at + 2 + ethernet::kVlanTagBytes, no_more);
  a.load_immediate(at + 2 + ethernet::kVlanTagBytes - ethernet::kHeaderBytes);
  a.store(kTagBytes);
  a.load_half(at + ethernet::kVlanTagBytes);
  a.store(kEtherType);
}

// The kernel removes the outermost tag of received frames from the data and reports it separately.
void write_vlan(Assembler& a) {
  Label in_data, done, no_more;
  a.load_immediate(0);
  for (const Cell cell : {kTagBytes, kVlanTag, kLayers, kTransport, kProtocol}) a.store(cell);
  a.load_ancillary(SKF_AD_VLAN_TAG_PRESENT);
  a.jump_if(BPF_JEQ, 0, in_data);
  a.load_immediate(ethernet::kVlan);
  a.store(kLayers);
  a.load_ancillary(SKF_AD_VLAN_TAG);
  a.store(kVlanTag);
  write_tag(a, 12, no_more);
  a.load_immediate(0);
  a.jump_if(BPF_JEQ, 0, done);

  a.place(in_data);
  Label untagged;
  write_tag(a, 12, untagged);
  a.load_half(14);
  a.store(kVlanTag);
  a.load_immediate(ethernet::kVlan);
  a.store(kLayers);
  write_tag(a, 16, no_more);
  a.place(untagged);
  a.place(done);
  a.place(no_more);
}

// Continues only if that many bytes are there besides the tags.
void require_bytes(Assembler& a, uint32_t bytes, Label& otherwise) {
  a.load_length();
  a.load_index(kTagBytes);
  a.subtract_index();
  a.jump_unless(BPF_JGE, bytes, otherwise);
}

void write_ipv4(Assembler& a, Label& done) {
  constexpr uint32_t kAt = ethernet::kHeaderBytes;
  require_bytes(a, kAt + ethernet::kIpv4HeaderBytes, done);
  a.operation(BPF_LD | BPF_B | BPF_IND, kAt);
  a.bit_and(0xf0);
  a.jump_unless(BPF_JEQ, 0x40, done);
  a.operation(BPF_LD | BPF_B | BPF_IND, kAt);
  a.bit_and(0x0f);
  a.jump_unless(BPF_JGE, 5, done);
  a.operation(BPF_ALU | BPF_LSH | BPF_K, 2);
  a.operation(BPF_ALU | BPF_ADD | BPF_X);
  a.add(kAt);
  a.store(kTransport);
  a.load_length();
  a.load_index(kTransport);
  a.jump_unless_index(BPF_JGE, done);
  a.add_layer(ethernet::kIpv4);
  a.load_index(kTagBytes);
  a.operation(BPF_LD | BPF_H | BPF_IND, kAt + 6);
  a.jump_if(BPF_JSET, 0x1fff, done);  // not the first fragment: no ports
  a.operation(BPF_LD | BPF_B | BPF_IND, kAt + 9);
  a.store(kProtocol);
}

void write_ipv6(Assembler& a, Label& done) {
  constexpr uint32_t kAt = ethernet::kHeaderBytes;
  require_bytes(a, kAt + ethernet::kIpv6HeaderBytes, done);
  a.operation(BPF_LD | BPF_B | BPF_IND, kAt);
  a.bit_and(0xf0);
  a.jump_unless(BPF_JEQ, 0x60, done);
  a.add_layer(ethernet::kIpv6);
  a.operation(BPF_LD | BPF_B | BPF_IND, kAt + 6);
  a.store(kProtocol);
  a.operation(BPF_MISC | BPF_TXA);
  a.add(kAt + ethernet::kIpv6HeaderBytes);
  a.store(kTransport);
}

void write_transport(Assembler& a, Label& done) {
  Label tcp, ports;
  a.load_length();
  a.load_index(kTransport);
  a.subtract_index();
  a.jump_unless(BPF_JGE, ethernet::kPortBytes, done);
  a.load_cell(kProtocol);
  a.jump_if(BPF_JEQ, ethernet::kProtocolTcp, tcp);
  a.jump_unless(BPF_JEQ, ethernet::kProtocolUdp, done);
  a.add_layer(ethernet::kUdp);
  a.load_immediate(0);
  a.jump_if(BPF_JEQ, 0, ports);
  a.place(tcp);
  a.add_layer(ethernet::kTcp);
  a.place(ports);
}

// Finds the headers, as ethernet::parse_headers() does.
void write_parser(Assembler& a) {
  Label done, ipv6, network_done;
  write_vlan(a);
  a.load_cell(kEtherType);
  a.jump_if(BPF_JEQ, ethernet::kTypeIpv6, ipv6);
  a.jump_unless(BPF_JEQ, ethernet::kTypeIpv4, done);
  write_ipv4(a, done);
  a.load_immediate(0);
  a.jump_if(BPF_JEQ, 0, network_done);
  a.place(ipv6);
  write_ipv6(a, done);
  a.place(network_done);
  write_transport(a, done);
  a.place(done);
}

// Writes the comparisons of one rule, which accept the frame or lead to the next rule.
class RuleWriter {
 public:
  RuleWriter(Assembler& a, const SteeringRule& rule)
      : a_(a), value_(bytes(rule.value)), mask_(bytes(rule.mask)) {
    write(rule);
  }

 private:
  using KeyBytes = std::array<uint8_t, sizeof(FlowKey)>;
  static KeyBytes bytes(const FlowKey& key) { return std::bit_cast<KeyBytes>(key); }

  static uint32_t field(const KeyBytes& key, size_t offset, uint32_t width) {
    uint32_t value = 0;
    for (uint32_t i = 0; i < width; ++i) value = value << 8 | key[offset + i];
    return value;
  }

  template <class Load>
  void compare(size_t offset, uint32_t width, Load load) {
    const uint32_t mask = field(mask_, offset, width);
    if (mask == 0) return;
    load();
    a_.bit_and(mask);
    a_.jump_unless(BPF_JEQ, field(value_, offset, width) & mask, next_);
  }
  void compare_at(size_t offset, uint32_t width, uint32_t at) {
    compare(offset, width, [&] { a_.operation(BPF_LD | size_code(width) | BPF_ABS, at); });
  }
  // `at` is relative to the index register.
  void compare_behind(size_t offset, uint32_t width, uint32_t at) {
    compare(offset, width, [&] { a_.operation(BPF_LD | size_code(width) | BPF_IND, at); });
  }
  static uint32_t size_code(uint32_t width) { return width == 4 ? BPF_W : width == 2 ? BPF_H : BPF_B; }

  void write(const SteeringRule& rule) {
    const uint32_t layers = rule.mask.layers;
    if (layers != 0) {
      a_.load_cell(kLayers);
      a_.bit_and(layers);
      a_.jump_unless(BPF_JEQ, rule.value.layers & layers, next_);
    }
    compare_at(offsetof(FlowKey, destination), 4, 0);
    compare_at(offsetof(FlowKey, destination) + 4, 2, 4);
    compare_at(offsetof(FlowKey, source), 4, 6);
    compare_at(offsetof(FlowKey, source) + 4, 2, 10);
    compare(offsetof(FlowKey, vlan_tag), 2, [&] { a_.load_cell(kVlanTag); });
    compare(offsetof(FlowKey, ether_type), 2, [&] { a_.load_cell(kEtherType); });
    // If a frame has a layer, it has the layer's whole header. Only then are the header's fields compared.
    if ((layers & ethernet::kIpv4) != 0) write_ipv4();
    if ((layers & ethernet::kIpv6) != 0) write_ipv6();
    if ((layers & (ethernet::kTcp | ethernet::kUdp)) != 0) {
      a_.load_index(kTransport);
      compare_behind(offsetof(FlowKey, source_port), 2, 0);
      compare_behind(offsetof(FlowKey, destination_port), 2, 2);
    }
    a_.finish(kWholeFrame);
    a_.place(next_);
  }

  void write_ipv4() {
    constexpr uint32_t kAt = ethernet::kHeaderBytes;
    a_.load_index(kTagBytes);
    compare_behind(offsetof(FlowKey, traffic_class), 1, kAt + 1);
    // The header's top three bits are the flags, in another order than in the rule.
    compare(offsetof(FlowKey, fragment), 1, [&] {
      a_.operation(BPF_LD | BPF_B | BPF_IND, kAt + 6);
      a_.operation(BPF_ALU | BPF_RSH | BPF_K, 5);
      swap_fragment_flags();
    });
    compare_behind(offsetof(FlowKey, hop_limit), 1, kAt + 8);
    compare_behind(offsetof(FlowKey, protocol), 1, kAt + 9);
    compare_behind(offsetof(FlowKey, source_ip), 4, kAt + 12);
    compare_behind(offsetof(FlowKey, destination_ip), 4, kAt + 16);
  }

  void write_ipv6() {
    constexpr uint32_t kAt = ethernet::kHeaderBytes;
    a_.load_index(kTagBytes);
    compare(offsetof(FlowKey, traffic_class), 1, [&] {
      a_.operation(BPF_LD | BPF_H | BPF_IND, kAt);
      a_.operation(BPF_ALU | BPF_RSH | BPF_K, 4);
    });
    compare(offsetof(FlowKey, flow_label), 4, [&] { a_.operation(BPF_LD | BPF_W | BPF_IND, kAt); });
    compare_behind(offsetof(FlowKey, protocol), 1, kAt + 6);
    compare_behind(offsetof(FlowKey, hop_limit), 1, kAt + 7);
    for (uint32_t i = 0; i < 16; i += 4) {
      compare_behind(offsetof(FlowKey, source_ip) + i, 4, kAt + 8 + i);
      compare_behind(offsetof(FlowKey, destination_ip) + i, 4, kAt + 24 + i);
    }
  }

  // After the shift MF is bit 0 and DF bit 1; in rules DF is bit 1 and MF bit 2 (ethernet::FragmentFlag).
  void swap_fragment_flags() {
    a_.operation(BPF_MISC | BPF_TAX);
    a_.bit_and(1);
    a_.operation(BPF_ALU | BPF_LSH | BPF_K, 2);
    a_.store(kProtocol);  // this cell is no longer needed
    a_.operation(BPF_MISC | BPF_TXA);
    a_.bit_and(ethernet::kDontFragment);
    a_.load_index(kProtocol);
    a_.operation(BPF_ALU | BPF_OR | BPF_X);
    a_.load_index(kTagBytes);
  }

  Assembler& a_;
  const KeyBytes value_;
  const KeyBytes mask_;
  Label next_;
};

void write_rule(Assembler& a, const SteeringRule& rule) {
  switch (rule.kind) {
    case RuleKind::kMatch:
      RuleWriter(a, rule);
      return;
    case RuleKind::kAllDefault:
      a.finish(kWholeFrame);
      return;
    case RuleKind::kMulticastDefault: {
      Label next;
      a.load_byte(0);
      a.jump_unless(BPF_JSET, 1, next);
      a.finish(kWholeFrame);
      a.place(next);
      return;
    }
  }
}

}  // namespace

FlowFilter make_flow_filter(const ethernet::SteeringTable& table) {
  Assembler a;
  write_direction(a);
  const FilterProgram direction = Assembler(a).take();
  write_parser(a);
  bool fits = true;
  table.for_each([&](const SteeringRule& rule) {
    if (!fits) return;
    Assembler one;
    write_rule(one, rule);
    fits = a.size() + one.size() <= kMaxInstructions;
    if (fits) a.append(one.take());
  });
  if (!fits) {
    // Too many rules for a program: the steering table alone selects frames.
    Assembler all;
    all.append(direction);
    all.finish(kWholeFrame);
    return {all.take(), false};
  }
  a.finish(0);
  return {a.take(), true};
}

FilterProgram make_closed_filter() {
  return {{BPF_RET | BPF_K, 0, 0, 0}};
}

FilterProgram make_open_filter() {
  return {{BPF_RET | BPF_K, 0, 0, kWholeFrame}};
}

}  // namespace verbena::net
