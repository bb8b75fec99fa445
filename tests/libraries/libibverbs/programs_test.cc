// SPDX-License-Identifier: Apache-2.0
// Programs built against rdma-core load and use our libraries unchanged.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "libraries/libibverbs/command.h"

namespace verbena {
namespace {

// First the library with the fake provider, then the stand-ins for drivers' libraries.
const std::string kWithFake =
    "env -u LD_PRELOAD LD_BIND_NOW=1 LD_LIBRARY_PATH=" VERBENA_FAKE_LIBRARIES ":" VERBENA_LIBRARIES " ";

bool exists(const std::string& path) {
  return std::filesystem::exists(path);
}

// Returns the installed programs of ibverbs-utils, perftest and rdmacm-utils, and the modules of pyverbs.
std::vector<std::string> installed_programs() {
  std::vector<std::string> programs;
  for (const char* name : {"ibv_asyncwatch",
                           "ibv_devices",
                           "ibv_devinfo",
                           "ibv_rc_pingpong",
                           "ibv_srq_pingpong",
                           "ibv_uc_pingpong",
                           "ibv_ud_pingpong",
                           "ibv_xsrq_pingpong",
                           "ib_atomic_bw",
                           "ib_atomic_lat",
                           "ib_read_bw",
                           "ib_read_lat",
                           "ib_send_bw",
                           "ib_send_lat",
                           "ib_write_bw",
                           "ib_write_lat",
                           "raw_ethernet_bw",
                           "raw_ethernet_burst_lat",
                           "raw_ethernet_fs_rate",
                           "raw_ethernet_lat",
                           "cmtime",
                           "mckey",
                           "rcopy",
                           "rdma_client",
                           "rdma_server",
                           "rdma_xclient",
                           "rdma_xserver",
                           "riostream",
                           "rping",
                           "rstream",
                           "ucmatose",
                           "udaddy",
                           "udpong"}) {
    const std::string path = std::string("/usr/bin/") + name;
    if (exists(path)) programs.push_back(path);
  }
  const std::string pyverbs = "/usr/lib/python3/dist-packages/pyverbs";
  if (exists(pyverbs)) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(pyverbs)) {
      if (entry.path().extension() == ".so") programs.push_back(entry.path());
    }
  }
  return programs;
}

// Symbols of Python are found in the interpreter, to which modules are not linked.
bool concerns_us(const std::string& complaint) {
  if (complaint.find("Py") != std::string::npos) return false;
  return complaint.find("undefined symbol") != std::string::npos ||
         complaint.find("not found") != std::string::npos ||
         complaint.find("no version information") != std::string::npos;
}

TEST(Programs, FindEverySymbolTheyWereLinkedTo) {
  const auto programs = installed_programs();
  if (programs.empty()) GTEST_SKIP() << "none is installed";
  for (const std::string& program : programs) {
    std::istringstream lines(run_command(kWithFake + "ldd -r " + program).output);
    std::string line;
    bool uses_ours = false;
    while (std::getline(lines, line)) {
      EXPECT_FALSE(concerns_us(line)) << program << ": " << line;
      uses_ours = uses_ours || line.find(VERBENA_FAKE_LIBRARIES "/libibverbs.so.1") != std::string::npos;
    }
    EXPECT_TRUE(uses_ours || program.ends_with(".so") || program.find("/r") != std::string::npos) << program;
  }
}

// A program may be linked to a driver of rdma-core (DPDK to libmlx4). The driver loads and registers itself,
// without effect.
TEST(Programs, DriversOfRdmaCoreLoad) {
  const std::string directory = "/usr/lib/" VERBENA_MULTIARCH;
  std::vector<std::string> drivers = {directory + "/libmlx4.so.1"};
  if (exists(directory + "/libibverbs")) {
    for (const auto& entry : std::filesystem::directory_iterator(directory + "/libibverbs")) {
      drivers.push_back(entry.path());
    }
  }
  std::erase_if(drivers, [](const std::string& driver) { return !exists(driver); });
  if (drivers.empty()) GTEST_SKIP() << "none is installed";
  for (const std::string& driver : drivers) {
    const CommandResult result = run_command(kWithFake + "LD_PRELOAD=" + driver + " ibv_devices");
    EXPECT_EQ(result.exit_code, 0) << driver;
    EXPECT_EQ(result.output.find("rror"), std::string::npos) << driver << ": " << result.output;
    EXPECT_NE(result.output.find("rxe_lo"), std::string::npos) << driver << ": " << result.output;
  }
}

TEST(Programs, ACClientGoesThrough) {
  const CommandResult result = run_command(kWithFake + VERBENA_C_CLIENT);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(result.output, "went through\n");
}

TEST(Programs, IbvDevicesShowsTheDevices) {
  if (!exists("/usr/bin/ibv_devices")) GTEST_SKIP() << "ibverbs-utils is not installed";
  const CommandResult result = run_command(kWithFake + "ibv_devices");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.output.find("rxe_eth0"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("020000fffe000001"), std::string::npos) << result.output;
}

TEST(Programs, IbvDevinfoShowsPortAndGids) {
  if (!exists("/usr/bin/ibv_devinfo")) GTEST_SKIP() << "ibverbs-utils is not installed";
  const CommandResult result = run_command(kWithFake + "ibv_devinfo -v -d rxe_eth0");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const char* line : {"hca_id:\trxe_eth0", "state:\t\t\tPORT_ACTIVE (4)", "active_mtu:\t\t4096 (5)",
                           "link_layer:\t\tEthernet", "fe80::1, RoCE v2", "::ffff:10.0.0.1, RoCE v2"}) {
    EXPECT_NE(result.output.find(line), std::string::npos) << line << "\nis not in\n" << result.output;
  }
}

TEST(Programs, PyverbsOpensTheDevice) {
  if (!exists("/usr/lib/python3/dist-packages/pyverbs")) GTEST_SKIP() << "python3-pyverbs is not installed";
  const CommandResult result = run_command(kWithFake +
                                           R"(/usr/bin/python3 -c "
import pyverbs.device as d, pyverbs.pd as p, pyverbs.mr as m, pyverbs.enums as e
import pyverbs.providers.mlx5.mlx5dv, pyverbs.providers.efa.efadv
with d.Context(name='rxe_lo') as context:
    print(context.query_port(1).state == e.IBV_PORT_ACTIVE, context.query_gid(1, 1).gid)
    print(context.query_gid_type(1, 0), len(context.query_gid_table(16)))
    with p.PD(context) as pd, m.MR(pd, 100, e.IBV_ACCESS_LOCAL_WRITE) as mr:
        print(mr.lkey != mr.rkey)
")");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(result.output,
            "True 0000:0000:0000:0000:0000:ffff:0a00:0001\n"
            "1 2\n"
            "True\n");
}

}  // namespace
}  // namespace verbena
