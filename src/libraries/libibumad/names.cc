// SPDX-License-Identifier: Apache-2.0
// Names of numbers in datagrams: umad_class_str(3) and related functions.
#include <cstdint>
#include <span>

#include <infiniband/umad.h>

#include "base/bytes.h"
#include "base/c_abi.h"

namespace {

struct Name {
  unsigned number;
  const char* text;
};

constexpr const char* kUnknown = "<unknown>";

const char* find(std::span<const Name> names, unsigned number, const char* otherwise) {
  for (const Name& each : names) {
    if (each.number == number) return each.text;
  }
  return otherwise;
}

enum Class : uint8_t {
  kSubnLid = 0x01,
  kSubnAdministration = 0x03,
  kConnection = 0x07,
  kSubnDirected = 0x81,
};

constexpr Name kClasses[] = {
    {kSubnLid, "Subn"},
    {kSubnDirected, "Subn"},
    {kSubnAdministration, "SubnAdm"},
    {0x04, "Perf"},
    {0x05, "BM"},
    {0x06, "DevMgt"},
    {kConnection, "ComMgt"},
    {0x08, "SNMP"},
    {0x10, "DevAdm"},
    {0x11, "BootMgt"},
    {0x12, "BIS"},
    {0x21, "CongestionManagment"},
};

// Exactly libibumad's texts: programs compare and print them.
constexpr Name kMethods[] = {
    {0x01, "Get"},  {0x02, "Set"},    {0x81, "GetResp"},    {0x03, "Send"},
    {0x05, "Trap"}, {0x06, "Report"}, {0x86, "ReportResp"}, {0x07, "TrapRepress"},
};
constexpr Name kAdministrationMethods[] = {
    {0x12, "GetTable"}, {0x92, "GetTableResp"}, {0x15, "Delete"},        {0x95, "DeleteResp"},
    {0x14, "GetMulti"}, {0x94, "GetMultiResp"}, {0x13, "GetTraceTable"},
};

constexpr Name kStatuses[] = {
    {1u << 2, "Bad Version"},
    {2u << 2, "Method not supported"},
    {3u << 2, "Method/Attribute combo not supported"},
    {7u << 2, "Invalid attribute/modifier field"},
};
constexpr Name kAdministrationStatuses[] = {
    {0, "Success"},
    {1, "No Resources"},
    {2, "Request Invalid"},
    {3, "No Records"},
    {4, "Too Many Records"},
    {5, "Invalid GID"},
    {6, "Insufficient Components"},
    {7, "Request Denied"},
    {8, "Priority Suggested"},
};

constexpr Name kAttributes[] = {{0x01, "Class Port Info"}, {0x02, "Notice"}, {0x03, "Inform Info"}};
constexpr Name kSubnAttributes[] = {
    {0x0010, "NodeDescription"},
    {0x0011, "NodeInfo"},
    {0x0012, "SwitchInfo"},
    {0x0014, "GUIDInfo"},
    {0x0015, "PortInfo"},
    {0x0016, "P_KeyTable"},
    {0x0017, "SLtoVLMappingTable"},
    {0x0018, "VLArbitrationTable"},
    {0x0019, "LinearForwardingTable"},
    {0x001A, "RandomForwardingTable"},
    {0x001B, "MulticastForwardingTable"},
    {0x001C, "LinkSpeedWidthPairsTable"},
    {0x001D, "VendorSpecificMadsTable"},
    {0x001E, "HierarchyInfo"},
    {0x0020, "SMInfo"},
    {0x0030, "VendorDiag"},
    {0x0031, "LedInfo"},
    {0x0032, "CableInfo"},
    {0x0033, "PortInfoExtended"},
};
constexpr Name kAdministrationAttributes[] = {
    {0x0011, "NodeRecord"},
    {0x0012, "PortInfoRecord"},
    {0x0013, "SLtoVLMappingTableRecord"},
    {0x0014, "SwitchInfoRecord"},
    {0x0015, "LinearForwardingTableRecord"},
    {0x0016, "RandomForwardingTableRecord"},
    {0x0017, "MulticastForwardingTableRecord"},
    {0x0018, "SMInfoRecord"},
    {0x0019, "LinkSpeedWidthPairsTableRecord"},
    {0x0020, "LinkRecord"},
    {0x0030, "GuidInfoRecord"},
    {0x0031, "ServiceRecord"},
    {0x0033, "P_KeyTableRecord"},
    {0x0035, "PathRecord"},
    {0x0036, "VLArbitrationTableRecord"},
    {0x0038, "MCMemberRecord"},
    {0x0039, "TraceRecord"},
    {0x003A, "MultiPathRecord"},
    {0x003B, "ServiceAssociationRecord"},
    {0x003C, "HierarchyInfoRecord"},
    {0x003D, "CableInfoRecord"},
    {0x003E, "PortInfoExtendedRecord"},
    {0x00F3, "InformInfoRecord"},
};
constexpr Name kConnectionAttributes[] = {
    {0x0010, "ConnectRequest"},
    {0x0011, "MsgRcptAck"},
    {0x0012, "ConnectReject"},
    {0x0013, "ConnectReply"},
    {0x0014, "ReadyToUse"},
    {0x0015, "DisconnectRequest"},
    {0x0016, "DisconnectReply"},
    {0x0017, "ServiceIDResReq"},
    {0x0018, "ServiceIDResReqResp"},
    {0x0019, "LoadAlternatePath"},
    {0x001A, "AlternatePathResponse"},
    {0x001B, "SuggestAlternatePath"},
    {0x001C, "SuggestPathResponse"},
};

std::span<const Name> attributes_of(uint8_t management_class) {
  switch (management_class) {
    case kSubnLid:
    case kSubnDirected:
      return kSubnAttributes;
    case kSubnAdministration:
      return kAdministrationAttributes;
    case kConnection:
      return kConnectionAttributes;
    default:
      return {};
  }
}

}  // namespace

VERBENA_ABI const char* umad_class_str(uint8_t management_class) {
  const bool is_vendors = (management_class >= 0x09 && management_class <= 0x0f) ||
                          (management_class >= 0x30 && management_class <= 0x4f);
  const bool is_application = management_class >= 0x10 && management_class <= 0x2f;
  const char* const otherwise = is_vendors ? "Vendor" : is_application ? "Application" : kUnknown;
  return find(kClasses, management_class, otherwise);
}

// The closing bracket is missing in libibumad, too.
VERBENA_ABI const char* umad_method_str(uint8_t management_class, uint8_t method) {
  const char* const common = find(kMethods, method, "<unknown");
  return management_class == kSubnAdministration ? find(kAdministrationMethods, method, common) : common;
}

VERBENA_ABI const char* umad_common_mad_status_str(__be16 status_be) {
  const unsigned status = verbena::byteswap(status_be);
  if ((status & 1) != 0) return "Busy";
  if ((status & 2) != 0) return "Redirection required";
  return find(kStatuses, status & 0x1c, "Success");
}

VERBENA_ABI const char* umad_sa_mad_status_str(__be16 status_be) {
  return find(kAdministrationStatuses, static_cast<unsigned>(verbena::byteswap(status_be)) >> 8,
              "Undefined Error");
}

VERBENA_ABI const char* umad_attribute_str(uint8_t management_class, __be16 attribute_be) {
  const unsigned attribute = verbena::byteswap(attribute_be);
  return find(attributes_of(management_class), attribute, find(kAttributes, attribute, kUnknown));
}
