#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pyverbs_with_dma_bufs.py RUN_TESTS [ARGUMENT...]: runs pyverbs' tests with a method that its DmaBufMR needs but cannot find.

A DmaBufMR that has allocated its buffer calls the buffer's add_ref(). The class DmaBuf has this method, but only for Cython
code that knows the object's type. Since rdma-core 44 this code does not know the type, so every such DmaBufMR raises an
AttributeError, on any adapter and machine. This program makes the method visible to Python.
"""

import ctypes
import gc
import os
import runpy
import sys

from pyverbs.dmabuf import DmaBuf

ADD_REF = 0  # index of add_ref() in the class's table of Cython methods


def show_add_ref():
    """Puts add_ref() into the dictionary of DmaBuf, since classes made by Cython accept no new attributes."""
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
