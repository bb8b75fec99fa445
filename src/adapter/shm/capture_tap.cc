// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/capture_tap.h"

#include <algorithm>

#include "adapter/shm/layout.h"
#include "adapter/transport/gather.h"
#include "wire/roce/aeth.h"

namespace verbena::engine {
namespace {

using capture::kByInitiator;
using capture::kPeersAnswer;
using roce::Operation;

static_assert(shm::kMaxPayload <= capture::kMaxRecordPayload);

roce::Path reversed(const roce::Path& path) {
  roce::Path back = path;
  std::swap(back.source, back.destination);
  return back;
}

// Pieces of user memory from `offset` on, `bytes` of them.
transport::Pieces part_of(std::span<const ConstBytes> pieces, uint32_t offset, uint32_t bytes) {
  transport::Pieces part;
  for (const ConstBytes piece : pieces) {
    if (bytes == 0) break;
    if (offset >= piece.size()) {
      offset -= static_cast<uint32_t>(piece.size());
      continue;
    }
    const size_t taken = std::min<size_t>(bytes, piece.size() - offset);
    part.add(piece.subspan(offset, taken));
    bytes -= static_cast<uint32_t>(taken);
    offset = 0;
  }
  return part;
}

roce::Headers headers_of(Operation operation, roce::Qpn destination, roce::Psn psn) {
  roce::Headers headers;
  headers.opcode = roce::make_opcode(roce::Service::kRc, operation);
  headers.destination = destination;
  headers.psn = psn;
  return headers;
}

}  // namespace

Result<std::unique_ptr<CaptureTap>> CaptureTap::open(int ring) {
  auto mapping = capture::RingMapping::map(ring);
  if (!mapping) return tl::unexpected(mapping.error());
  return std::unique_ptr<CaptureTap>(new CaptureTap(std::move(*mapping)));
}

void CaptureTap::sent(const transport::OutgoingPacket& packet, TimePoint time) {
  writer_.put({.time = time,
               .path = packet.path,
               .headers = packet.headers,
               .payload = packet.payload,
               .payload_bytes = packet.payload_bytes,
               .count = packet.count,
               .source = packet.headers.source});
}

void CaptureTap::put(TimePoint time, const roce::Path& path, const roce::Headers& headers, roce::Qpn source,
                     uint8_t flags) {
  writer_.put({.time = time,
               .path = path,
               .headers = headers,
               .payload = {},
               .payload_bytes = 0,
               .source = source,
               .flags = flags});
}

void CaptureTap::put(Message& message, std::span<const ConstBytes> payload, uint32_t bytes, uint32_t mtu) {
  const uint32_t most = std::max(capture::kMaxRecordPayload / mtu, 1u) * mtu;
  uint32_t offset = 0;
  do {
    const uint32_t part = std::min(bytes - offset, most);
    const uint32_t count = std::max((part + mtu - 1) / mtu, 1u);
    const bool is_first = offset == 0;
    const bool is_last = offset + part == bytes;
    message.headers.opcode =
        roce::make_opcode(roce::Service::kRc, is_first ? (is_last ? message.only : message.first)
                                                       : (is_last ? message.last : message.middle));
    message.headers.pad = roce::padding_of(part);
    const transport::Pieces pieces = part_of(payload, offset, part);
    writer_.put({.time = message.time,
                 .path = message.path,
                 .headers = message.headers,
                 .payload = pieces.get(),
                 .payload_bytes = part,
                 .count = count,
                 .source = message.source,
                 .flags = message.flags});
    message.headers.psn = message.headers.psn + count;
    offset += part;
  } while (offset < bytes);
}

void CaptureTap::have_read(const transport::PeerRange& range, uint32_t offset, uint32_t bytes,
                           std::span<const ConstBytes> to, TimePoint asked, TimePoint answered) {
  if (range.path == nullptr) return;
  roce::Headers request = headers_of(Operation::kReadRequest, range.connection->to, range.next_psn);
  request.ack_request = true;
  request.address = range.address + offset;
  request.rkey = range.rkey;
  request.dma_length = bytes;
  put(asked, *range.path, request, range.connection->from, kByInitiator);
  const roce::Path back = reversed(*range.path);
  Message response{
      .time = answered,
      .path = back,
      .headers = headers_of(Operation::kReadResponseOnly, range.connection->from, range.next_psn),
      .source = range.connection->to,
      .flags = kPeersAnswer,
      .only = Operation::kReadResponseOnly,
      .first = Operation::kReadResponseFirst,
      .middle = Operation::kReadResponseMiddle,
      .last = Operation::kReadResponseLast};
  response.headers.syndrome = roce::ack_syndrome();
  put(response, to, bytes, range.path_mtu);
}

void CaptureTap::have_written(const transport::PeerRange& range, uint32_t offset, uint32_t bytes,
                              std::span<const ConstBytes> from, TimePoint asked, TimePoint answered) {
  if (range.path == nullptr) return;
  Message request{.time = asked,
                  .path = *range.path,
                  .headers = headers_of(Operation::kWriteOnly, range.connection->to, range.next_psn),
                  .source = range.connection->from,
                  .flags = kByInitiator,
                  .only = Operation::kWriteOnly,
                  .first = Operation::kWriteFirst,
                  .middle = Operation::kWriteMiddle,
                  .last = Operation::kWriteLast};
  request.headers.ack_request = true;
  request.headers.address = range.address + offset;
  request.headers.rkey = range.rkey;
  request.headers.dma_length = bytes;
  put(request, from, bytes, range.path_mtu);
  roce::Headers answer = headers_of(Operation::kAcknowledge, range.connection->from, request.headers.psn - 1);
  answer.syndrome = roce::ack_syndrome();
  put(answered, reversed(*range.path), answer, range.connection->to, kPeersAnswer);
}

void CaptureTap::have_changed(const transport::PeerRange& range, const transport::AtomicChange& change,
                              uint64_t before, TimePoint asked, TimePoint answered) {
  if (range.path == nullptr) return;
  const Operation operation = change.compares ? Operation::kCompareSwap : Operation::kFetchAdd;
  roce::Headers request = headers_of(operation, range.connection->to, range.next_psn);
  request.ack_request = true;
  request.address = range.address;
  request.rkey = range.rkey;
  request.swap_add = change.swap_add;
  request.compare = change.compare;
  put(asked, *range.path, request, range.connection->from, kByInitiator);
  roce::Headers answer = headers_of(Operation::kAtomicAcknowledge, range.connection->from, range.next_psn);
  answer.syndrome = roce::ack_syndrome();
  answer.atomic_original = before;
  put(answered, reversed(*range.path), answer, range.connection->to, kPeersAnswer);
}

}  // namespace verbena::engine
