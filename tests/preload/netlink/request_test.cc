// SPDX-License-Identifier: Apache-2.0
#include <random>

#include <gtest/gtest.h>

#include "preload/netlink/message.h"
#include "preload/netlink/messages.h"

namespace verbena::rdma_netlink {
namespace {

constexpr Request::Header kHeader{RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET), NLM_F_REQUEST, 7};

Result<Request> parse(const Attributes& attributes) {
  return Request::parse(kHeader, attributes.bytes());
}

TEST(Request, IsOfAClientAndACommand) {
  const auto request = parse({});
  ASSERT_TRUE(request);
  EXPECT_EQ(request->client(), RDMA_NL_NLDEV);
  EXPECT_EQ(request->command(), RDMA_NLDEV_CMD_GET);
  EXPECT_FALSE(request->wants_dump());
  EXPECT_FALSE(request->has(RDMA_NLDEV_ATTR_DEV_INDEX));
  EXPECT_FALSE(request->u32(RDMA_NLDEV_ATTR_DEV_INDEX));
  EXPECT_FALSE(request->text(RDMA_NLDEV_ATTR_DEV_NAME));
}

TEST(Request, WantsADumpWithBothOfItsFlagsOnly) {
  const auto wants = [](uint16_t flags) {
    return Request::parse({kHeader.type, flags, 1}, {})->wants_dump();
  };
  EXPECT_TRUE(wants(NLM_F_REQUEST | NLM_F_DUMP));
  EXPECT_FALSE(wants(NLM_F_REQUEST | NLM_F_ROOT));
}

TEST(Request, HasItsAttributes) {
  Attributes attributes;
  attributes.put_u32(RDMA_NLDEV_ATTR_DEV_INDEX, 3).put_text(RDMA_NLDEV_ATTR_DEV_NAME, "rxe0");
  attributes.put_u8(RDMA_NLDEV_ATTR_DEV_DIM, 1).put_nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS, {});
  const auto request = parse(attributes);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->u32(RDMA_NLDEV_ATTR_DEV_INDEX), 3U);
  EXPECT_EQ(request->text(RDMA_NLDEV_ATTR_DEV_NAME), "rxe0");
  EXPECT_EQ(request->u8(RDMA_NLDEV_ATTR_DEV_DIM), 1U);
  EXPECT_TRUE(request->has(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS));
  EXPECT_TRUE(request->nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS).empty());
}

TEST(Request, PassesOverAttributesOfLaterKernels) {
  Attributes attributes;
  attributes.put_u32(RDMA_NLDEV_ATTR_MAX, 1).put_u32(0x3fff, 1);
  EXPECT_TRUE(parse(attributes));
}

TEST(Request, IsRefusedWithANumberOfAnotherSize) {
  EXPECT_EQ(parse(Attributes().put_u8(RDMA_NLDEV_ATTR_DEV_INDEX, 3)).error().code, EINVAL);
  EXPECT_EQ(parse(Attributes().put_u64(RDMA_NLDEV_ATTR_DEV_INDEX, 3)).error().code, EINVAL);
  EXPECT_EQ(parse(Attributes().put_u32(RDMA_NLDEV_ATTR_DEV_DIM, 1)).error().code, EINVAL);
}

TEST(Request, IsRefusedWithATextWithoutEnd) {
  const std::byte letters[] = {std::byte{'r'}, std::byte{'x'}, std::byte{'e'}, std::byte{'0'}};
  EXPECT_EQ(parse(Attributes().put(RDMA_NLDEV_ATTR_DEV_NAME, letters)).error().code, EINVAL);
  EXPECT_EQ(parse(Attributes().put(RDMA_NLDEV_ATTR_DEV_NAME, {})).error().code, EINVAL);
}

TEST(Request, IsRefusedWithALengthThatCannotBe) {
  for (const uint16_t length : std::initializer_list<uint16_t>{0, 1, 3, 9, 12, 0x7fff, 0xffff}) {
    Bytes bytes = Attributes().put_u32(RDMA_NLDEV_ATTR_DEV_INDEX, 3).bytes();
    std::memcpy(bytes.data(), &length, sizeof length);
    EXPECT_EQ(Request::parse(kHeader, bytes).error().code, EINVAL) << length;
  }
}

TEST(Request, ReadsNothingBeyondItsEndWhateverTheBytes) {
  auto random = [engine = std::mt19937(1)]() mutable { return static_cast<uint32_t>(engine()); };
  size_t taken = 0;
  for (int round = 0; round < 200'000; ++round) {
    // A separate allocation of the exact length, so that a sanitizer sees reads beyond it.
    Attributes attributes;
    for (unsigned left = random() % 4; left > 0; --left) {
      Bytes value(random() % 12);
      for (std::byte& byte : value) byte = static_cast<std::byte>(random() % 3);
      attributes.put(static_cast<uint16_t>(random() % (RDMA_NLDEV_ATTR_MAX + 2)), value);
    }
    Bytes bytes = attributes.bytes();
    for (unsigned changes = random() % 3; changes > 0 && !bytes.empty(); --changes) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    bytes.resize(bytes.size() - std::min<size_t>(bytes.size(), random() % 4));
    bytes.shrink_to_fit();
    const auto request = Request::parse(kHeader, bytes);
    if (!request) {
      EXPECT_EQ(request.error().code, EINVAL);
      continue;
    }
    ++taken;
    for (uint16_t type = 0; type < RDMA_NLDEV_ATTR_MAX; ++type) {
      const auto attribute = static_cast<rdma_nldev_attr>(type);
      const auto value = request->nest(attribute);
      const bool is_inside = value.empty() || (value.data() >= bytes.data() &&
                                               value.data() + value.size() <= bytes.data() + bytes.size());
      ASSERT_TRUE(is_inside);
      if (request->has(attribute)) request->text(attribute);
    }
  }
  EXPECT_GT(taken, 20'000U);  // so that accepted requests are tested as well
}

}  // namespace
}  // namespace verbena::rdma_netlink
