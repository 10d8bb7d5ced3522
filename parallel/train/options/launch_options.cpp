#include "triax/parallel/train/options/option_groups.h"

namespace triax::parallel {

Settings launch_settings(LaunchOptions& o) {
  return SettingGroup("Ranks", OnResume::apart)
      .add("comm|backend|distributed-backend", "auto|nccl|mpi|threads",
           "how ranks run and communicate: MPI processes, NCCL, or threads of this process; auto: "
           "nccl where every rank has a GPU of its own, else mpi under a launcher",
           &o.comm, {.choices = {"auto", "nccl", "mpi", "threads"}})
      .add("ranks|world-size|nproc|nproc-per-node|num-gpus|ngpus|gpus|n-gpus", "N",
           "ranks to start as threads, with --comm threads", &o.ranks,
           {.range = {0, 4096}, .shown = "1", .derived = true})
      .add("device", "cpu|cuda|cuda:N",
           "device of all tensors; cuda: one GPU per rank of a host, in order", &o.device,
           {.on_resume = OnResume::free, .parity = true})
      .add(
          "device-map", "auto|FILE",
          "place layers on GPUs, in host memory and in files of one process: by free memory, or as "
          "a JSON file says ({\"block0\": 0, \"block1\": \"cpu\", \"\": \"disk\"})",
          &o.device_map, {.shown = "none"})
      .add("nondeterministic", "",
           "on GPUs: atomics and kernels chosen by timing; faster, but not bitwise reproducible",
           &o.nondeterministic, {.on_resume = OnResume::free});
}

}  // namespace triax::parallel
