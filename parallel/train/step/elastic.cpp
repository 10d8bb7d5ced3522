#include "triax/parallel/train/step/elastic.h"

#include <algorithm>
#include <numeric>

#include "triax/core/check.h"
#include "triax/parallel/train/step/replica.h"

namespace triax::parallel {
namespace {

/// The dp tried for each split of the model: an error of the model itself would come with any.
constexpr int most_dps = 4;

/// Returns meshes in the order of the rule: with a dp that can share out whole micro-batches, or 1.
std::vector<MeshShape> choices(const StepOptions& o, int64_t ranks) {
  std::vector<MeshShape> shapes;
  const MeshShape& plan = o.mesh;
  for (const Axis& a : plan.more) ranks /= a.size;
  for (auto inner = int(std::min<int64_t>(ranks, int64_t{plan.tp} * plan.cp * plan.ep)); inner >= 1;
       --inner) {
    int tp = std::gcd(inner, plan.tp), cp = std::gcd(inner / tp, plan.cp), ep = inner / tp / cp;
    if (plan.ep % ep != 0) continue;
    for (int64_t pp = std::min<int64_t>(plan.pp, ranks / inner); pp >= 1; --pp) {
      int64_t dp = ranks / (pp * inner);
      if (plan.dp > 0) dp = std::min<int64_t>(plan.dp, dp);
      for (int tried = 0; dp >= 1 && tried < most_dps; --dp)
        if (MeshShape shape{int(dp), int(pp), tp, cp, ep, plan.more};
            dp == 1 || o.global_batch % (o.micro_batch * shape.replicas()) == 0)
          shapes.push_back(shape), ++tried;
    }
  }
  std::ranges::stable_sort(shapes, std::greater(), [](auto& s) { return s.size() / s.dp; });
  return shapes;
}

}  // namespace

TrainOptions elastic_options(const Task& task, const TrainOptions& plan, int64_t ranks) {
  check_task(task);
  TrainOptions o = plan;
  if (o.step.global_batch == 0) {
    const MeshShape& m = o.step.mesh;
    int64_t dp = m.dp > 0 ? m.dp : std::max<int64_t>(1, int64_t(double(ranks) / m.least_size()));
    MeshShape on = m;
    on.dp = int(dp);
    o.step.global_batch = o.step.micro_batch * on.replicas();
  }
  std::exception_ptr why;
  for (const MeshShape& shape : choices(o.step, ranks)) try {
      TrainOptions on = o;
      on.step.mesh = shape;
      resolve(on, shape.size());
      check_options(on, shape.size());
      nn::Batch like = batch_like(task, on.step.micro_batch);
      (void)place(probe(task.build, like, probe_options(on.step)), on.step);
      return on;
    } catch (const Error&) {
      if (!why) why = std::current_exception();
    }
  check_input(why != nullptr, Exit::config, "elastic: {} ranks for {}; expected more", ranks,
              given_axes(plan.step.mesh));
  std::rethrow_exception(why);
}

}  // namespace triax::parallel
