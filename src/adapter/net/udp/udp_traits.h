// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/transport/route.h"

namespace verbena::net {

// The kernel's UDP_MAX_SEGMENTS, and the maximum UDP payload of an IPv4 super-packet in bytes.
inline constexpr uint32_t kUdpMaxSegments = 64;
inline constexpr uint32_t kMaxSuperPacketBytes = 65535 - 20 - 8;

// The traits of RoCEv2 over UDP sockets.
inline constexpr transport::Traits kUdpTraits{
    .max_payload = 4096,
    // One UDP_SEGMENT super-packet.
    .burst_bytes = kMaxSuperPacketBytes,
    .burst_packets = kUdpMaxSegments,
    // Bytes for headers and for the kernel's bookkeeping in the receiving socket's buffer.
    .charge_per_packet = 64,
    .lossless = false,
    .progress = transport::Traits::Progress::kDescriptor,
    // For UC and UD, which get no acknowledgements: the capacity of a default socket buffer
    // (net.core.rmem_default), and the 10 Gb/s that one CPU can receive.
    .blind_burst_bytes = 160 * 1024,
    .blind_bytes_per_microsecond = 1250,
};

}  // namespace verbena::net
