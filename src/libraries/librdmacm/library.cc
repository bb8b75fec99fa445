// SPDX-License-Identifier: Apache-2.0
// librdmacm.so.1 is verbena_rdmacm and verbena_rsockets as a whole; a shared library wants a source of its
// own.
