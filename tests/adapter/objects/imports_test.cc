// SPDX-License-Identifier: Apache-2.0
// Objects shared through a context's descriptor: within a process all objects that can be imported, between
// processes device memory only.
#include <cstring>

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/helper.h"
#include "base/unique_fd.h"

namespace verbena::adapter::testing {
namespace {

Context import_of(ibv_context* context) {
  const int fd = ::dup(context->cmd_fd);
  Context imported(ibv_import_device(fd));
  EXPECT_NE(imported, nullptr) << std::strerror(errno);
  if (imported == nullptr) ::close(fd);
  return imported;
}

ibv_dm* allocate(ibv_context* context, size_t length) {
  ibv_alloc_dm_attr attr{length, 0, 0};
  return ibv_alloc_dm(context, &attr);
}

TEST(ImportedDevice, IsTheSameDevice) {
  Context context = open_device();
  const int fd = ::dup(context->cmd_fd);
  {
    Context imported(ibv_import_device(fd));
    ASSERT_NE(imported, nullptr);
    EXPECT_EQ(imported->device, context->device);
    EXPECT_EQ(imported->cmd_fd, fd);
    EXPECT_NE(imported->async_fd, context->async_fd);
    Pd pd(ibv_alloc_pd(imported.get()));
    EXPECT_NE(pd, nullptr);
  }
  EXPECT_EQ(::write(fd, "", 0), -1) << "closed with it";
}

TEST(ImportedDevice, OfAnythingElseIsRefused) {
  const UniqueFd file(::memfd_create("verbena-test", MFD_CLOEXEC));
  for (const int fd : {file.get(), STDOUT_FILENO}) {
    EXPECT_EQ(ibv_import_device(fd), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  EXPECT_EQ(ibv_import_device(-1), nullptr);
  EXPECT_EQ(errno, EBADF);
}

TEST(ImportedPd, IsTheSameProtectionDomain) {
  Pair pair;
  Context imported = import_of(pair.b.context.get());
  ibv_pd* pd = ibv_import_pd(imported.get(), pair.b.pd->handle);
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(pd->context, imported.get());
  EXPECT_EQ(pd->handle, pair.b.pd->handle);
  // A region made with one protection domain can be used by QPs of the other.
  std::byte memory[64]{};
  ibv_mr* mr = ibv_reg_mr(pd, memory, sizeof memory, static_cast<int>(kAllAccess));
  ASSERT_NE(mr, nullptr);
  Address there = pair.b.address();
  there.rkey = mr->rkey;
  there.buffer = reinterpret_cast<uint64_t>(memory);
  const ibv_sge piece = pair.a.piece(0, 64);
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, there), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ibv_unimport_pd(pd);
}

TEST(ImportedMr, HasTheSameKeysAndNoAddress) {
  Pair pair;
  Context imported = import_of(pair.b.context.get());
  ibv_pd* pd = ibv_import_pd(imported.get(), pair.b.pd->handle);
  ibv_mr* mr = ibv_import_mr(pd, pair.b.mr->handle);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->lkey, pair.b.mr->lkey);
  EXPECT_EQ(mr->rkey, pair.b.mr->rkey);
  EXPECT_EQ(mr->length, pair.b.mr->length);
  EXPECT_EQ(mr->addr, nullptr);
  ibv_unimport_mr(mr);
  const ibv_sge piece = pair.a.piece(0, 64);
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, pair.b.address()), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS) << "the region is still there";
  ibv_unimport_pd(pd);
}

TEST(ImportedMr, EndsTheRegionWhenDeregistered) {
  Context context = open_device();
  Pd pd(ibv_alloc_pd(context.get()));
  std::byte memory[64];
  ibv_mr* mr = ibv_reg_mr(pd.get(), memory, sizeof memory, 0);
  {
    Context imported = import_of(context.get());
    ibv_pd* same = ibv_import_pd(imported.get(), pd->handle);
    ibv_mr* other = ibv_import_mr(same, mr->handle);
    EXPECT_EQ(ibv_dealloc_pd(same), EBUSY);
    EXPECT_EQ(ibv_dereg_mr(other), 0);
    ibv_unimport_pd(same);
  }
  EXPECT_EQ(ibv_dereg_mr(mr), ENOENT);
  ibv_unimport_mr(mr);
}

