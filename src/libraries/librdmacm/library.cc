// SPDX-License-Identifier: Apache-2.0
// An empty source: librdmacm.so.1 consists of verbena_rdmacm and verbena_rsockets, and a shared library needs
// a source of its own.
