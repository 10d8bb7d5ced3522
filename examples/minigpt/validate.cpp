#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "core/check.h"
#include "examples/minigpt/config.h"
#include "parallel/comm/launch/devices.h"
#include "parallel/mesh.h"
#include "parallel/pipeline/partition.h"

namespace triax::minigpt {

namespace {

// The divisors of n that lie nearest to `wanted`, at most `count`, ascending.
std::vector<int64_t> nearest_divisors(int64_t n, int64_t wanted, size_t count) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    divisors.push_back(d);
    if (d != n / d) divisors.push_back(n / d);
  }
  auto distance = [&](int64_t d) { return d > wanted ? d - wanted : wanted - d; };
  std::sort(divisors.begin(), divisors.end(),
            [&](int64_t a, int64_t b) { return distance(a) < distance(b); });
  divisors.resize(std::min(divisors.size(), count));
  std::sort(divisors.begin(), divisors.end());
  return divisors;
}

void check_built(const TrainConfig& c) {
  check_input(c.precision == "fp16" || c.loss_scale == 0, Exit::config,
              "loss-scale={} with precision={}\n  Only fp16 has gradients that need it. Leave it "
              "out, or add --precision fp16.",
              c.loss_scale, c.precision);
}

/// What a captured step cannot hold: the host's part of it, and layers that wait for each other.
void check_graph(const TrainConfig& c) {
  if (!c.graph) return;
  auto without = [](bool fine, const std::string& flag, const char* why) {
    check_input(fine, Exit::config, "graph with {}\n  {}. Leave --graph out, or change that.", flag,
                why);
  };
  without(c.device != "cpu", "device=cpu", "Only GPUs have graphs");
  without(c.mesh.pp == 1, fmt::format("pp={}", c.mesh.pp), "Stages wait for each other");
  without(c.mesh.zero < 3, fmt::format("zero={}", c.mesh.zero),
          "ZeRO-3 gives weights back and gets others");
  without(c.offload == "off", "offload=" + c.offload, "The host updates the weights");
  without(!c.ledger, "ledger", "It counts what the host asks for, which is once");
}

void check_model(const ModelConfig& m) {
  double width = double(m.width), parameters = double(m.layers) * 12 * width * width;
  check_input(parameters < 1e15, Exit::config,
              "layers={} of width={} are {:.1e} parameters\n"
              "  Expected fewer than 1e15 (12 x layers x width squared).",
              m.layers, m.width, parameters);
  if (m.width % m.heads == 0) return;
  fail(Exit::config,
       "heads={} does not divide width={}\n"
       "  Each head holds width/heads columns. Valid heads for this width{}: {}.",
       m.heads, m.width, m.heads > 12 || m.width > 1000 ? ", nearest" : "",
       fmt::join(nearest_divisors(m.width, m.heads, 12), ", "));
}

void check_start(const std::string& comm, int64_t ranks, const char* verb,
                 const std::string& device) {
  parallel::device_named(device);
  check_input(comm != "nccl" || device != "cpu", Exit::config,
              "comm=nccl with device=cpu\n"
              "  NCCL moves tensors of GPUs. Add --device cuda, or leave --comm out.");
  check_input(ranks == 0 || comm == "threads", Exit::config,
              "ranks={} with comm={}\n"
              "  Only ranks that are threads are started by this program. Add --comm threads, or "
              "leave --ranks\n  out and start processes: mpirun -np {} minigpt {} ...",
              ranks, comm, ranks, verb);
}

using Fits = std::function<bool(const parallel::MeshShape&)>;

/// Which meshes the model can be shared out to.
Fits model_fits(const TrainConfig& c) {
  return [&c](const parallel::MeshShape& s) {
    return c.model.heads % s.tp == 0 && s.pp * c.mesh.chunks <= c.model.layers;
  };
}

void check_mesh(const MeshConfig& m, int64_t ranks, const char* verb, const Fits& fits = {}) {
  int64_t product = m.dp * m.pp * m.tp;
  check_input(m.dp <= 1 << 20 && m.pp <= 1 << 20 && m.tp <= 1 << 20 && product == ranks,
              Exit::config,
              "mesh: dp {} * pp {} * tp {} = {} does not equal the {} rank{} started\n{}\n"
              "  For this mesh: mpirun -np {} minigpt {} ..., or --comm threads --ranks {}",
              m.dp, m.pp, m.tp, product, ranks, ranks == 1 ? "" : "s",
              parallel::shapes_that_fit({int(m.dp), int(m.pp), int(m.tp)}, int(ranks), fits),
              product, verb, product);
}

