// SPDX-License-Identifier: Apache-2.0
// Datagrams that violate the protocol, from a plain UDP socket and a bare UD queue pair; and a neighbor that
// does not answer.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "adapter/objects/support/environment.h"
#include "libraries/rsockets/address.h"
#include "libraries/rsockets/support/rsockets.h"

namespace verbena::rsockets::testing {
namespace {

// Requests the QPN of a datagram rsocket as its peers do: with a datagram to its UDP socket.
uint32_t queue_pair_of(in_port_t port) {
  const int plain = ::socket(AF_INET, SOCK_DGRAM, 0);
  Loopback there(AF_INET, port);
  std::array<std::byte, UdpHeader::kMaxBytes> bytes;
  const UdpHeader question{UdpHeader::Kind::kData, 0, Address::any(AF_INET)};
  const size_t length = question.encode(bytes.data());
  EXPECT_EQ(::sendto(plain, bytes.data(), length, 0, there.get(), there.size()),
            static_cast<ssize_t>(length));
  const ssize_t got = ::recv(plain, bytes.data(), bytes.size(), 0);
  ::close(plain);
  const auto answer =
      UdpHeader::decode({bytes.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))}, AF_INET);
  EXPECT_TRUE(answer);
  return answer ? answer->qpn : 0;
}

class BareSender {
 public:
  explicit BareSender(in_port_t to) : number_(queue_pair_of(to)) {
    Loopback there(AF_INET, to);
    EXPECT_EQ(::rdma_create_id(nullptr, &id_, nullptr, RDMA_PS_UDP), 0) << errno;
    EXPECT_EQ(::rdma_resolve_addr(id_, nullptr, there.get(), 2000), 0) << errno;
    EXPECT_EQ(::rdma_resolve_route(id_, 2000), 0) << errno;
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_UD;
    attributes.sq_sig_all = 1;
    attributes.cap = {64, 1, 1, 1, 64};
    EXPECT_EQ(::rdma_create_qp(id_, nullptr, &attributes), 0) << errno;
    const ibv_sa_path_rec& path = *id_->route.path_rec;
    ibv_ah_attr way{};
    way.is_global = 1;
    way.grh.dgid = path.dgid;
    way.grh.hop_limit = 64;
    way.port_num = id_->port_num;
    for (uint8_t index = 0; index < 16; ++index) {
      ibv_gid gid;
      if (ibv_query_gid(id_->verbs, id_->port_num, index, &gid) == 0 &&
          std::memcmp(&gid, &path.sgid, sizeof gid) == 0) {
        way.grh.sgid_index = index;
      }
    }
    handle_ = ibv_create_ah(id_->qp->pd, &way);
    EXPECT_NE(handle_, nullptr) << errno;
  }
  ~BareSender() {
    if (handle_ != nullptr) ibv_destroy_ah(handle_);
    ::rdma_destroy_qp(id_);
    ::rdma_destroy_id(id_);
  }
  BareSender(const BareSender&) = delete;
  BareSender& operator=(const BareSender&) = delete;

  void send(const std::string& bytes) {
    ibv_sge piece{reinterpret_cast<uintptr_t>(bytes.data()), static_cast<uint32_t>(bytes.size()), 0};
    ibv_send_wr request{}, *bad;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_INLINE;
    request.wr.ud = {handle_, number_, RDMA_UDP_QKEY};
    ASSERT_EQ(ibv_post_send(id_->qp, &request, &bad), 0);
  }
  ibv_context& device() { return *id_->verbs; }

 private:
  const uint32_t number_;
  rdma_cm_id* id_ = nullptr;
  ibv_ah* handle_ = nullptr;
};

std::string with_header(const Address& source, const std::string& payload) {
  std::string bytes(DatagramHeader::kMaxBytes, '\0');
  bytes.resize(DatagramHeader{source}.encode(reinterpret_cast<std::byte*>(bytes.data())));
  return bytes + payload;
}

struct HostileDatagrams : ::testing::Test {
  static Rsocket bound() {
    Rsocket socket(::rsocket(AF_INET, SOCK_DGRAM, 0));
    Loopback here(AF_INET);
    EXPECT_EQ(::rbind(socket, here.get(), here.size()), 0) << errno;
    return socket;
  }
  void SetUp() override {
    // Reads the empty payload of the request.
    EXPECT_EQ(receive_text(victim), "");
  }

  const Rsocket victim = bound();
  BareSender sender{port_of(victim)};
  const Address source = Address::ipv4(htonl(INADDR_LOOPBACK), htons(7));
};

TEST_F(HostileDatagrams, GoodOnesAreUnderstood) {
  sender.send(with_header(source, "good"));
  EXPECT_EQ(receive_text(victim), "good");
}

TEST_F(HostileDatagrams, WithoutAHeaderAreNotHeard) {
  sender.send("x");
  sender.send(with_header(source, "good"));
  EXPECT_EQ(receive_text(victim), "good");
}

// A program with an IPv4 socket has room for IPv4 addresses only, and uses the length that it is given.
TEST_F(HostileDatagrams, InTheNameOfAnotherFamilyAreNotHeard) {
  sender.send(with_header(Address::ipv6(in6addr_loopback, htons(7)), "bad"));
  sender.send(with_header(source, "good"));
  EXPECT_EQ(receive_text(victim), "good");
}

// As with UDP: a connected socket receives from its peer only.
TEST_F(HostileDatagrams, InTheNameOfOthersAreNotHeardByOneThatIsConnected) {
  Loopback there(AF_INET, source.port());
  ASSERT_EQ(::rconnect(victim, there.get(), there.size()), 0) << errno;
  sender.send(with_header(Address::ipv4(source.v4().sin_addr.s_addr, htons(8)), "bad"));
  sender.send(with_header(Address::ipv4(htonl(INADDR_LOOPBACK + 1), source.port()), "bad"));
  sender.send(with_header(source, "good"));
  EXPECT_EQ(receive_text(victim), "good");
}

