// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

namespace verbena::adapter {

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

}  // namespace verbena::adapter
