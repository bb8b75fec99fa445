// SPDX-License-Identifier: Apache-2.0
#include "tools/verbena/commands.h"

int main(int argc, char** argv) {
  return verbena::tools::run_command_line(argc, argv);
}
