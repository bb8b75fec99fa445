// SPDX-License-Identifier: Apache-2.0
// make_corpus FOLDER: what fuzzers start from, in a folder for each target. The packets of the captures, one
// of each opcode and length, for those that take packets; a few words of what there is to say for others.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

#include "roce/capture.h"

namespace {

namespace fs = std::filesystem;

constexpr const char* kTargets[] = {"parse_fuzz", "receive_fuzz", "frame_fuzz", "cm_fuzz"};
constexpr const char* kTakePackets[] = {"parse_fuzz", "receive_fuzz", "frame_fuzz"};

bool write(const fs::path& file, std::string_view bytes) {
  std::ofstream to(file, std::ios::binary);
  to.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return to.good();
}

bool write_packets(const fs::path& folder) {
  std::set<std::pair<uint8_t, size_t>> seen;
  for (const verbena::roce::CapturedPacket& packet : verbena::roce::captured_packets()) {
    const verbena::ConstBytes bytes = packet.udp_payload();
    const auto opcode = static_cast<uint8_t>(bytes[0]);
    if (!seen.emplace(opcode, bytes.size()).second) continue;
    const auto name = std::to_string(opcode) + "-" + std::to_string(bytes.size());
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    for (const char* target : kTakePackets) {
      if (!write(folder / target / name, text)) return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus FOLDER\n");
    return 2;
  }
  const fs::path folder(argv[1]);
  for (const char* target : kTargets) fs::create_directories(folder / target);
  return write_packets(folder) ? 0 : 1;
}