// Delivers the completion of the first one-byte datagram again and again.
struct Flood {
  static int poll(ibv_cq* queue, int count, ibv_wc* completions) {
    if (queue == flooded && left > 0) {
      --left;
      std::fill_n(completions, count, again);
      return count;
    }
    const int got = real(queue, count, completions);
    for (int i = 0; i < got && flooded == nullptr; ++i) {
      if (completions[i].opcode != IBV_WC_RECV || completions[i].byte_len != 41) continue;
      flooded = queue;
      again = completions[i];
    }
    return got;
  }

  static inline int (*real)(ibv_cq*, int, ibv_wc*) = nullptr;
  static inline ibv_cq* flooded = nullptr;
  static inline ibv_wc again;
  static inline int left = 100000;
};

TEST_F(HostileDatagrams, WithoutEndAreTakenInTurnsWithWhatTheProgramDoes) {
  auto& poll = sender.device().ops.poll_cq;
  Flood::real = std::exchange(poll, Flood::poll);
  sender.send("x");
  while (Flood::flooded == nullptr) poll_for(victim, POLLIN, 0);
  EXPECT_EQ(poll_for(victim, POLLIN, 0), 0);
  EXPECT_GT(Flood::left, 0);
  poll = Flood::real;
}

// While set, libibverbs creates no completion channels. The attempts are counted.
std::atomic<bool> has_no_channels{false};
std::atomic<int> attempts{0};

}  // namespace
}  // namespace verbena::rsockets::testing

// Interposes the function of libibverbs.
extern "C" [[gnu::visibility("default")]] ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  using namespace verbena::rsockets::testing;
  if (has_no_channels) {
    ++attempts;
    errno = ENODEV;
    return nullptr;
  }
  const auto own = reinterpret_cast<ibv_comp_channel* (*)(ibv_context*)>(
      ::dlvsym(RTLD_NEXT, "ibv_create_comp_channel", "IBVERBS_1.0"));
  return own(context);
}

namespace verbena::rsockets::testing {
namespace {

// Each attempt takes a while, in the thread that serves all rsockets.
TEST(UnanswerableDatagrams, CostFewAttempts) {
  constexpr int kDatagrams = 100;
  const Rsocket victim = HostileDatagrams::bound();
  Loopback there(AF_INET, port_of(victim));
  const int plain = ::socket(AF_INET, SOCK_DGRAM, 0);
  std::array<std::byte, UdpHeader::kMaxBytes> bytes;
  const size_t length = UdpHeader{UdpHeader::Kind::kData, 0, Address::any(AF_INET)}.encode(bytes.data());
  has_no_channels = true;
  for (int i = 0; i < kDatagrams; ++i) {
    EXPECT_EQ(::sendto(plain, bytes.data(), length, 0, there.get(), there.size()),
              static_cast<ssize_t>(length));
  }
  EXPECT_TRUE(test::eventually([&] {
    int unread = -1;
    return ::ioctl(victim, FIONREAD, &unread) == 0 && unread == 0;
  }));
  has_no_channels = false;
  EXPECT_GE(attempts, 1);
  EXPECT_LT(attempts, kDatagrams / 2);
  EXPECT_EQ(::rsendto(victim, "x", 1, 0, there.get(), there.size()), 1) << "the program tries again";
  ::close(plain);
}

// Waits until the thread sleeps.
void await_sleep(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
  for (std::string line; std::getline(std::ifstream(path), line);) {
    if (line[line.rfind(')') + 2] == 'S') return;
    std::this_thread::yield();
  }
}

// Datagrams to a neighbor that does not answer wait in the kernel. When its buffer is full, further sends to
// that neighbor block.
TEST(SilentNeighbour, HoldsUpNobodyButWhoSendsToIt) {
  const auto run = [](const char* command) {
    if (std::system(command) != 0) throw std::runtime_error(command);  // NOLINT: the test's own process
  };
  const auto make_cable = [&] {
    run("ip link add near type veth peer name far && ip addr add 10.47.0.1/24 dev near && ip link set near "
        "up &&"
        " ip link set far up && echo 600000 > /proc/sys/net/ipv4/neigh/near/retrans_time_ms");
  };
  adapter::testing::isolated(
      [&] {
        const Rsocket socket(::rsocket(AF_INET, SOCK_DGRAM, 0));
        set_option(socket, SOL_SOCKET, SO_SNDBUF, 1);  // the minimum
        sockaddr_in silent{AF_INET, htons(7), {inet_addr("10.47.0.99")}, {}};
        const auto send = [&](int flags) {
          return ::rsendto(socket, "x", 1, flags, reinterpret_cast<sockaddr*>(&silent), sizeof silent);
        };
        while (send(MSG_DONTWAIT) == 1) {
        }
        ASSERT_EQ(errno, EAGAIN);
        std::promise<pid_t> begun;
        std::thread sender([&] {
          begun.set_value(::gettid());
          EXPECT_EQ(send(0), 1) << errno;
        });
        await_sleep(begun.get_future().get());
        auto other = std::async(std::launch::async, [&] { return option(socket, SOL_RDMA, RDMA_SQSIZE); });
        EXPECT_EQ(other.wait_for(std::chrono::seconds(10)), std::future_status::ready);
        run("ip neigh replace 10.47.0.99 lladdr 02:00:00:00:00:99 dev near nud permanent");
        sender.join();
      },
      make_cable);
}

}  // namespace
}  // namespace verbena::rsockets::testing
