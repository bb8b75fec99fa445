// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/status_mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace verbena::engine {
namespace {

using protocol::StatusPage;

UniqueFd file_of(size_t bytes, int seals = F_SEAL_SHRINK) {
  UniqueFd file(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

uint64_t word_at(const UniqueFd& file, size_t offset) {
  uint64_t word = 0;
  EXPECT_EQ(::pread(file.get(), &word, sizeof word, static_cast<off_t>(offset)), ssize_t{sizeof word});
  return word;
}

// In the first QP, and in the last; in the last object, and the last event.
void write_everywhere(StatusPage& page) {
  for (const size_t i : {size_t{0}, protocol::kQpsPerSlot - 1}) {
    page.qps[i].qpn = 17;
    page.paths[i].numbers[0] = 18;
  }
  page.objects.back().kind = 19;
  page.traces.details.entries.back().check = 20;
  page.more.back().numbers.back() = 21;
  page.peers.back().gid.back() = 22;
}

constexpr size_t kLastQpn = offsetof(StatusPage, qps) +
                            (protocol::kQpsPerSlot - 1) * sizeof(protocol::QpStatus) +
                            offsetof(protocol::QpStatus, qpn);

TEST(StatusMapping, ShowsAllOfThePage) {
  const UniqueFd file = file_of(sizeof(StatusPage));
  auto mapping = StatusMapping::create(file.get());
  ASSERT_TRUE(mapping);
  write_everywhere((*mapping)->page());
  EXPECT_EQ(word_at(file, 0), StatusPage::kMagic);
  EXPECT_EQ(word_at(file, kLastQpn), 17u);
  EXPECT_EQ(word_at(file, offsetof(StatusPage, paths)), 18u);
  EXPECT_EQ(word_at(file, protocol::kStatusBytesWithoutObjects - sizeof(protocol::PathStatus)), 18u);
  EXPECT_EQ(word_at(file, protocol::kStatusBytesWithoutTraces - sizeof(protocol::ObjectStatus)), 19u);
  EXPECT_EQ(word_at(file, protocol::kStatusBytesWithoutMore - sizeof(uint64_t)), 20u);
  EXPECT_EQ(word_at(file, protocol::kStatusBytesWithoutSecret - sizeof(uint64_t)), 21u);
  EXPECT_EQ(word_at(file, sizeof(StatusPage) - sizeof(uint64_t)), 22u);
}

TEST(StatusMapping, KeepsThePeersToItselfWhereAnOlderAgentHasNoRoomForThem) {
  const UniqueFd file = file_of(protocol::kStatusBytesWithoutPeers);
  auto mapping = StatusMapping::create(file.get());
  ASSERT_TRUE(mapping);
  write_everywhere((*mapping)->page());
  EXPECT_EQ((*mapping)->page().peers.back().gid.back(), 22u);
  EXPECT_EQ(word_at(file, protocol::kStatusBytesWithoutSecret - sizeof(uint64_t)), 21u);
}

TEST(StatusMapping, ShowsAllThatAnAgentOfBeforeSecretsKnows) {
  const UniqueFd file = file_of(protocol::kStatusBytesWithoutSecret);
  auto mapping = StatusMapping::create(file.get());
  ASSERT_TRUE(mapping);
  write_everywhere((*mapping)->page());
  EXPECT_EQ(word_at(file, protocol::kStatusBytesWithoutSecret - sizeof(uint64_t)), 21u);
}

TEST(StatusMapping, KeepsThePathsToItselfWhereAnOlderAgentHasNoRoomForThem) {
  const UniqueFd file = file_of(protocol::kStatusBytesWithoutPaths);
  auto mapping = StatusMapping::create(file.get());
  ASSERT_TRUE(mapping);
  write_everywhere((*mapping)->page());
  EXPECT_EQ((*mapping)->page().paths.back().numbers[0], 18u);
  EXPECT_EQ(word_at(file, kLastQpn), 17u);
}

TEST(StatusMapping, KeepsTheListOfObjectsToItselfWhereAnOlderAgentHasNoRoomForIt) {
  const UniqueFd file = file_of(protocol::kStatusBytesWithoutObjects);
  auto mapping = StatusMapping::create(file.get());
  ASSERT_TRUE(mapping);
  write_everywhere((*mapping)->page());
  EXPECT_EQ((*mapping)->page().objects.back().kind, 19u);
  EXPECT_EQ(word_at(file, offsetof(StatusPage, paths)), 18u);
}

TEST(StatusMapping, KeepsTheTracesToItselfWhereAnOlderAgentHasNoRoomForThem) {
  const UniqueFd file = file_of(protocol::kStatusBytesWithoutTraces);
  auto mapping = StatusMapping::create(file.get());
  ASSERT_TRUE(mapping);
  write_everywhere((*mapping)->page());
  EXPECT_EQ((*mapping)->page().traces.details.entries.back().check, 20u);
  EXPECT_EQ(word_at(file, protocol::kStatusBytesWithoutTraces - sizeof(protocol::ObjectStatus)), 19u);
}

TEST(StatusMapping, KeepsOctetsToItselfWhereAnOlderAgentHasNoRoomForThem) {
  const UniqueFd file = file_of(protocol::kStatusBytesWithoutMore);
  auto mapping = StatusMapping::create(file.get());
  ASSERT_TRUE(mapping);
  write_everywhere((*mapping)->page());
  EXPECT_EQ((*mapping)->page().more.back().numbers.back(), 21u);
  EXPECT_EQ(word_at(file, protocol::kStatusBytesWithoutMore - sizeof(uint64_t)), 20u);
}

TEST(StatusMapping, TrustsNoFileThatIsTooShortOrMayBecomeSo) {
  for (const UniqueFd& file : {file_of(4096), file_of(sizeof(StatusPage), F_SEAL_GROW), UniqueFd()}) {
    auto mapping = StatusMapping::create(file.get());
    ASSERT_TRUE(mapping);
    write_everywhere((*mapping)->page());
    if (file) {
      EXPECT_EQ(word_at(file, 0), 0u);
    }
  }
}

TEST(StatusMapping, ShowsNothingMoreOnceItIsDetached) {
  const UniqueFd file = file_of(sizeof(StatusPage));
  auto mapping = StatusMapping::create(file.get());
  ASSERT_TRUE(mapping);
  (*mapping)->detach();
  write_everywhere((*mapping)->page());
  EXPECT_EQ(word_at(file, kLastQpn), 0u);
}

}  // namespace
}  // namespace verbena::engine
