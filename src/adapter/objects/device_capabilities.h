// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

namespace verbena::adapter {

// Capabilities that later headers name IBV_DEVICE_FLUSH_GLOBAL and IBV_DEVICE_ATOMIC_WRITE (the kernel's
// ib_user_verbs.h has them).
inline constexpr uint64_t kDeviceFlushGlobal = 1ull << 38;
inline constexpr uint64_t kDeviceAtomicWrite = 1ull << 40;

// What all devices of the software adapter say of themselves: device_cap_flags, of which the ones beyond 32
// bits are in device_cap_flags_ex only, and fw_ver.
inline constexpr uint64_t kDeviceCapabilities =
    IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_UD_AV_PORT_ENFORCE |
    IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
    IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
    kDeviceFlushGlobal | kDeviceAtomicWrite;
// With raw packets, device_cap_flags alone.
inline constexpr uint64_t kRawPacketCapabilities = IBV_DEVICE_MANAGED_FLOW_STEERING | IBV_DEVICE_RAW_IP_CSUM;
// All that a device says, on a host where programs may send raw packets.
inline constexpr uint64_t kAllCapabilities = kDeviceCapabilities | kRawPacketCapabilities;
inline constexpr const char* kFirmwareVersion = "0.1.0";

}  // namespace verbena::adapter
