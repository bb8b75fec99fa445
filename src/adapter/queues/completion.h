// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include <infiniband/verbs.h>

namespace verbena::queues {

// A completion as stored in the ring: one cache line. It has the fields of ibv_wc, except those that are
// always zero on Ethernet (slid, dlid_path_bits: a RoCE port has no LID). It also has the fields that only
// extended polling returns.
struct Completion {
  Completion() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): it is the same thing, and most have no more to say
  Completion(const ibv_wc& wc)
      : wr_id(wc.wr_id),
        byte_len(wc.byte_len),
        imm_data(wc.imm_data),
        qp_num(wc.qp_num),
        src_qp(wc.src_qp),
        vendor_err(wc.vendor_err),
        status(static_cast<uint8_t>(wc.status)),
        opcode(static_cast<uint8_t>(wc.opcode)),
        wc_flags(static_cast<uint8_t>(wc.wc_flags)),
        sl(wc.sl),
        pkey_index(wc.pkey_index) {}

  void copy_to(ibv_wc& wc) const {
    wc.wr_id = wr_id;
    wc.status = static_cast<ibv_wc_status>(status);
    wc.opcode = static_cast<ibv_wc_opcode>(read_opcode());
    wc.vendor_err = vendor_err;
    wc.byte_len = byte_len;
    wc.imm_data = imm_data;
    wc.qp_num = qp_num;
    wc.src_qp = src_qp;
    wc.wc_flags = wc_flags;
    wc.pkey_index = pkey_index;
    wc.slid = 0;
    wc.sl = sl;
    wc.dlid_path_bits = 0;
  }

  // Opcode that marks an entry as removed: its QP was destroyed while a poller held the pollers' lock.
  // Polling skips such entries. The opcode may be written while the entry is being read.
  static constexpr uint8_t kBlank = 0xff;
  uint8_t read_opcode() const {
    return std::atomic_ref(const_cast<uint8_t&>(opcode)).load(std::memory_order_relaxed);
  }
  void blank() { std::atomic_ref(opcode).store(kBlank, std::memory_order_relaxed); }

  uint64_t wr_id = 0;
  uint64_t timestamp = 0;  // by device_clock(), if Options::device_clock is set
  uint64_t wallclock = 0;  // by wall_clock(), if Options::wall_clock is set
  uint64_t tag = 0;        // tag matching: the message's tag
  // Tag matching is for RC and XRC, flow rules are for raw packets: no entry has both.
  union {
    uint32_t tag_private = 0;  // added to the tag by the sender
    uint32_t flow_tag;         // of the rule that a raw packet matched
  };
  uint32_t byte_len = 0;
  uint32_t imm_data = 0;  // as received, in network order; or the R_Key that was invalidated
  uint32_t qp_num = 0;
  uint32_t src_qp = 0;
  uint32_t vendor_err = 0;
  uint8_t status = 0;    // enum ibv_wc_status
  uint8_t opcode = 0;    // enum ibv_wc_opcode
  uint8_t wc_flags = 0;  // enum ibv_wc_flags
  uint8_t sl = 0;
  uint16_t pkey_index = 0;
  uint16_t cvlan = 0;  // the VLAN tag stripped from a raw packet
};
static_assert(sizeof(Completion) == 64);
static_assert(IBV_WC_DRIVER3 < Completion::kBlank && IBV_WC_TM_DATA_VALID <= 0xff &&
              IBV_WC_TM_RNDV_INCOMPLETE <= 0xff);

}  // namespace verbena::queues
