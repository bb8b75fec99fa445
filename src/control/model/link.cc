// SPDX-License-Identifier: Apache-2.0
#include "control/model/link.h"

#include <iterator>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/sealed_file.h"
#include "base/text.h"

namespace verbena::control {

std::array<uint8_t, 8> guid_of(const Link& link) {
  const bool has_mac = std::ranges::any_of(link.mac, [](uint8_t byte) { return byte != 0; });
  if (!has_mac) {  // "locally administered", "verb", and the interface index: unique on this machine
    std::array<uint8_t, 8> guid{0x02, 'v', 'r', 'b'};
    store_be<uint32_t>(&guid[4], link.interface_index);
    return guid;
  }
  // EUI-64 from EUI-48, with the universal/local bit inverted (RFC 4291 appendix A), as in the kernel's rxe.
  const auto& mac = link.mac;
  return {static_cast<uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
}

namespace {

constexpr uint32_t kSpeedUnit = 100;  // Mb/s
constexpr size_t kMaxFileBytes = 64u << 20;

template <class T>
void append(std::vector<std::byte>& to, const T& record) {
  const auto bytes = std::as_bytes(std::span(&record, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// Takes records off the front. After it has run short it stays failed.
class Reader {
 public:
  explicit Reader(ConstBytes bytes) : bytes_(bytes) {}

  // Takes a record that has `length` bytes in the file. If it is shorter than T, the rest is zeros.
  template <class T>
  T take(size_t length = sizeof(T)) {
    T record{};
    if (bytes_.size() < length) {
      failed_ = true;
      return record;
    }
    std::memcpy(&record, bytes_.data(), std::min(length, sizeof record));
    bytes_ = bytes_.subspan(length);
    return record;
  }
  bool failed() const { return failed_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  ConstBytes bytes_;
  bool failed_ = false;
};

struct RecordLengths {
  size_t link = protocol::kLinkRecordBytesInVersion4;
  size_t gid = sizeof(protocol::GidRecord);
};

// Reads the lengths of records. False: they are shorter than they ever were.
bool take_lengths(const protocol::LinkTableHeader& header, RecordLengths& lengths) {
  if (header.link_record_bytes == 0 && header.gid_record_bytes == 0) return true;
  lengths = {header.link_record_bytes, header.gid_record_bytes};
  return lengths.link >= protocol::kLinkRecordBytesInVersion4 && lengths.gid >= sizeof(protocol::GidRecord);
}

// Reads a link's networks. False: they are too many, or one is invalid.
bool take_peers(const protocol::LinkRecord& record, Link& link) {
  if (record.peer_count > protocol::kMaxPeersOfLink) return false;
  for (uint32_t i = 0; i < record.peer_count; ++i) {
    const auto peer = load_peer(record.peers[i]);
    if (!peer) return false;
    link.peers.push_back(*peer);
  }
  return true;
}

Link take_link(Reader& reader, const RecordLengths& lengths, bool& valid) {
  const auto record = reader.take<protocol::LinkRecord>(lengths.link);
  Link link;
  link.name = load_text(record.name);
  link.netdev = load_text(record.netdev);
  link.device_index = record.device_index;
  link.interface_index = record.interface_index;
  link.mtu = record.mtu;
  link.speed = record.speed * kSpeedUnit;
  link.up = (record.flags & protocol::kLinkUp) != 0;
  link.has_wire = (record.flags & protocol::kLinkHasNoWire) == 0;
  link.automatic = (record.flags & protocol::kLinkAutomatic) != 0;
  std::copy_n(record.mac, link.mac.size(), link.mac.begin());
  if (!take_peers(record, link)) valid = false;
  if (link.name.empty() || record.gid_count > kGidTableLength) valid = false;
  for (uint32_t i = 0; valid && !reader.failed() && i < record.gid_count; ++i) {
    const auto gid = reader.take<protocol::GidRecord>(lengths.gid);
    const bool ascending = link.gids.empty() || link.gids.back().index < gid.index;
    if (!ascending || gid.index >= kGidTableLength) valid = false;
    GidEntry& entry = link.gids.emplace_back();
    entry.index = gid.index;
    std::copy_n(gid.gid, entry.gid.bytes.size(), entry.gid.bytes.begin());
  }
  return link;
}

}  // namespace

std::vector<std::byte> encode_links(const LinkSnapshot& snapshot) {
  std::vector<std::byte> bytes;
  append(bytes, protocol::LinkTableHeader{protocol::kLinkTableMagic, protocol::kLinkTableVersion,
                                          snapshot.generation, snapshot.next_device_index,
                                          static_cast<uint32_t>(snapshot.deleted.size()),
                                          static_cast<uint32_t>(snapshot.links.size()),
                                          sizeof(protocol::LinkRecord), sizeof(protocol::GidRecord)});
  for (const uint32_t interface_index : snapshot.deleted) append(bytes, interface_index);
  for (const Link& link : snapshot.links) {
    protocol::LinkRecord record{};
    store_text(record.name, link.name);
    store_text(record.netdev, link.netdev);
    record.device_index = link.device_index;
    record.interface_index = link.interface_index;
    record.mtu = link.mtu;
    record.speed = static_cast<uint16_t>(std::min<uint32_t>(link.speed / kSpeedUnit, UINT16_MAX));
    record.flags = (link.up ? protocol::kLinkUp : 0) | (link.automatic ? protocol::kLinkAutomatic : 0) |
                   (link.has_wire ? 0 : protocol::kLinkHasNoWire);
    record.gid_count = static_cast<uint32_t>(link.gids.size());
    std::ranges::copy(link.mac, record.mac);
    record.peer_count = static_cast<uint32_t>(std::min(link.peers.size(), std::size(record.peers)));
    std::transform(link.peers.begin(), link.peers.begin() + record.peer_count, record.peers, store_peer);
    append(bytes, record);
    for (const GidEntry& entry : link.gids) {
      protocol::GidRecord gid{entry.index, {}};
      std::ranges::copy(entry.gid.bytes, gid.gid);
      append(bytes, gid);
    }
  }
  return bytes;
}

Result<LinkSnapshot> decode_links(ConstBytes bytes) {
  Reader reader(bytes);
  const auto header = reader.take<protocol::LinkTableHeader>();
  if (reader.failed() || header.magic != protocol::kLinkTableMagic ||
      header.version != protocol::kLinkTableVersion) {
    return fail(EPROTO);
  }
  LinkSnapshot snapshot;
  snapshot.generation = header.generation;
  snapshot.next_device_index = header.next_device_index;
  for (uint32_t i = 0; !reader.failed() && i < header.deleted_count; ++i) {
    snapshot.deleted.push_back(reader.take<uint32_t>());
  }
  RecordLengths lengths;
  bool valid = take_lengths(header, lengths);
  for (uint32_t i = 0; valid && !reader.failed() && i < header.link_count; ++i) {
    snapshot.links.push_back(take_link(reader, lengths, valid));
  }
  if (!valid || reader.failed() || !reader.at_end()) return fail(EPROTO);
  return snapshot;
}

Result<UniqueFd> write_link_file(const LinkSnapshot& snapshot) {
  const std::vector<std::byte> bytes = encode_links(snapshot);
  auto made = make_private_file("verbena-links", 0);
  if (!made) return fail(made.error().code);
  UniqueFd file = std::move(*made);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = ::write(file.get(), bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail(written < 0 ? errno : EIO);
    done += static_cast<size_t>(written);
  }
  constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return fail(errno);
  return file;
}

Result<LinkSnapshot> read_link_file(int fd) {
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kNeeded) != kNeeded) return fail(EPROTO);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return fail(errno);
  if (info.st_size < 0 || static_cast<size_t>(info.st_size) > kMaxFileBytes) return fail(EPROTO);

  std::vector<std::byte> bytes(static_cast<size_t>(info.st_size));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t got = ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail(got < 0 ? errno : EPROTO);
    done += static_cast<size_t>(got);
  }
  return decode_links(bytes);
}

}  // namespace verbena::control
