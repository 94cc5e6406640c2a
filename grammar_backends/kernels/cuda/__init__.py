"""The CUDA kernel: one source, compiled by NVRTC on first use, launched through the driver.

::

    apply_bitmask.cu    the kernel
    nvrtc.py            source to images: what the device runs, and what an older driver still takes
    driver.py           the few functions of the CUDA driver that are used, as Python calls that raise
    launcher.py         which entry point, which grid; apply_by_cuda

NVRTC and no precompiled image, because a torch that has CUDA brings NVRTC along: nothing is added to the wheel, no
compiler is needed, and the image is made for the very device, also for one that is newer than this package.
"""
