// SPDX-License-Identifier: Apache-2.0
// Verbs over ports that are not the agent's socket: the engine uses the port factory that it is given.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "adapter/net/sim/loopback_port.h"
#include "adapter/objects/support/endpoint.h"
#include "adapter/process/engine.h"
#include "base/route_search.h"

namespace verbena::adapter::testing {
namespace {

// Ports that deliver a shard's packets back to it, with a maximum payload per packet.
class OverLoopbackPorts : public ::testing::Test {
 protected:
  OverLoopbackPorts() {
    ::setenv("VERBENA_LOCAL", "off", 1);
    engine::Engine::set_port_factory([this](net::Ways, net::PortCounters& counters) -> Result<net::PortList> {
      counters_.push_back(&counters);
      net::PortList ports;
      ports.push_back(std::make_unique<net::LoopbackPort>(counters, kMaxPayload));
      return ports;
    });
  }
  ~OverLoopbackPorts() override {
    engine::Engine::set_port_factory(net::open_ports);
    ::unsetenv("VERBENA_LOCAL");
  }

  static constexpr uint32_t kMaxPayload = 2048;
  std::vector<net::PortCounters*> counters_;  // of each port
};

TEST_F(OverLoopbackPorts, MessagesGoByTheFactorysPorts) {
  Pair pair;
  ASSERT_EQ(counters_.size(), 1u);
  fill_random(pair.a.bytes(), 7);
  const size_t bytes = pair.a.bytes().size();
  const ibv_sge from = pair.a.piece(0, bytes);
  ASSERT_EQ(pair.b.post_receive(2, pair.b.piece(0, bytes)), 0);
  ASSERT_EQ(pair.a.post_send(send_request(1), {&from, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.completion().byte_len, bytes);
  EXPECT_TRUE(std::ranges::equal(pair.a.bytes(), pair.b.bytes()));
  EXPECT_GE(counters_.front()->received_packets, bytes / 1024);
}

// The kernel refuses a path MTU larger than the port's, too (rxe_qp_chk_attr()).
TEST_F(OverLoopbackPorts, APathMtuLargerThanTheRoutesIsRefused) {
  Options options;
  options.mtu = IBV_MTU_4096;
  Endpoint endpoint(options);
  ibv_qp_attr attr = init_attributes(options);
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  attr = rtr_attributes(endpoint, endpoint.address());
  EXPECT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, rtr_mask(IBV_QPT_RC)), EINVAL);
  EXPECT_EQ(endpoint.state(), IBV_QPS_INIT);
  attr.path_mtu = IBV_MTU_2048;
  EXPECT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, rtr_mask(IBV_QPT_RC)), 0) << "what the route carries";
}

// Ports that tell whether the hardware address of a next hop is known, and record how long calls would wait
// for it.
class OverSearchingPorts : public ::testing::Test {
 protected:
  OverSearchingPorts() {
    ::setenv("VERBENA_LOCAL", "off", 1);
    engine::Engine::set_port_factory([this](net::Ways, net::PortCounters& counters) -> Result<net::PortList> {
      net::PortList ports;
      ports.push_back(std::make_unique<SearchingPort>(*this, counters));
      return ports;
    });
  }
  ~OverSearchingPorts() override {
    engine::Engine::set_port_factory(net::open_ports);
    ::unsetenv("VERBENA_LOCAL");
  }

  // Connects a QP to itself. Returns how long ibv_modify_qp() would have waited.
  Duration patience_of_connecting() {
    Endpoint endpoint;
    patience_ = Duration(-1);
    endpoint.connect(endpoint.address());
    return patience_;
  }
  bool search() {
    Endpoint endpoint;
    return search_route(endpoint.context.get(), rtr_attributes(endpoint, endpoint.address()).ah_attr);
  }

  bool is_known_ = true;

 private:
  class SearchingPort : public net::LoopbackPort {
   public:
    SearchingPort(OverSearchingPorts& test, net::PortCounters& counters)
        : LoopbackPort(counters), test_(test) {}
    Result<void> check(const roce::Path&, Duration patience) const override {
      test_.patience_ = patience;
      if (test_.is_known_) return {};
      return fail(ETIMEDOUT);
    }

   private:
    OverSearchingPorts& test_;
  };

  Duration patience_{};
};

TEST_F(OverSearchingPorts, ConnectingWaitsForTheNextHopUnlessTheThreadHasJustFoundIt) {
  EXPECT_EQ(patience_of_connecting(), transport::kNeighbourPatience);
  EXPECT_TRUE(search());
  EXPECT_EQ(patience_of_connecting(), Duration(0)) << "the peer may be silent again";
  EXPECT_EQ(patience_of_connecting(), transport::kNeighbourPatience) << "a search counts for one call";
}

TEST_F(OverSearchingPorts, AfterASearchThatFailedConnectingWaits) {
  is_known_ = false;
  EXPECT_FALSE(search());
  is_known_ = true;
  EXPECT_EQ(patience_of_connecting(), transport::kNeighbourPatience);
}

TEST_F(OverSearchingPorts, ASearchOfAnotherThreadDoesNotCount) {
  std::thread([this] { EXPECT_TRUE(search()); }).join();
  EXPECT_EQ(patience_of_connecting(), transport::kNeighbourPatience);
}

}  // namespace
}  // namespace verbena::adapter::testing
