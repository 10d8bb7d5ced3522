#include "triax/parallel/train/step/step.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "triax/core/check.h"
#include "triax/core/memory.h"
#include "triax/core/profile.h"
#include "triax/parallel/comm/launch/stop_signal.h"

namespace triax::parallel {
namespace {

/// Zeroes the loss on all tensor-parallel ranks but the first, which reports it: all have it.
void report_once(const Mesh& mesh, const Tensor& loss) {
  const MeshShape& shape = mesh.shape();
  if (shape.place(mesh.world().rank(), shape.along(Cuts::features)) > 0) fill_(loss, 0);
}

}  // namespace

Step::Step(Mesh& mesh, const Build& build, const StepOptions& o, Facts facts, StepObserver observer)
    : options_(o),
      observer_(std::move(observer)),
      mesh_(mesh),
      replica_(mesh, build, o, std::move(facts), observer_.layer),
      optimizer_(o.make_optimizer()(replica_.data().slots())),
      scaler_(o.scaling()),
      request_(zeros({StepRequest::size}, f64, mesh.world().device())),
      totals_(zeros({StepTotals::size}, f64, request_.device())),
      decision_(zeros({StepDecision::size}, f64, request_.device())),
      lag_(request_.device().kind != Device::Kind::cuda || o.dtype == f16 ? 0 : 1) {
  for (auto& kind : o.axes)
    if (kind->around)
      optimizer_ =
          kind->around(std::move(optimizer_), replica_.data().slots(), mesh.over({kind->name}));
  if (o.graph) check_graph();
}

void Step::check_graph() const {
  auto buffers = replica_.all_buffers();
  check_input(std::ranges::none_of(buffers, [](auto* b) { return b->counts(); }), Exit::config,
              "graph with a mixture of experts, whose routers choose on the host\n"
              "  A captured step cannot wait for it. Leave --graph out.");
  const auto& world = mesh_.world();
  check_input(world.size() == 1 || world.transport() == std::string_view("NCCL"), Exit::config,
              "graph with {} ranks over {}\n  They meet on the host, which a captured step cannot "
              "do. Leave --graph out, or give every rank a GPU of its own and --comm nccl.",
              world.size(), world.transport());
  check_input(replica_.facts().rows_of_sample() > 0, Exit::config,
              "graph with a model whose layers have different numbers of rows\n  A replayed step "
              "moves all dropout masks by one number of rows. Leave --graph out.");
}

void Step::take(const StepInput& input) {
  StepRequest request{.lr = input.lr,
                      .step = double(optimizer_->steps() + 1),
                      .loss_scale = scaler_.scale(),
                      .clip = options_.clip,
                      .halts = options_.dtype == f16 ? 0. : 1.};
  copy_(request_, from_host(values_of(request), request_.shape(), cpu));
  if (options_.graph && taken_ >= 2 && optimizer_->steps() > 0) replay(input);
  else queue(input);
  ++taken_;
  pending_.push_back({input, request, HostCopy(totals_), HostCopy(tops())});
}

/// Queues a step on the device, in order. decide_step() says whether it happens, and clips.
void Step::queue(const StepInput& input) {
  ProfileRange range("step");
  auto batches = [&](int64_t micro) {
    nn::Batch batch = input.batches(micro);
    batch.choices = observer_.choices;
    return batch;
  };
  Tensor loss = replica_.forward_backward(batches, seed(input));
  if (observer_.gradients) observer_.gradients(*this);
  else if (options_.mesh.ranks_along(Cuts::features) > 1 &&
           (taken_ == 0 || optimizer_->steps() == 0))
    replica_.data().check_replicas(sums_of(loss.to_host<double>())[0]);
  report_once(mesh_, loss);
  add_up(loss);
  if (observer_.update && !options_.graph) observer_.update();
  backend(decision_).decide_step(request_, totals_, decision_);
  optimizer_->step(decision_);
  replica_.update_buffers(decision_);
  replica_.data().publish();
  if (options_.graph) replica_.data().await_weights();  // a graph ends with all that it began
}

/// Adds loss and norm over all ranks to the totals. Bitwise, both are sums in words, which are
/// joined when all are added.
void Step::add_up(const Tensor& loss) {
  constexpr int words = WideSum::words;
  bool wide = options_.bitwise;
  Tensor sums = wide ? zeros({2 * words + 1}, f64, totals_.device()) : totals_;
  int64_t first = loss.numel();
  if (!wide) fill_(sums, 0);
  copy_(sums.narrow(0, 0, first), loss);
  replica_.data().add_squares(sums.narrow(0, first, sums.numel() - first));
  mesh_.world().all_reduce(sums).wait();
  if (!wide) return;
  auto v = sums.to_host<double>();
  StepTotals totals{WideSum::value(&v[0]), WideSum::value(&v[words]), v[2 * words]};
  copy_(totals_, from_host(values_of(totals), totals_.shape(), cpu));
}

/// Launches the captured step on the batches of this one.
void Step::replay(const StepInput& input) {
  int64_t updates = optimizer_->steps();
  if (!captured_ || captured_->loss_scale != scaler_.scale() || captured_->weight != input.weight)
    capture(input);
  for (size_t m = 0; m < captured_->batches.size(); ++m) {
    Tensors now = nn::tensors(nn::to(input.batches(int64_t(m)), cpu, options_.dtype));
    Tensors fixed = nn::tensors(captured_->batches[m]);
    check(now.size() == fixed.size(), "graph: {} tensors, not {}", now.size(), fixed.size());
    for (size_t i = 0; i < now.size(); ++i) copy_(fixed[i], now[i]);
  }
  int64_t rows = options_.global_batch * replica_.facts().rows_of_sample();
  captured_->graph->launch((input.number - captured_->step) * rows);
  optimizer_->set_steps(updates + 1);
}

void Step::capture(const StepInput& input) {
  captured_.reset();
  Captured c{.step = input.number, .loss_scale = scaler_.scale(), .weight = input.weight};
  for (int64_t m = 0; m < options_.accumulation(); ++m)
    c.batches.push_back(nn::to(input.batches(m), decision_.device(), options_.dtype));
  StepInput fixed = input;
  fixed.batches = [&c](int64_t micro) { return c.batches[size_t(micro)]; };
  c.graph = backend(decision_).capture([&] { queue(fixed); });
  captured_ = std::move(c);
}

/// Returns the largest of all ranks' {peak of tensor memory in bytes, 1 if asked to stop, load of
/// the busiest expert}.
Tensor Step::tops() const {
  auto peak = double(memory::counter()->peak());
  Tensor tops =
      from_host(std::vector{peak, double(StopSignal::seen()), replica_.buffers().busiest()}, {3},
                mesh_.world().device());
  mesh_.world().all_reduce(tops, ReduceOp::max).wait();
  return tops;
}

std::vector<StepResult> Step::results(Await await) {
  std::vector<StepResult> all;
  for (; pending_.size() > (await == Await::all ? 0 : lag_); pending_.pop_front())
    all.push_back(result(pending_.front()));
  return all;
}

StepResult Step::result(const Pending& p) {
  auto v = p.totals.values().to_host<double>();
  auto tops = p.tops.values().to_host<double>();
  StepTotals totals{.loss = v[0], .squares = v[1], .non_finite = v[2]};
  auto norm = DataParallel::norm_of(std::span(v).subspan(1));
  StepResult r{.step = p.input.number,
               .loss = unsigned_nan(totals.loss / p.input.weight),
               .grad_norm = unsigned_nan(norm.value / p.request.loss_scale),
               .lr = p.request.lr,
               .weight = p.input.weight,
               .loss_scale = p.request.loss_scale,
               .memory_bytes = tops[0],
               .expert_load = tops[2],
               .skipped = !totals.finite()};
  stop_ |= tops[1] != 0;
  if (r.skipped) {
    optimizer_->set_steps(optimizer_->steps() - 1);
    r.overflow = trace_overflow(p.input);
  }
  scaler_.update(r.skipped);
  check_finite(r, p.input);
  return r;
}

std::vector<double> Step::evaluate(const Batches& batches, int64_t micros) {
  Tensor mine = replica_.evaluate(batches, micros);
  report_once(mesh_, mine);
  mesh_.world().all_reduce(mine).wait();
  return mine.to_host<double>();
}

std::vector<double> Step::sums_of(std::span<const double> parts) const {
  if (!options_.bitwise) return {parts.begin(), parts.end()};
  std::vector<double> sums;
  for (size_t i = 0; i < parts.size(); i += WideSum::words)
    sums.push_back(WideSum::value(&parts[i]));
  return sums;
}

std::vector<Piece> Step::pieces(Holder whose) const {
  auto all = replica_.pieces(whose);
  std::ranges::move(state_pieces(replica_.data(), *optimizer_, whose), std::back_inserter(all));
  return all;
}

CheckpointState Step::state() const {
  return {
      {"updates", std::to_string(optimizer_->steps())},  // fewer than steps if some were skipped
      {"loss_scaler", scaler_.state()}};
}

void Step::restore(const std::function<void(const std::vector<Piece>&)>& fill,
                   const CheckpointState& state) {
  replica_.data().await_weights();
  fill(pieces(Holder::any));
  replica_.data().publish();
  auto of = [&](const char* key) -> const std::string& {
    auto found = state.find(key);
    check_input(found != state.end(), Exit::data, "checkpoint: its state has no {}", key);
    return found->second;
  };
  optimizer_->set_steps(whole_number(of("updates"), "checkpoint: updates"));
  scaler_.restore(of("loss_scaler"));
}

}  // namespace triax::parallel
