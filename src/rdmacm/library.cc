// SPDX-License-Identifier: Apache-2.0
// librdmacm.so.1 is verbena_rdmacm as a whole; a shared library wants a source of its own.
