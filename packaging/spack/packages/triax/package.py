# SPDX-FileCopyrightText: 2026 The triax authors
# SPDX-License-Identifier: Apache-2.0

import pathlib

from spack.package import *


class Triax(CMakePackage, CudaPackage):
    """A deep-learning framework in C++20 with built-in 3D parallelism: any mesh trains the same model."""

    git = pathlib.Path(__file__).resolve().parents[4].as_uri()  # the clone that this repository of recipes is in

    license("Apache-2.0")

    version("main", branch="main")

    variant("mpi", default=True, description="Ranks as processes over MPI")
    variant("programs", default=True, description="minigpt, triax-llama and triax-resnet")
    variant("shared", default=False, description="Shared libraries")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("fmt@9:10")
    depends_on("nlohmann-json@3.11:")
    depends_on("tomlplusplus@3.3:")
    depends_on("pcre2", when="+programs")
    depends_on("utf8proc", when="+programs")
    depends_on("mpi@3.1:", when="+mpi")
    depends_on("cuda@13:", when="+cuda")
    depends_on("cudnn@9.10.2:", when="+cuda")
    depends_on("nccl@2.28:", when="+cuda")

    for needed in ("googletest", "dlpack", "benchmark"):
        depends_on(needed, type="test")

    conflicts("%gcc@:11", msg="triax is C++20 and needs g++ 12 or later")
    conflicts("target=aarch64:", msg="triax has kernels for x86-64")

    generator("ninja")

    def cmake_args(self):
        args = [
            self.define("TRIAX_TESTS", self.run_tests),
            self.define_from_variant("TRIAX_EXAMPLES", "programs"),
            self.define("TRIAX_MPI", "ON" if self.spec.satisfies("+mpi") else "OFF"),
            self.define("TRIAX_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define("CMAKE_UNITY_BUILD", True),
        ]
        if self.spec.satisfies("+cuda") and not self.spec.satisfies("cuda_arch=none"):
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return args