void check_tensor_parallel(const TrainConfig& c) {
  int64_t tp = c.mesh.tp, rows = c.micro_batch * c.model.context;
  if (c.model.heads % tp != 0)
    fail(Exit::config,
         "tp={} does not divide heads={}\n"
         "  Each rank holds whole attention heads. Valid tp for these heads: {}.",
         tp, c.model.heads, fmt::join(nearest_divisors(c.model.heads, tp, 12), ", "));
  if (c.mesh.sequence_parallel && rows % tp != 0)
    fail(Exit::config,
         "sequence-parallel: tp={} does not divide micro-batch {} x context {} = {} token rows\n"
         "  Each rank holds equally many rows. Valid tp for them: {}.",
         tp, c.micro_batch, c.model.context, rows,
         fmt::join(nearest_divisors(std::gcd(rows, c.model.heads), tp, 12), ", "));
}

void check_recompute(const TrainConfig& c) {
  if (recompute_of(c.recompute) != Recompute::block_split) return;
  check_input(c.mesh.tp > 1 && !c.mesh.sequence_parallel, Exit::config,
              "recompute=block-split with {}\n  {}. Valid: off, selective, block.",
              c.mesh.tp > 1 ? "sequence-parallel" : "tp=1",
              c.mesh.tp > 1 ? "Each rank has only its rows of a block's input: they are shared out"
                            : "There are no ranks to share a block's input out to");
}

void check_pipeline(const TrainConfig& c) {
  const MeshConfig& m = c.mesh;
  bool fits = m.chunks <= c.model.layers && m.pp * m.chunks <= c.model.layers;
  check_input(fits || !m.placement.empty(), Exit::config,
              "pp={} x chunks={} pieces of a model of {} blocks\n"
              "  Each piece should have a block to do. Valid pp x chunks: 1 to {}.",
              m.pp, m.chunks, c.model.layers, c.model.layers);
  parallel::PipelineShape shape{int(m.pp), int(m.chunks), int(c.accumulation())};
  if (!m.placement.empty()) parallel::parse_placement(m.placement, shape, c.model.layers);
  parallel::schedule_named(m.schedule)(shape, 0);  // refuses chunks that it cannot have
}

void check_batch(const TrainConfig& c) {
  int64_t unit = c.micro_batch * c.mesh.dp, below = c.global_batch / unit * unit,
          above = below + unit;
  if (c.global_batch % unit == 0) return;
  fail(Exit::config,
       "global-batch={} is not a multiple of micro-batch {} x dp {} = {}\n"
       "  Every replica accumulates the same number of whole micro-batches. Nearest valid: {}.",
       c.global_batch, c.micro_batch, c.mesh.dp, unit,
       below == 0 ? fmt::format("{}", above) : fmt::format("{}, {}", below, above));
}

void check_rates(const TrainConfig& c) {
  check_input(c.warmup <= c.steps, Exit::config,
              "warmup={} is more than steps={}\n"
              "  The learning rate would never reach --lr. Valid warmup: 0 to {}.",
              c.warmup, c.steps, c.steps);
  check_input(c.min_lr <= c.lr, Exit::config,
              "min-lr={} is more than lr={}\n"
              "  The learning rate falls from --lr to --min-lr. Valid min-lr: 0 to {}.",
              c.min_lr, c.lr, c.lr);
}

}  // namespace

void validate(const TrainConfig& config, int64_t ranks) {
  TrainConfig copy = config;
  for (const Flag& flag : train_verb(copy).flags) check_value(flag, {Exit::config, flag.name});
  check_built(config);
  check_graph(config);
  check_model(config.model);
  check_start(config.comm, config.ranks, "train", config.device);
  check_mesh(config.mesh, ranks, "train", model_fits(config));
  check_batch(config);
  check_tensor_parallel(config);
  check_recompute(config);
  check_pipeline(config);
  check_rates(config);
  check_input(!config.data.empty(), Exit::config,
              "data is not given\n  This build made no corpus of its own. Add --data FILE.");
}

void validate(const SampleConfig& config, int64_t ranks) {
  SampleConfig copy = config;
  for (const Flag& flag : sample_verb(copy).flags) check_value(flag, {Exit::config, flag.name});
  check_start(config.comm, config.ranks, "sample", config.device);
  check_mesh(config.mesh, ranks, "sample");
  check_input(!config.checkpoint.empty(), Exit::config,
              "checkpoint is not given\n  Add --checkpoint RUN/step-N.");
  check_input(!config.prompt.empty(), Exit::config,
              "prompt is empty\n  A model continues a text of one character at least.");
}

}  // namespace triax::minigpt
