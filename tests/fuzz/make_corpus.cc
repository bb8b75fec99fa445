// SPDX-License-Identifier: Apache-2.0
// make_corpus FOLDER: the packets of the captures, one of each opcode and length, as files for a fuzzer to
// start from.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "roce/capture.h"

int main(int argc, char** argv) {
  using verbena::roce::CapturedPacket;
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder(argv[1]);
  std::filesystem::create_directories(folder);
  std::set<std::pair<uint8_t, size_t>> seen;
  for (const CapturedPacket& packet : verbena::roce::captured_packets()) {
    const verbena::ConstBytes bytes = packet.udp_payload();
    const auto opcode = static_cast<uint8_t>(bytes[0]);
    if (!seen.emplace(opcode, bytes.size()).second) continue;
    const auto name = std::to_string(opcode) + "-" + std::to_string(bytes.size());
    std::ofstream file(folder / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file) return 1;
  }
  return 0;
}
