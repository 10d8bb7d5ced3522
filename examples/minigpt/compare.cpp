#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "examples/minigpt/model.h"
#include "examples/minigpt/parity.h"
#include "parallel/comm/threads/thread_comm.h"

namespace triax::minigpt {
namespace {

double largest(const Wholes& all) {
  double top = 0;
  for (auto& [name, whole] : all)
    for (float v : whole.values) top = std::max(top, std::abs(double(v)));
  return top;
}

/// The best factor that makes `other` of `right`.
double factor_of(const Assembled& right, const Assembled& other) {
  double both = 0, square = 0;
  for (size_t i = 0; i < right.values.size(); ++i) {
    both += double(right.values[i]) * other.values[i];
    square += double(right.values[i]) * right.values[i];
  }
  return square > 0 ? both / square : 1;
}

/// A factor that is the size of an axis, or one over it, says what went wrong.
std::string guess(double factor, const MeshConfig& mesh) {
  auto near = [&](double x) { return std::abs(factor - x) < 1e-2 * x; };
  for (int64_t size : {mesh.dp, mesh.tp, mesh.pp}) {
    if (size == 1) continue;
    std::vector<const char*> axes;
    if (mesh.dp == size) axes.push_back("dp");
    if (mesh.tp == size) axes.push_back("tp");
    if (mesh.pp == size) axes.push_back("pp");
    std::string which = fmt::format("{}", fmt::join(axes, " or "));
    if (near(double(size)))
      return fmt::format("a factor of {}: summed once too often, or not averaged, over {}", size,
                         which);
    if (near(1 / double(size)))
      return fmt::format("a factor of 1/{}: averaged once too often, or not summed, over {}", size,
                         which);
  }
  if (std::abs(factor) < 1e-3) return "it is missing altogether";
  if (std::abs(factor - 1) > 0.02)
    return fmt::format("a factor of about {:.3g}: a part of the sum is missing or counted twice",
                       factor);
  return "";
}

class Comparison {
 public:
  Comparison(const MeshConfig& mesh, int64_t step) : mesh_(mesh), step_(step) {}

  /// One tensor against another, within `bound`.
  std::optional<Difference> tensor(const char* what, const std::string& name,
                                   const Assembled& right, const Assembled& other, double bound) {
    Difference d{step_, what, name, "", ""};
    if (other.values.size() != right.values.size() || other.missing() > 0) {
      d.how_much =
          fmt::format("{} of its {} elements are on no rank",
                      other.values.empty() ? int64_t(right.values.size()) : other.missing(),
                      right.values.size());
      return d;
    }
    if (!other.conflict.empty()) {
      d.what += " on replicas";
      d.how_much = "ranks that hold the same differ at " + other.conflict;
      return d;
    }
    size_t worst = 0;
    double most = -1;
    for (size_t i = 0; i < right.values.size(); ++i) {
      double gap = std::abs(double(right.values[i]) - other.values[i]);
      if (!(gap <= most)) most = gap, worst = i;
      if (std::isnan(gap)) break;
    }
    if (most <= bound) return {};
    d.how_much = fmt::format("element {} is {}, expected {} within {:.1e}", worst,
                             other.values[worst], right.values[worst], bound);
    d.guess = guess(factor_of(right, other), mesh_);
    return d;
  }

  std::optional<Difference> number(const char* what, double right, double other, double bound) {
    if (std::abs(right - other) <= bound * std::abs(right)) return {};
    return Difference{
        step_, what, "",
        fmt::format("{:.9g}, expected {:.9g} within {:.0e} of it", other, right, bound),
        guess(other / right, mesh_)};
  }

  /// A number that every rank has for itself.
  std::optional<Difference> numbers(const char* what, double right,
                                    const std::vector<double>& others, double bound) {
    auto [low, high] = std::minmax_element(others.begin(), others.end());
    if (*low == *high) return number(what, right, *low, bound);
    return Difference{step_, what + std::string(" on replicas"), "",
                      fmt::format("from {:.9g} to {:.9g} over the ranks, expected {:.9g} on all",
                                  *low, *high, right),
                      ""};
  }

 private:
  const MeshConfig& mesh_;
  int64_t step_;
};

/// The key bias of attention shifts all scores of a query alike: its gradient is rounding, which
/// AdamW turns into steps.
bool is_noise(const std::string& name) { return name.find("qkv.bias") != name.npos; }

/// Is `at` the parameter's value, or one of its moments, `name/m`?
bool belongs(Wholes::const_iterator at, const Wholes& all, const std::string& parameter) {
  return at != all.end() && (at->first == parameter || at->first.starts_with(parameter + "/"));
}

const Assembled& find(const Wholes& all, const std::string& name) {
  static const Assembled nothing;
  auto found = all.find(name);
  return found == all.end() ? nothing : found->second;
}

}  // namespace

std::optional<Difference> first_difference(const Trace& reference, const Trace& run,
                                           const Names& names, const MeshConfig& mesh,
                                           const ParityBounds& bounds) {
  auto weights = [&](int64_t step, const Wholes& right, const Wholes& other, double extra) {
    Comparison c(mesh, step);
    for (auto& parameter : names.parameters)
      for (auto at = right.lower_bound(parameter); belongs(at, right, parameter); ++at) {
        auto& [name, whole] = *at;
        bool moment = name != parameter;
        double top = largest({{name, whole}});
        double bound = bounds.weight * top + (moment ? bounds.weight * top : extra);
        if (is_noise(name)) bound = std::max(bound, bounds.noise);
        const char* what = moment ? "moment" : "weight";
        if (auto d = c.tensor(what, name, whole, find(other, name), bound)) return d;
      }
    return std::optional<Difference>();
  };
  if (auto d = weights(0, reference.initial, run.initial, 0)) return d;
  for (size_t s = 0; s < reference.steps.size(); ++s) {
    const TraceStep &right = reference.steps[s], &other = run.steps[s];
    Comparison c(mesh, int64_t(s) + 1);
    for (auto& name : names.layers) {
      auto& whole = find(right.activations, name);
      double bound = bounds.activation * largest({{name, whole}});
      if (auto d = c.tensor("activation", name, whole, find(other.activations, name), bound))
        return d;
    }
    if (auto d = c.number("loss", right.loss, other.loss, bounds.loss)) return d;
    double bound = bounds.gradient * largest(right.gradients);
    for (auto name = names.parameters.rbegin(); name != names.parameters.rend(); ++name)
      if (auto d = c.tensor("gradient", *name, find(right.gradients, *name),
                            find(other.gradients, *name), bound))
        return d;
    if (auto d = c.numbers("gradient norm", right.norms[0], other.norms, bounds.norm)) return d;
    if (auto d = weights(int64_t(s) + 1, right.state, other.state, bounds.update)) return d;
  }
  return {};
}

Names names_of(const ModelConfig& c) {
  auto alone = parallel::single_rank();
  Gpt model(c, parallel::TensorParallel(*alone));
  model.bind(0);
  Names names;
  for (auto& layer : model.layers()) names.layers.push_back(layer.name);
  names.layers.pop_back();  // the head's output is the loss
  for (auto* p : model.parameters()) names.parameters.push_back(p->name);
  return names;
}

}  // namespace triax::minigpt
