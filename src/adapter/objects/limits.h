// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include <infiniband/verbs.h>

#include "adapter/memory/key_table.h"
#include "adapter/queues/completion_queue.h"
#include "adapter/queues/work_queue.h"
#include "base/failed_call.h"
#include "base/only_one.h"
#include "base/result.h"
#include "control/model/link.h"
#include "wire/roce/qpn.h"

namespace verbena::adapter {

// Limits the number of objects of one kind, such as QPs, in the process. Thread-safe.
class ObjectLimit {
 public:
  explicit ObjectLimit(uint32_t most) : max_(most) {}

  // Counts one object against the limit until destroyed. A default-constructed Place counts nothing.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(of_, other.of_);
      return *this;
    }
    ~Place() {
      if (of_ != nullptr) of_->taken_.fetch_sub(1, std::memory_order_relaxed);
    }

   private:
    friend class ObjectLimit;
    explicit Place(ObjectLimit* of) : of_(of) {}

    ObjectLimit* of_ = nullptr;
  };

  uint32_t most() const { return max_; }

  // Counts one more object. Returns ENOMEM if the limit is reached, as the kernel's drivers do.
  Result<Place> take() {
    if (taken_.fetch_add(1, std::memory_order_relaxed) < max_) return Place(this);
    taken_.fetch_sub(1, std::memory_order_relaxed);
    return fail(because(ENOMEM, "the process has as many of these as it may have: {}", max_));
  }

 private:
  const uint32_t max_;
  std::atomic<uint32_t> taken_{0};
};

// The limits that the device reports. Large limits cost nothing: rings and tables take memory only when used.
inline constexpr int kMaxQp = 16'000;  // per process: one slot's share of the QPN space
inline constexpr int kMaxQpWr = 1 << 20;
inline constexpr int kMaxSge = static_cast<int>(queues::kMaxSge);
inline constexpr int kMaxInline = static_cast<int>(queues::kMaxInline);
inline constexpr int kMaxCq = 1 << 20;
inline constexpr int kMaxCqe = static_cast<int>(queues::CompletionQueue::kMaxEntries);
inline constexpr int kMaxMr = 1 << 22;
inline constexpr int kMaxMw = 1 << 22;
inline constexpr int kMaxPd = 1 << 20;
inline constexpr int kMaxAh = 1 << 20;
inline constexpr uint32_t kMaxWq = 1u << 14;  // QPs and work queues share one range of numbers
inline constexpr uint32_t kMaxRwqTables = 1u << 20;
inline constexpr uint32_t kMaxLogRwqTable = 12;
inline constexpr int kMaxSrq = 16'000;  // per process: SRQs for XRC take numbers of one slot
inline constexpr int kMaxSrqWr = 1 << 20;
inline constexpr uint32_t kMaxTags = 1u << 14;  // tagged buffers of an SRQ with tag matching
inline constexpr uint32_t kMaxTagOperations = 1u << 14;
// Maximum number of outstanding RDMA READs on each QP of a shared receive queue with tag matching. The READs
// fetch rendezvous data.
inline constexpr uint32_t kTagMatchingSends = 128;
inline constexpr uint32_t kMaxCompletionCounters = 1u << 20;
inline constexpr int kMaxReadAtomic = 128;
inline constexpr int kCompletionVectors = 8;
inline constexpr uint8_t kPorts = 1;
inline constexpr uint16_t kPkeyTableLength = 1;

static_assert(uint32_t{kMaxMr} + uint32_t{kMaxMw} <= memory::kMaxRegions, "one table holds both");
// Slot 0 reserves two QPNs, and the last slot reserves one. A process may have only one shard, and so only
// one slot for its kMaxQp QPs.
static_assert(kMaxQp + 3 <= roce::Qpn::kPerSlot);

// The numbers of objects of this process and their limits, for each kind that has a maximum in
// ibv_query_device(). All devices and contexts of the process share the limits, because they share the
// process's keys and QPNs.
struct ObjectLimits {
  ObjectLimit pds{kMaxPd};
  ObjectLimit mrs{kMaxMr};
  ObjectLimit mws{kMaxMw};
  ObjectLimit cqs{kMaxCq};
  ObjectLimit qps{kMaxQp};
  ObjectLimit srqs{kMaxSrq};
  ObjectLimit ahs{kMaxAh};
  ObjectLimit wqs{kMaxWq};
  ObjectLimit rwq_tables{kMaxRwqTables};
  ObjectLimit comp_counters{kMaxCompletionCounters};
};

inline ObjectLimits& object_limits() {
  static constinit OnlyOne<ObjectLimits> limits;
  return limits.get();
}

// Bits of device_cap_flags_ex that newer verbs.h headers call IBV_DEVICE_FLUSH_GLOBAL and
// IBV_DEVICE_ATOMIC_WRITE. The kernel's ib_user_verbs.h defines the bits.
inline constexpr uint64_t kDeviceFlushGlobal = 1ull << 38;
inline constexpr uint64_t kDeviceAtomicWrite = 1ull << 40;

// Capability flags that all devices of the software adapter report, in device_cap_flags_ex. The lower 32 bits
// appear in device_cap_flags, too.
inline constexpr uint64_t kDeviceCapabilities =
    IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_UD_AV_PORT_ENFORCE |
    IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
    IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
    kDeviceFlushGlobal | kDeviceAtomicWrite;
// Flags for raw packets. They appear in device_cap_flags but not in device_cap_flags_ex.
inline constexpr uint64_t kRawPacketCapabilities = IBV_DEVICE_MANAGED_FLOW_STEERING | IBV_DEVICE_RAW_IP_CSUM;
// All capability flags of a device, as netlink reports them (RDMA_NLDEV_ATTR_CAP_FLAGS).
inline constexpr uint64_t kAllCapabilities = kDeviceCapabilities | kRawPacketCapabilities;
// The fw_ver that all devices report.
inline constexpr const char* kFirmwareVersion = "0.1.0";

// Returns the largest path MTU whose packets fit a netdev MTU of `netdev_mtu` bytes, but at least
// IBV_MTU_256. As in the kernel's rxe, 80 bytes are subtracted for IP, UDP and all transport headers.
inline ibv_mtu path_mtu_of(uint32_t netdev_mtu) {
  return static_cast<ibv_mtu>(control::path_mtu_of(netdev_mtu));
}

// Returns the path MTU in bytes, or 0 for a value that is not an ibv_mtu.
inline uint32_t mtu_bytes(ibv_mtu mtu) {
  return mtu < IBV_MTU_256 || mtu > IBV_MTU_4096 ? 0 : 128u << mtu;
}

}  // namespace verbena::adapter