TEST(ImportedMr, OutlivesTheContextThatMadeIt) {
  Context context = open_device();
  Pair pair;
  Context imported = import_of(context.get());
  ibv_pd* made = ibv_alloc_pd(context.get());
  std::byte memory[64];
  ibv_mr* mr = ibv_reg_mr(made, memory, sizeof memory, static_cast<int>(kAllAccess));
  ibv_pd* pd = ibv_import_pd(imported.get(), made->handle);
  ibv_mr* other = ibv_import_mr(pd, mr->handle);
  context.reset();
  EXPECT_EQ(ibv_dereg_mr(other), 0) << "it was still registered";
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(Imports, OfHandlesThatNothingHasAreRefused) {
  Context context = open_device();
  Context imported = import_of(context.get());
  Pd pd(ibv_alloc_pd(imported.get()));
  EXPECT_EQ(ibv_import_pd(imported.get(), 4711), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_import_mr(pd.get(), 4711), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_import_dm(imported.get(), 4711), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

TEST(ImportedDm, IsTheSameMemory) {
  Context context = open_device();
  Context imported = import_of(context.get());
  ibv_dm* dm = allocate(context.get(), 4096);
  ibv_dm* other = ibv_import_dm(imported.get(), dm->handle);
  ASSERT_NE(other, nullptr);
  const uint32_t mark = 0x12345678;
  uint32_t seen = 0;
  ASSERT_EQ(ibv_memcpy_to_dm(dm, 100, &mark, 4), 0);
  ASSERT_EQ(ibv_memcpy_from_dm(&seen, other, 100, 4), 0);
  EXPECT_EQ(seen, mark);
  EXPECT_EQ(ibv_free_dm(dm), 0);
  EXPECT_EQ(ibv_free_dm(other), ENOENT);
  EXPECT_EQ(ibv_memcpy_from_dm(&seen, other, 100, 4), 0) << "useless, but no harm";
  ibv_unimport_dm(other);
}

// ---- another process

void send_descriptor(const Line& line, int fd) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof fd)]{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  ASSERT_EQ(::sendmsg(line.fd(), &message, 0), 1);
}

int receive_descriptor(const Line& line) {
  char byte = 0;
  iovec data{&byte, 1};
  int fd = -1;
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof fd)]{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  EXPECT_EQ(::recvmsg(line.fd(), &message, 0), 1);
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

struct Exported {
  uint32_t dm;
  uint32_t pd;
};

// Imports the objects that it is told, writes into the device memory, and lets a peer write there.
const HelperBody importer("importer", [](Line& line) {
  const int fd = receive_descriptor(line);
  const auto exported = line.hear<Exported>();
  Context context(ibv_import_device(fd));
  ASSERT_NE(context, nullptr) << std::strerror(errno);
  EXPECT_EQ(ibv_import_pd(context.get(), exported.pd), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_dm* dm = ibv_import_dm(context.get(), exported.dm);
  ASSERT_NE(dm, nullptr) << std::strerror(errno);
  uint32_t seen = 0;
  ASSERT_EQ(ibv_memcpy_from_dm(&seen, dm, 0, 4), 0);
  EXPECT_EQ(seen, 1u);
  const uint32_t answer = 2;
  ASSERT_EQ(ibv_memcpy_to_dm(dm, 4, &answer, 4), 0);
  // Its own allocations do not overlap the imported memory.
  ibv_dm* own = allocate(context.get(), 4096);
  ASSERT_NE(own, nullptr);
  EXPECT_NE(own->handle, dm->handle);
  ASSERT_EQ(ibv_memcpy_to_dm(own, 0, &answer, 4), 0);
  Pd pd(ibv_alloc_pd(context.get()));
  {
    Mr mr(ibv_reg_dm_mr(pd.get(), dm, 0, 4096, kAllAccess | IBV_ACCESS_ZERO_BASED));
    EXPECT_NE(mr, nullptr);
  }
  EXPECT_EQ(ibv_free_dm(own), 0);
  ibv_unimport_dm(dm);
  line.tell(true);
  line.await_end();
});

TEST(ImportedDm, IsSharedBetweenProcesses) {
  Context context = open_device();
  Pd pd(ibv_alloc_pd(context.get()));
  ibv_dm* dm = allocate(context.get(), 4096);
  const uint32_t mark = 1;
  ASSERT_EQ(ibv_memcpy_to_dm(dm, 0, &mark, 4), 0);
  Helper helper = Helper::start("importer");
  send_descriptor(helper.line(), context->cmd_fd);
  helper.line().tell(Exported{dm->handle, pd->handle});
  ASSERT_TRUE(helper.line().hear<bool>());
  uint32_t seen[2] = {};
  ASSERT_EQ(ibv_memcpy_from_dm(seen, dm, 0, 8), 0);
  EXPECT_EQ(seen[0], 1u);
  EXPECT_EQ(seen[1], 2u);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

}  // namespace
}  // namespace verbena::adapter::testing
