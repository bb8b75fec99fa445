// SPDX-License-Identifier: Apache-2.0
// make_corpus FOLDER: writes the initial inputs of the fuzzers, in a folder for each target. Targets that
// take packets get one packet of each opcode and length from the captures; targets that take choices get
// random bytes.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/random.h"
#include "wire/roce/capture.h"

namespace {

namespace fs = std::filesystem;

// Targets whose input is a packet.
constexpr const char* kTakePackets[] = {"parse_fuzz", "receive_fuzz", "frame_fuzz", "forwarded_fuzz"};
// Targets that use their input as choices: they get some of all kinds.
constexpr const char* kTakeChoices[] = {
    "agent_fuzz",   "cm_fuzz",     "facade_fuzz",       "forwarded_fuzz", "http_fuzz",     "lane_fuzz",
    "line_fuzz",    "mad_fuzz",    "rdma_netlink_fuzz", "receive_fuzz",   "ring_fuzz",     "rmpp_fuzz",
    "rsocket_fuzz", "status_fuzz", "text_fuzz",         "trace_fuzz",     "takeover_fuzz", "xrc_fuzz"};
constexpr uint32_t kInputs = 24;

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

// The same files on every run.
bool write_choices(const fs::path& folder) {
  verbena::Random random(1);
  for (uint32_t i = 0; i < kInputs; ++i) {
    std::string bytes(8 + random.below(120), '\0');
    // Small numbers choose among few alternatives; large ones serve as values.
    const uint64_t most = i % 2 == 0 ? 256 : 32;
    for (char& byte : bytes) byte = static_cast<char>(random.below(most));
    for (const char* target : kTakeChoices) {
      if (!write(folder / target / ("choices-" + std::to_string(i)), bytes)) return false;
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
  fs::remove_all(folder);
  for (const char* target : kTakePackets) fs::create_directories(folder / target);
  for (const char* target : kTakeChoices) fs::create_directories(folder / target);
  return write_packets(folder) && write_choices(folder) ? 0 : 1;
}
