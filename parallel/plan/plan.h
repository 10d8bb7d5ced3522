#pragma once
#include <string>
#include <vector>

#include "parallel/plan/rehearsal.h"

namespace triax::parallel {

/// What a rank runs on, in figures that makers publish: peaks, of which work reaches a part.
struct Hardware {
  const char* name;
  double memory;     ///< bytes of one rank
  double fp32, low;  ///< peak FLOP/s of products (fp32: TF32 where there is it) and of bf16, fp16
  double bandwidth;  ///< bytes/s of memory
  double link, network;  ///< bytes/s of one rank and direction, to the same node and to others
  double latency;        ///< seconds that a transfer takes however small
  enum class Host { apart, same } host = Host::apart;  ///< is the host's memory another one?
  Device::Kind kind() const { return host == Host::same ? Device::Kind::cpu : Device::Kind::cuda; }
};

/// `cpu` (one core with AVX-512 and AMX), `a100`, `h100`, `h200`.
std::vector<std::string> hardware_names();
/// Throws Error 78, naming those there are.
const Hardware& hardware_named(const std::string& name);

/// Bytes of this machine's memory that nobody uses; 0 where that is not known.
double available_memory();

/// `80GB`, `512 mb`, `0.5TB`, powers of ten. Throws Error 78 for another text.
double bytes_of(const std::string& text);
/// `79.6 GB`, three digits.
std::string show_bytes(double bytes);

/// Seconds of one step, by what they go to. Products reach `efficiency` of the peak, everything
/// else the memory's bandwidth; transfers take their bytes over the link's and its latency.
/// Collectives of tp are waited for. Those of dp overlap with the backward that they can start in:
/// the last micro-batch's (ZeRO 0, 1), or all (2, 3); what is left over is counted. Stages idle as
/// the simulated schedule says, for equal forward, input and weight times of the slowest stage.
struct StepTime {
  double compute = 0;  ///< of the slowest stage
  double tensor = 0;   ///< its collectives of tp
  double idle = 0;     ///< of a stage, in the pipeline
  double data = 0;     ///< collectives of dp that nothing hides
  double update = 0;   ///< optimizer, and gathering weights
  double total() const { return compute + tensor + idle + data + update; }
};
inline constexpr double efficiency = 0.5;

/// `per_node`: ranks that share a node.
StepTime step_time(const StepOptions& o, const std::vector<Demand>& stages, const Hardware& h,
                   int per_node);

/// What to plan for. Sizes of the mesh that are 0, and a ZeRO stage of -1, are looked for.
struct PlanOptions {
  TrainOptions train;
  int zero = -1;
  int64_t ranks = 0;  ///< 0: those of the mesh
  std::string hardware = "h100";
  std::string memory;    ///< of a rank, like 80GB; empty: the hardware's
  int64_t per_node = 8;  ///< ranks of one node
  int64_t top = 20;      ///< rows to print
  bool check = false;    ///< measure a step of the best on threads
};

/// One way to train, and what it takes.
struct Plan {
  TrainOptions options;
  std::vector<Demand> stages;
  StepTime time;

  const Demand& fullest() const;  ///< of the stage whose ranks hold most
  /// Bytes that such a rank needs of its memory: the peak of its tensors, and where that memory is
  /// the host's what was offloaded into it.
  double need(const Hardware& h) const;
};

struct Plans {
  std::vector<Plan> all;
  std::vector<std::string> refusals;  ///< why other meshes are none of this model's
};

/// Bytes that a rank may hold. Throws Error 78 for a text that is no size.
double budget(const PlanOptions& o);

/// All meshes of `ranks` ranks and ZeRO stages that the model allows, where `o` leaves them open:
/// those that fit, fastest first, then the others, smallest first. Throws Error 78 if there are
/// none.
Plans plans(const Task& task, const PlanOptions& o);

/// Prints what fits and what does not. Throws Error 78 if nothing does.
Exit plan(const Task& task, const PlanOptions& o);

}  // namespace triax::parallel
