// SPDX-License-Identifier: Apache-2.0
// dma-bufs as memory regions: the kernel's where the machine has udmabuf, and emulated ones.
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "adapter/memory/dma_buf_exporter.h"
#include "adapter/objects/support/endpoint.h"

namespace verbena::adapter::testing {
namespace {

constexpr int kAll = static_cast<int>(kAllAccess);
constexpr size_t kPage = 4096;
constexpr uint64_t kIova = 0x1000'0000;

memory::ExportedBuffer four_pages() {
  return std::move(memory::export_buffer(4 * kPage).value());
}

Address at(const Endpoint& endpoint, const ibv_mr& mr, uint64_t address) {
  Address there = endpoint.address();
  there.rkey = mr.rkey;
  there.buffer = address;
  return there;
}

// Moves 64 bytes between the start of a's buffer and b's memory with this key. Returns the completion's
// status.
ibv_wc_status transfer(Pair& pair, ibv_wr_opcode opcode, const ibv_mr& mr, uint64_t address) {
  const ibv_sge piece = pair.a.piece(0, 64);
  EXPECT_EQ(pair.a.post_send(remote_request(opcode, 1, at(pair.b, mr, address)), {&piece, 1}), 0);
  return pair.a.completion().status;
}

int error_of_rereg(ibv_mr& mr, int flags, int access, void* addr = nullptr, size_t length = 0) {
  return ibv_rereg_mr(&mr, flags, nullptr, addr, length, access) == 0 ? 0 : errno;
}

TEST(DmaBuf, IsRegisteredLikeMemory) {
  const memory::ExportedBuffer buffer = four_pages();
  Pair pair;
  const uint64_t iova = kIova + kPage + 8;
  Mr mr(ibv_reg_dmabuf_mr(pair.b.pd.get(), kPage + 8, 2 * kPage, iova, buffer.dma_buf.get(), kAll));
  ASSERT_NE(mr, nullptr) << std::strerror(errno);
  fill_random(pair.a.bytes(), 9);
  ASSERT_EQ(transfer(pair, IBV_WR_RDMA_WRITE, *mr, iova + 100), IBV_WC_SUCCESS);
  std::byte contents[64];
  ASSERT_EQ(::pread(buffer.memory.get(), contents, sizeof contents, kPage + 108), 64);
  EXPECT_EQ(std::memcmp(contents, pair.a.buffer(), sizeof contents), 0);
  EXPECT_EQ(ibv_reg_dmabuf_mr(pair.b.pd.get(), 0, 4 * kPage + 1, 0, buffer.dma_buf.get(), 0), nullptr);
  EXPECT_EQ(errno, EINVAL) << "more than there is";
  EXPECT_EQ(transfer(pair, IBV_WR_RDMA_WRITE, *mr, iova - 8), IBV_WC_REM_ACCESS_ERR);
}

TEST(DmaBuf, IsReadByPeers) {
  const memory::ExportedBuffer buffer = four_pages();
  Pair pair;
  Mr mr(
      ibv_reg_dmabuf_mr(pair.b.pd.get(), 0, 4 * kPage, kIova, buffer.dma_buf.get(), IBV_ACCESS_REMOTE_READ));
  ASSERT_NE(mr, nullptr) << std::strerror(errno);
  std::byte contents[64];
  fill_random(contents, 10);
  ASSERT_EQ(::pwrite(buffer.memory.get(), contents, sizeof contents, 3 * kPage), 64);
  ASSERT_EQ(transfer(pair, IBV_WR_RDMA_READ, *mr, kIova + 3 * kPage), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(contents, pair.a.buffer(), sizeof contents), 0);
  EXPECT_EQ(transfer(pair, IBV_WR_RDMA_WRITE, *mr, kIova), IBV_WC_REM_ACCESS_ERR) << "nobody may write";
}

TEST(DmaBuf, IsSentFromAndReceivedInto) {
  const memory::ExportedBuffer from = four_pages();
  const memory::ExportedBuffer into = four_pages();
  Pair pair;
  Mr source(ibv_reg_dmabuf_mr(pair.a.pd.get(), 0, 4 * kPage, 0, from.dma_buf.get(), 0));
  Mr sink(ibv_reg_dmabuf_mr(pair.b.pd.get(), 0, 4 * kPage, 0, into.dma_buf.get(), IBV_ACCESS_LOCAL_WRITE));
  ASSERT_NE(source, nullptr) << std::strerror(errno);
  ASSERT_NE(sink, nullptr) << std::strerror(errno);
  std::vector<std::byte> sent(2 * kPage), received(2 * kPage);
  fill_random(sent, 11);
  ASSERT_EQ(::pwrite(from.memory.get(), sent.data(), sent.size(), 100), 2 * kPage);
  const ibv_sge read{100, 2 * kPage, source->lkey};
  const ibv_sge write{kPage + 1, 2 * kPage, sink->lkey};
  ASSERT_EQ(pair.b.post_receive(2, write), 0);
  ASSERT_EQ(pair.a.post_send(send_request(1), {&read, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.completion().status, IBV_WC_SUCCESS);
  ASSERT_EQ(::pread(into.memory.get(), received.data(), received.size(), kPage + 1), 2 * kPage);
  EXPECT_EQ(sent, received);
}

TEST(DmaBuf, OutlivesItsDescriptor) {
  Pair pair;
  memory::ExportedBuffer buffer = four_pages();
  Mr mr(ibv_reg_dmabuf_mr(pair.b.pd.get(), 0, 4 * kPage, kIova, buffer.dma_buf.get(), kAll));
  ASSERT_NE(mr, nullptr) << std::strerror(errno);
  buffer = {};
  fill_random(pair.a.bytes(), 12);
  const std::vector<std::byte> written(pair.a.buffer(), pair.a.buffer() + 64);
  ASSERT_EQ(transfer(pair, IBV_WR_RDMA_WRITE, *mr, kIova + kPage), IBV_WC_SUCCESS);
  fill_random(pair.a.bytes(), 13);
  ASSERT_EQ(transfer(pair, IBV_WR_RDMA_READ, *mr, kIova + kPage), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(written.data(), pair.a.buffer(), 64), 0);
}

// Re-registration keeps the mapping, so memory mapped for reading cannot become writable.
TEST(DmaBuf, ChangesRightsAsItsMappingAllows) {
  const memory::ExportedBuffer buffer = four_pages();
  Pair pair;
  const auto register_with = [&](int access) {
    return Mr(ibv_reg_dmabuf_mr(pair.b.pd.get(), 0, 4 * kPage, kIova, buffer.dma_buf.get(), access));
  };
  const Mr writable = register_with(IBV_ACCESS_LOCAL_WRITE);
  const Mr readable = register_with(0);
  ASSERT_NE(writable, nullptr);
  ASSERT_NE(readable, nullptr);
  EXPECT_EQ(error_of_rereg(*writable, IBV_REREG_MR_CHANGE_ACCESS, kAll), 0);
  EXPECT_EQ(transfer(pair, IBV_WR_RDMA_WRITE, *writable, kIova), IBV_WC_SUCCESS);
  EXPECT_EQ(error_of_rereg(*readable, IBV_REREG_MR_CHANGE_ACCESS, IBV_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ(transfer(pair, IBV_WR_RDMA_READ, *readable, kIova), IBV_WC_SUCCESS);
  EXPECT_EQ(error_of_rereg(*readable, IBV_REREG_MR_CHANGE_ACCESS, kAll), EACCES);
  EXPECT_EQ(error_of_rereg(*readable, IBV_REREG_MR_CHANGE_ACCESS, IBV_ACCESS_ON_DEMAND), EINVAL);
  std::byte elsewhere[64];
  EXPECT_EQ(error_of_rereg(*writable, IBV_REREG_MR_CHANGE_TRANSLATION, 0, elsewhere, sizeof elsewhere),
            EOPNOTSUPP);
}

TEST(DmaBuf, IsRefusedWithWhatItCannotHave) {
  Context context = open_device();
  Pd pd(ibv_alloc_pd(context.get()));
  const memory::ExportedBuffer buffer = four_pages();
  const UniqueFd file(::memfd_create("verbena-test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kPage), 0);
  const int good = buffer.dma_buf.get();
  const struct {
    const char* what;
    int fd;
    uint64_t offset;
    uint64_t iova;
    int access;
    int error;
  } cases[] = {
      {"no descriptor", -1, 0, 0, 0, EBADF},
      {"a file that can be mapped", file.get(), 0, 0, 0, EINVAL},
      {"a place beyond its end", good, 4 * kPage, 0, 0, EINVAL},
      {"a place whose end wraps", good, UINT64_MAX - kPage + 1, 0, 0, EINVAL},
      {"places in the page that differ", good, 0, 16, 0, EINVAL},
      {"rights that need another", good, 0, 0, IBV_ACCESS_REMOTE_WRITE, EINVAL},
      {"rights that dma-bufs lack", good, 0, 0, IBV_ACCESS_ON_DEMAND, EINVAL},
      {"windows", good, 0, 0, IBV_ACCESS_MW_BIND, EINVAL},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    EXPECT_EQ(ibv_reg_dmabuf_mr(pd.get(), c.offset, 64, c.iova, c.fd, c.access), nullptr);
    EXPECT_EQ(errno, c.error);
  }
}

}  // namespace
}  // namespace verbena::adapter::testing
