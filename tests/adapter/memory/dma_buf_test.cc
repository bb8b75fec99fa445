// SPDX-License-Identifier: Apache-2.0
// dma-bufs in our memory: the kernel's where the machine has udmabuf, and emulated ones.
#include <cstring>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>

#include "adapter/memory/dma_buf_exporter.h"
#include "adapter/memory/file_mapping.h"
#include "adapter/memory/pages.h"

namespace verbena::memory {
namespace {

class DmaBuf : public ::testing::TestWithParam<Exporter> {
 protected:
  void SetUp() override {
    auto exported = export_buffer(4 * page_size(), GetParam());
    if (!exported && GetParam() == Exporter::kUdmabuf && ::access("/dev/udmabuf", R_OK | W_OK) != 0) {
      GTEST_SKIP() << "this machine has no /dev/udmabuf for us";
    }
    ASSERT_TRUE(exported) << std::strerror(exported.error().code);
    buffer_ = std::move(*exported);
  }

  int error_of(uint64_t offset, uint64_t length, bool writable = true) const {
    const auto mapping = map_dma_buf(buffer_.dma_buf.get(), offset, length, writable);
    return mapping ? 0 : mapping.error().code;
  }

  ExportedBuffer buffer_;
};

INSTANTIATE_TEST_SUITE_P(Of, DmaBuf, ::testing::Values(Exporter::kUdmabuf, Exporter::kEmulated),
                         [](const auto& parameter) {
                           return parameter.param == Exporter::kUdmabuf ? "Udmabuf" : "Emulated";
                         });

TEST_P(DmaBuf, ShowsWhatItsExporterWrites) {
  const uint64_t offset = page_size() + 100;
  const auto mapping = map_dma_buf(buffer_.dma_buf.get(), offset, 2 * page_size(), false);
  ASSERT_TRUE(mapping);
  ASSERT_EQ(::pwrite(buffer_.memory.get(), "written", 7, static_cast<off_t>(offset + page_size())), 7);
  EXPECT_EQ(std::memcmp(mapping->data() + page_size(), "written", 7), 0);
}

TEST_P(DmaBuf, ShowsItsExporterWhatIsWritten) {
  const auto mapping = map_dma_buf(buffer_.dma_buf.get(), 4 * page_size() - 7, 7, true);
  ASSERT_TRUE(mapping);
  std::memcpy(mapping->data(), "written", 7);
  char contents[7];
  ASSERT_EQ(::pread(buffer_.memory.get(), contents, 7, static_cast<off_t>(4 * page_size() - 7)), 7);
  EXPECT_EQ(std::memcmp(contents, "written", 7), 0);
}

TEST_P(DmaBuf, IsThereForAsLongAsItIsMapped) {
  const auto mapping = map_dma_buf(buffer_.dma_buf.get(), 0, 4 * page_size(), true);
  ASSERT_TRUE(mapping);
  ASSERT_EQ(::pwrite(buffer_.memory.get(), "written", 7, 0), 7);
  buffer_ = {};
  EXPECT_EQ(std::memcmp(mapping->data(), "written", 7), 0);
}

TEST_P(DmaBuf, IsMappedWithinItsBoundsOnly) {
  const uint64_t size = 4 * page_size();
  EXPECT_EQ(error_of(0, size), 0);
  EXPECT_EQ(error_of(size - 1, 1), 0);
  EXPECT_EQ(error_of(0, size + 1), EINVAL);
  EXPECT_EQ(error_of(size, 1), EINVAL);
  EXPECT_EQ(error_of(1, size), EINVAL);
  EXPECT_EQ(error_of(0, 0), EINVAL);
  EXPECT_EQ(error_of(page_size(), UINT64_MAX), EINVAL) << "the sum wraps";
  EXPECT_EQ(error_of(UINT64_MAX, 2), EINVAL);
}

TEST(EmulatedDmaBuf, IsReadOnlyWhereItsDescriptorIs) {
  const auto buffer = export_buffer(1, Exporter::kEmulated);
  ASSERT_TRUE(buffer);
  const std::string path = "/proc/self/fd/" + std::to_string(buffer->dma_buf.get());
  const UniqueFd reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(map_dma_buf(reader.get(), 0, 1, false));
  const auto refused = map_dma_buf(reader.get(), 0, 1, true);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EACCES);
}

// The seal makes mmap() fail, as with an exporter that does not support it.
TEST(EmulatedDmaBuf, IsNotSupportedWhereItsExporterDoesNotMapIt) {
  const auto buffer = export_buffer(1, Exporter::kEmulated);
  ASSERT_TRUE(buffer);
  ASSERT_EQ(::fcntl(buffer->memory.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  const auto refused = map_dma_buf(buffer->dma_buf.get(), 0, 1, true);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EOPNOTSUPP);
}

TEST(DmaBufOfSomethingElse, IsRefused) {
  const UniqueFd file = memory_file(1);
  const UniqueFd directory(::open("/", O_RDONLY | O_CLOEXEC));
  for (const int fd : {file.get(), directory.get()}) {
    const auto refused = map_dma_buf(fd, 0, 1, false);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EINVAL);
  }
  const auto refused = map_dma_buf(-1, 0, 1, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EBADF);
}

}  // namespace
}  // namespace verbena::memory
