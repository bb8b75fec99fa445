#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pyverbs_with_dma_bufs.py RUN_TESTS [ARGUMENT...]: runs pyverbs' tests with a method that its DmaBufMR looks for in vain.

A DmaBufMR that has allocated its buffer calls add_ref() of it. The class DmaBuf has that method, but for Cython code only
that knows what it calls; since rdma-core 44 this code does not, and every such DmaBufMR ends in an AttributeError, whatever the
adapter and the machine. Here the method becomes one that Python finds.
"""

import ctypes
import gc
import os
import runpy
import sys

from pyverbs.dmabuf import DmaBuf

ADD_REF = 0  # its place among the class's methods for Cython


def show_add_ref():
    """As a class made by Cython takes no new attribute, it goes into the dictionary behind it."""
    python = ctypes.pythonapi
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    methods = python.PyCapsule_GetPointer(DmaBuf.__dict__["__pyx_vtable__"], None)
    address = ctypes.cast(methods, ctypes.POINTER(ctypes.c_void_p))[ADD_REF]
    add_ref = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object)(address)
    attributes, = gc.get_referents(DmaBuf.__dict__)
    attributes["add_ref"] = lambda buffer, region: add_ref(buffer, region)  # pylint: disable=unnecessary-lambda
    python.PyType_Modified(ctypes.py_object(DmaBuf))


if __name__ == "__main__":
    if not hasattr(DmaBuf, "add_ref"):
        show_add_ref()
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
