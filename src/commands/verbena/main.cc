// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/commands.h"

int main(int argc, char** argv) {
  return verbena::commands::run_command_line(argc, argv);
}
