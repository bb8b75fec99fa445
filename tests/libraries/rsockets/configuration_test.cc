// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/configuration.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace verbena::rsockets {
namespace {

class ConfigurationTest : public ::testing::Test {
 protected:
  ConfigurationTest() { std::filesystem::create_directories(folder_); }
  ~ConfigurationTest() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  Configuration read() { return Configuration::read(folder_.c_str()); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("verbena-rsocket-" + std::to_string(::getpid()));
};

TEST_F(ConfigurationTest, HasTheKnownDefaultsWithoutFiles) {
  const Configuration read = Configuration::read("/nonexistent");
  EXPECT_EQ(read.receive_bytes, 131072u);
  EXPECT_EQ(read.send_queue, 384u);
  EXPECT_EQ(read.inline_bytes, 64u);
  EXPECT_EQ(read.iomap_entries, 0u);
  EXPECT_EQ(read.polling_time, std::chrono::microseconds(10));
}

TEST_F(ConfigurationTest, TakesNumbersFromTheFiles) {
  write("mem_default", "1000000\n");
  write("rqsize_default", "128\n");
  write("polling_time", "100\n");
  write("iomap_size", "300\n");
  const Configuration got = read();
  EXPECT_EQ(got.receive_bytes, 1000000u);
  EXPECT_EQ(got.receive_queue, 128u);
  EXPECT_EQ(got.polling_time, std::chrono::microseconds(100));
  EXPECT_EQ(got.iomap_entries, 256u) << "what both sides can say";
}

TEST_F(ConfigurationTest, NonsenseIsNoNumber) {
  write("mem_default", "plenty");
  write("wmem_default", "-5");
  write("sqsize_default", "99999999999");
  const Configuration got = read();
  EXPECT_EQ(got.receive_bytes, 131072u);
  EXPECT_EQ(got.send_bytes, 131072u);
  EXPECT_EQ(got.send_queue, 0xfffeu);
}

}  // namespace
}  // namespace verbena::rsockets
