// SPDX-License-Identifier: Apache-2.0
// Functions that need no agent return the same as those of Debian's library.
#include <cerrno>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/umad.h>
#include <sys/socket.h>
#include <unistd.h>

namespace verbena {
namespace {

class Library {
 public:
  // Loaded for good (RTLD_NODELETE): our library has objects that live as long as the process.
  explicit Library(const char* path) : handle_(::dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {}
  ~Library() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  bool is_there() const { return handle_ != nullptr; }
  template <class Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(handle_, name));
  }

 private:
  void* handle_;
};

constexpr uint8_t kClasses[] = {0x01, 0x03, 0x04, 0x07, 0x81};

class BesideDebians : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(ours_.is_there()) << ::dlerror();
    if (!theirs_.is_there()) GTEST_SKIP() << "libibumad3 is not installed";
  }
  template <class Function>
  std::pair<Function*, Function*> both(const char* name) {
    return {ours_.find<Function>(name), theirs_.find<Function>(name)};
  }

  const Library ours_{VERBENA_IBUMAD};
  const Library theirs_{SYSTEM_IBUMAD};
};

TEST_F(BesideDebians, ClassesHaveTheSameNames) {
  const auto [ours, theirs] = both<const char*(uint8_t)>("umad_class_str");
  for (unsigned each = 0; each < 256; ++each) {
    EXPECT_STREQ(ours(static_cast<uint8_t>(each)), theirs(static_cast<uint8_t>(each))) << each;
  }
}

TEST_F(BesideDebians, MethodsHaveTheSameNames) {
  const auto [ours, theirs] = both<const char*(uint8_t, uint8_t)>("umad_method_str");
  for (const uint8_t management_class : kClasses) {
    for (unsigned each = 0; each < 256; ++each) {
      const auto method = static_cast<uint8_t>(each);
      EXPECT_STREQ(ours(management_class, method), theirs(management_class, method)) << each;
    }
  }
}

TEST_F(BesideDebians, AttributesHaveTheSameNames) {
  const auto [ours, theirs] = both<const char*(uint8_t, uint16_t)>("umad_attribute_str");
  for (const uint8_t management_class : kClasses) {
    for (unsigned each = 0; each < 65536; ++each) {
      const auto attribute = static_cast<uint16_t>(each);
      ASSERT_STREQ(ours(management_class, attribute), theirs(management_class, attribute)) << each;
    }
  }
}

TEST_F(BesideDebians, StatusesHaveTheSameNames) {
  for (const char* name : {"umad_common_mad_status_str", "umad_sa_mad_status_str"}) {
    const auto [ours, theirs] = both<const char*(uint16_t)>(name);
    for (unsigned each = 0; each < 65536; ++each) {
      const auto status = static_cast<uint16_t>(each);
      ASSERT_STREQ(ours(status), theirs(status)) << name << ' ' << each;
    }
  }
}

TEST_F(BesideDebians, AddressesAreWrittenTheSameWay) {
  const auto set_addr = both<int(void*, int, int, int, int)>("umad_set_addr");
  const auto set_grh = both<int(void*, void*)>("umad_set_grh");
  ib_mad_addr grh{};
  std::memset(grh.gid, 0x5a, sizeof grh.gid);
  grh.flow_label = 0x12345;
  grh.hop_limit = 9;
  grh.traffic_class = 3;
  ib_user_mad one{}, other{};
  for (auto [mad, addr, with_grh] :
       {std::tuple(&one, set_addr.first, set_grh.first), {&other, set_addr.second, set_grh.second}}) {
    EXPECT_EQ(addr(mad, 0x1234, 1, 3, static_cast<int>(0x80010000)), 0);
    EXPECT_EQ(with_grh(mad, &grh), 0);
  }
  EXPECT_EQ(std::memcmp(&one, &other, sizeof one), 0);
}

TEST_F(BesideDebians, ListsAreSortedTheSameWay) {
  for (const Library* library : {&ours_, &theirs_}) {
    auto* const sort = library->find<int(umad_device_node**, size_t)>("umad_sort_ca_device_list");
    umad_device_node c{nullptr, "c"}, a{&c, "a"}, b{&a, "b"};
    umad_device_node* head = &b;
    EXPECT_EQ(sort(&head, 2), EINVAL);
    head = &b;
    b.next = &a, a.next = &c, c.next = nullptr;
    EXPECT_EQ(sort(&head, 0), 0);
    EXPECT_EQ(head, &a);
    EXPECT_EQ(a.next, &b);
    EXPECT_EQ(b.next, &c);
    EXPECT_EQ(c.next, nullptr);
  }
}

// A message of several datagrams stays in the queue until the caller's buffer is large enough (man
// umad_recv).
TEST_F(BesideDebians, AMessageThatDoesNotFitSaysHowLongItIs) {
  auto* const receive = ours_.find<int(int, void*, int*, int)>("umad_recv");
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
  std::string message(sizeof(ib_user_mad) + 600, 'x');
  auto& sent = *reinterpret_cast<ib_user_mad*>(message.data());
  sent.agent_id = 5;
  sent.length = static_cast<uint32_t>(message.size());
  ASSERT_EQ(::send(ends[0], message.data(), message.size(), 0), static_cast<ssize_t>(message.size()));
  std::string buffer(sizeof(ib_user_mad) + 600, '\0');
  int length = 256;
  EXPECT_EQ(receive(ends[1], buffer.data(), &length, 100), -ENOSPC);
  EXPECT_EQ(length, 600);
  EXPECT_EQ(receive(ends[1], buffer.data(), &length, 100), 5);
  EXPECT_EQ(buffer, message);
  EXPECT_EQ(receive(ends[1], buffer.data(), &length, 0), -EAGAIN);
  EXPECT_EQ(receive(ends[1], buffer.data(), &length, 1), -ETIMEDOUT);
  ::close(ends[0]);
  EXPECT_EQ(receive(ends[1], buffer.data(), &length, 100), -EIO);
  ::close(ends[1]);
}

}  // namespace
}  // namespace verbena
